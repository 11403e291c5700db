"""Downloads from a local server that can fail in several ways."""

import hashlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from regard.data import download
from regard.data.downloads import cache_dir
from regard.errors import DataError

BODY = bytes(range(256)) * 9000
SHA = hashlib.sha256(BODY).hexdigest()


class Server(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        if self.path.startswith("/no"):
            self.send_error(404)
            return
        self.send_response(200)
        if not self.path.startswith("/unsized"):
            self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY[: len(BODY) // 2] if "cut" in self.path else BODY)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        server.requests = []
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def download_error(folder, url, sha=SHA):
    with pytest.raises(DataError) as caught:
        download(url, sha, folder)
    assert "\n" not in str(caught.value)
    assert not folder.exists() or list(folder.iterdir()) == []  # no partial file is left
    return str(caught.value)


def test_a_file_is_downloaded_once(server, tmp_path):
    path = download(f"{server.url}/a%20b.gz?x=1", SHA.upper(), tmp_path / "deep" / "folder")
    assert path == tmp_path / "deep" / "folder" / "a b.gz"
    assert path.read_bytes() == BODY
    assert download(f"{server.url}/a%20b.gz?x=1", SHA, path.parent) == path
    assert len(server.requests) == 1
    path.write_bytes(b"damaged")
    assert download(f"{server.url}/a%20b.gz", SHA, path.parent).read_bytes() == BODY
    assert [file.name for file in path.parent.iterdir()] == ["a b.gz"]
    assert download(f"{server.url}/unsized", SHA, tmp_path).read_bytes() == BODY


def test_the_cache_folder(server, tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    assert download(f"{server.url}/a", SHA).parent == tmp_path / "cache" == cache_dir()
    monkeypatch.delenv("REGARD_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "regard"


def test_a_wrong_checksum(server, tmp_path):
    assert "has SHA-256 " + SHA[:12] in download_error(tmp_path, f"{server.url}/a", "0" * 64)


def test_a_wrong_checksum_leaves_the_old_file(server, tmp_path):
    (tmp_path / "a").write_bytes(b"older")
    with pytest.raises(DataError, match="nothing was kept"):
        download(f"{server.url}/a", "0" * 64, tmp_path)
    assert (tmp_path / "a").read_bytes() == b"older"


def test_not_found(server, tmp_path):
    assert "was refused by its server: 404" in download_error(tmp_path, f"{server.url}/no/a")


def test_incomplete_download(server, tmp_path):
    assert f"broke off after {len(BODY) // 2:,} of {len(BODY):,} bytes" in download_error(tmp_path, f"{server.url}/cut")
    download_error(tmp_path, f"{server.url}/unsized-cut")


def test_no_server(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "cannot be reached" in download_error(tmp_path, f"http://127.0.0.1:{port}/a")


def test_not_an_address(tmp_path):
    for url in ("file:///etc/hosts", "http://127.0.0.1/", "a.gz", "http://127.0.0.1/a/.."):
        assert "is not the http address of a file" in download_error(tmp_path, url)


def test_a_folder_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="REGARD_CACHE can name another"):
        download(f"{server.url}/a", SHA, tmp_path / "file" / "sub")
