"""Sentences of daily life from tatoeba.org: from a folder, or from the network, parted by the English sentence."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from regard.data.download import cache, fetch
from regard.data.readers import Parallel
from regard.errors import DataError, DownloadError
from regard.files import sha256_of_file
from regard.recipes._files import folder, named
from regard.recipes.translation._material import Material, languages
from regard.recipes.translation.settings import Translation

SITE = "https://www.manythings.org/anki"  # pairs of tatoeba.org's sentences; the files grow from time to time
NAMES = {"zh": "cmn", "fr": "fra"}  # of languages, there
MARK = "sha256"  # a file beside the parts
PARTS = ("dev", "test", "train")
HELD = 50  # one English sentence in so many goes to dev, and one to test


def tatoeba(settings: Translation, first: str, second: str) -> Material:
    """Sentences of daily life from tatoeba.org, as .tsv: English, then the other language."""
    forward = languages(settings, (f"{first}-{second}", f"{second}-{first}"))[0] == first
    what = f"train.tsv, dev.tsv and test.tsv: {first}, tab, {second}"
    root = folder(settings.data, what, lambda: download(second))

    def part(name: str) -> Parallel:
        return Parallel([named(root, f"{name}.tsv")], columns=(0, 1) if forward else (1, 0))

    return Material(part("train"), part("dev"), {"test": part("test")})


def download(language: str) -> Path:
    """The folder of the three parts, made of the file that the site had when it was first fetched."""
    where, name = cache() / f"tatoeba-{language}-en", NAMES[language]
    url = f"{SITE}/{name}-eng.zip"
    try:
        packed = fetch(url, None, where)
    except DownloadError as error:
        raise DownloadError(f"{error} Or get {url} in another way and put it into {where}.") from None
    made, mark = where / "parts", sha256_of_file(packed)
    if _marked(made) != mark:
        rough = where / f".parts.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            rough.mkdir()
            write_parts(packed, f"{name}.txt", rough)
            (rough / MARK).write_text(mark, encoding="utf-8")
            shutil.rmtree(made, ignore_errors=True)
            os.replace(rough, made)  # all three parts, or none
        except DataError:  # what came is not what it should be: nothing to hold to
            with suppress(OSError):
                packed.unlink()
                packed.with_name(f"{packed.name}.sha256").unlink()
            raise
        except OSError as error:
            if _marked(made) != mark:  # else another process was faster
                wrong = error.strerror or error
                raise DownloadError(
                    f"{where} cannot be written to ({wrong}); REGARD_CACHE can name another folder."
                ) from None
        finally:
            shutil.rmtree(rough, ignore_errors=True)
    return made


def _marked(made: Path) -> str:
    """The checksum of the file that these parts were made of."""
    return (made / MARK).read_text(encoding="utf-8") if (made / MARK).is_file() else ""


def write_parts(packed: Path, name: str, into: Path) -> None:
    """Part the lines of a packed file into train.tsv, dev.tsv and test.tsv."""
    counts = dict.fromkeys(PARTS, 0)
    with ExitStack() as stack:
        files = {
            part: stack.enter_context(open(into / f"{part}.tsv", "w", encoding="utf-8", newline="\n"))
            for part in PARTS
        }
        for number, line in enumerate(_lines(packed, name), 1):
            english, tab, _ = line.partition("\t")
            if not line.strip():
                continue
            if not tab:
                raise DataError(f"{packed}: line {number:,} of {name} is no sentence, tab, translation.")
            files[part_of(english)].write(line + "\n")
            counts[part_of(english)] += 1
    if not all(counts.values()):
        raise DataError(f"{packed}: {name} has {sum(counts.values()):,} lines, too few to be parted.")


def part_of(english: str) -> str:
    """The part of an English sentence: the same for all its translations, whatever else the file holds.

    >>> [part_of(f"I have {number} dogs.") for number in ("two", 13, 24)]
    ['train', 'dev', 'test']
    """
    bare = "".join(filter(str.isalnum, english.lower()))
    number = int.from_bytes(hashlib.sha256(bare.encode()).digest()[:8], "big") % HELD
    return PARTS[min(number, 2)]


def _lines(packed: Path, name: str) -> Iterator[str]:
    try:
        with zipfile.ZipFile(packed) as archive, archive.open(name) as file:
            for number, line in enumerate(file, 1):
                try:
                    yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                except UnicodeDecodeError:
                    raise DataError(f"{packed}: line {number:,} of {name} is not UTF-8.") from None
    except KeyError:
        raise DataError(f"{packed} holds no {name}; what the site gives has changed.") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DataError(f"{packed} is not a whole zip file ({error}).") from None
