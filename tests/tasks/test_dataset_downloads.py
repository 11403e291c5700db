"""Recipes download their data, here from a local server with generated texts."""

import gzip
import hashlib
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from regard.errors import ConfigError, DataError
from regard.tasks import datasets as downloads
from regard.tasks import datasets as tatoeba
from regard.tasks import make_config
from regard.tasks.registry import get_recipe
from regard.tasks.translation.data import iter_pairs, multi30k, multi30k_tok


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server whose files are the names of the table, each with one line of its own; checksums to match."""
    root = tmp_path / "server"
    for table in ("MULTI30K_FILES", "MULTI30K_TOK_FILES"):
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
    monkeypatch.setattr(downloads, "MULTI30K_URL", f"http://127.0.0.1:{httpd.server_port}")
    yield root
    httpd.shutdown()
    thread.join()
    httpd.server_close()


@pytest.mark.parametrize(("name", "make"), [("multi30k", multi30k), ("multi30k-tok", multi30k_tok)])
def test_data_is_downloaded_once(server, name, make):
    splits = make(make_config(name, data_dir="download"))
    [pair] = iter_pairs(splits.train)
    assert pair.source.startswith("text of ")
    assert pair.source.replace(".gz", "").endswith("en")
    for path in server.rglob("*.*"):
        path.unlink()
    make(make_config(name, data_dir="download"))  # from the cache


def test_a_file_with_another_checksum_is_refused(server):
    (server / "raw/val.de.gz").write_bytes(gzip.compress(b"something else\n"))
    with pytest.raises(DataError, match="SHA-256"):
        multi30k(make_config("multi30k", data_dir="download"))


def test_a_truncated_file_is_refused(server):
    content = (server / "raw/val.de.gz").read_bytes()
    (server / "raw/val.de.gz").write_bytes(content[:-9])
    with pytest.raises(DataError, match=r"val\.de\.gz"):
        multi30k(make_config("multi30k", data_dir="download"))


@pytest.fixture
def sentences(server, monkeypatch):
    """The same server with pairs of sentences, as manythings.org packs them."""
    monkeypatch.setattr(tatoeba, "TATOEBA_URL", downloads.MULTI30K_URL)
    return server


def pack(server, lines):
    with zipfile.ZipFile(server / "fra-eng.zip", "w") as archive:
        archive.writestr("fra.txt", "".join(f"{line}\n" for line in lines))
        archive.writestr("_about.txt", "where it comes from")


def load_splits():
    splits = get_recipe("tatoeba-fr-en").load_data(
        make_config("tatoeba-fr-en", data_dir="download", language_pair="en-fr")
    )
    return {"train": splits.train, "dev": splits.valid, "test": splits.tests["test"]}


DOGS = [f"I have {n} dogs.\tJ'ai {n} chiens.\tCC-BY 2.0 #{n}" for n in range(600)]


def test_splits_are_by_the_english_sentence(sentences):
    pack(sentences, DOGS + [f"I HAVE {n} dogs!\tJe possède {n} chiens." for n in range(600)])
    parts = {name: list(iter_pairs(part)) for name, part in load_splits().items()}
    assert sum(map(len, parts.values())) == 1200
    assert parts["train"][0].target.startswith("J'ai")
    numbers = {name: {pair.source.split()[2] for pair in part} for name, part in parts.items()}
    assert sum(map(len, numbers.values())) == 600  # both translations of a sentence are in one part
    assert all(4 < len(numbers[name]) < 25 for name in ("dev", "test"))


def count_pairs():
    return sum(len(list(iter_pairs(part))) for part in load_splits().values())


def test_the_first_download_is_used_again(sentences, tmp_path):
    pack(sentences, DOGS)
    assert count_pairs() == 600
    pack(sentences, [*DOGS, "Oh no!\tOh non !"])  # the site's file grows
    assert count_pairs() == 600
    folder = tmp_path / "cache" / "tatoeba-fr-en"
    (folder / "fra-eng.zip").unlink()
    with pytest.raises(DataError, match=r"nothing was kept; remove .*fra-eng\.zip\.sha256"):
        load_splits()
    before = list_splits(folder)
    (folder / "fra-eng.zip.sha256").unlink()
    assert count_pairs() == 601
    assert list_splits(folder) == before  # the same paths, so that a run notices that they changed
    assert not list(folder.glob(".*"))


def list_splits(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.tsv"))


def test_a_file_put_into_the_cache_by_hand_is_used(sentences, tmp_path):
    folder = tmp_path / "cache" / "tatoeba-fr-en"
    with pytest.raises(DataError, match=r"404.* Or get http.*fra-eng\.zip in another way and put it into "):
        load_splits()
    pack(sentences, DOGS)
    folder.mkdir(parents=True, exist_ok=True)
    (sentences / "fra-eng.zip").rename(folder / "fra-eng.zip")
    assert count_pairs() == 600
    assert "fra-eng.zip" in (folder / "fra-eng.zip.sha256").read_text()


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (None, "is not a whole zip file"),
        ([], "has 0 lines, too few"),
        (DOGS[:1], "has 1 lines, too few"),
        ([*DOGS, "", "please come back later"], "line 602 of fra.txt is no sentence, tab, translation"),
    ],
)
def test_damaged_archives_are_refused(sentences, tmp_path, lines, sentence):
    if lines is None:
        (sentences / "fra-eng.zip").write_bytes(b"<html>please come back later</html>")
    else:
        pack(sentences, lines)
    with pytest.raises(DataError, match=sentence):
        load_splits()
    assert list((tmp_path / "cache" / "tatoeba-fr-en").iterdir()) == []
    pack(sentences, DOGS)
    assert count_pairs() == 600  # it is downloaded again


def test_an_archive_without_the_file_is_refused(sentences):
    with zipfile.ZipFile(sentences / "fra-eng.zip", "w") as archive:
        archive.writestr("sentences.csv", "a,b")
    with pytest.raises(DataError, match=r"holds no fra\.txt"):
        load_splits()


def test_hansards_cannot_be_downloaded():
    with pytest.raises(ConfigError, match=r"hansards cannot download its data: .* data_dir=FOLDER with"):
        get_recipe("hansards").load_data(make_config("hansards", data_dir="download"))


def test_checksums_have_the_form_of_sha256():
    for table in (downloads.MULTI30K_FILES, downloads.MULTI30K_TOK_FILES, downloads.G2P_FILES):
        assert all(len(value) == 64 and int(value, 16) for value in table.values())
        assert len(set(table.values())) == len(table)
