"""Recipes fetch their data from a server; here from one on this machine, with texts of ours."""

import gzip
import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from regard.data import DataError
from regard.recipes import settings_of
from regard.recipes._parse import SettingError
from regard.recipes.translation import _downloads as downloads
from regard.recipes.translation._material import multi30k, multi30k_tok, pairs


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server whose files are the names of the table, each with one line of its own; checksums to match."""
    root = tmp_path / "server"
    for table in ("RAW", "TOK"):
        sums = {}
        for name in getattr(downloads, table):
            text = f"text of {name}\n".encode()
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
            sums[name] = hashlib.sha256(text).hexdigest()
        monkeypatch.setattr(downloads, table, sums)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=root))
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    monkeypatch.setattr(downloads, "MULTI30K", f"http://127.0.0.1:{httpd.server_port}")
    yield root
    httpd.shutdown()
    thread.join()
    httpd.server_close()


@pytest.mark.parametrize(("name", "make"), [("multi30k", multi30k), ("multi30k-tok", multi30k_tok)])
def test_data_is_fetched_once_and_read(server, name, make):
    found = make(settings_of(name, data="download"))
    [pair] = pairs(found.train)
    assert pair.source.startswith("text of ")
    assert pair.source.replace(".gz", "").endswith("en")
    for path in server.rglob("*.*"):
        path.unlink()
    make(settings_of(name, data="download"))  # from the cache


def test_another_text_than_expected_is_refused(server):
    (server / "raw/val.de.gz").write_bytes(gzip.compress(b"something else\n"))
    with pytest.raises(DataError, match="SHA-256"):
        multi30k(settings_of("multi30k", data="download"))


def test_a_broken_packet_is_refused(server):
    whole = (server / "raw/val.de.gz").read_bytes()
    (server / "raw/val.de.gz").write_bytes(whole[:-9])
    with pytest.raises(DataError, match=r"val\.de\.gz"):
        multi30k(settings_of("multi30k", data="download"))


def test_a_recipe_that_cannot_download_says_where_its_data_goes(tmp_path):
    from regard.recipes._recipes import recipe

    with pytest.raises(
        SettingError, match=r"cannot download its data: get fra-eng.zip .* data=FOLDER with train.tsv"
    ):
        recipe("tatoeba-fr-en").material(settings_of("tatoeba-fr-en", data="download"))


def test_checksums_are_checksums():
    for table in (downloads.RAW, downloads.TOK, downloads.SOUNDS):
        assert all(len(value) == 64 and int(value, 16) for value in table.values())
        assert len(set(table.values())) == len(table)
