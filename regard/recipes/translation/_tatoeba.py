"""Sentences of daily life from tatoeba.org: from a folder, or from the network, parted by the English sentence."""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import mkdtemp

from regard.data import DataError
from regard.data.download import cache, fetch
from regard.data.readers import Parallel
from regard.recipes._files import folder, named
from regard.recipes.translation._material import Material, languages
from regard.recipes.translation.settings import Translation

SITE = "https://www.manythings.org/anki"  # pairs of tatoeba.org's sentences; the files grow from time to time
NAMES = {"zh": "cmn", "fr": "fra"}  # of languages, there
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
    packed = fetch(f"{SITE}/{name}-eng.zip", None, where)
    made = where / hashlib.sha256(packed.read_bytes()).hexdigest()[:12]
    if not made.is_dir():
        rough = Path(mkdtemp(dir=where))
        try:
            write_parts(packed, f"{name}.txt", rough)
            rough.chmod(0o755)
            os.replace(rough, made)  # all three parts, or none
        except DataError:  # what came is not what it should be: nothing to hold to
            packed.unlink()
            packed.with_name(f"{packed.name}.sha256").unlink()
            raise
        except OSError:
            if not made.is_dir():  # else another process was faster
                raise
        finally:
            shutil.rmtree(rough, ignore_errors=True)
    return made


def write_parts(packed: Path, name: str, into: Path) -> None:
    """Part the lines of a packed file into train.tsv, dev.tsv and test.tsv."""
    with ExitStack() as stack:
        files = {
            part: stack.enter_context(open(into / f"{part}.tsv", "w", encoding="utf-8", newline="\n"))
            for part in PARTS
        }
        for line in _lines(packed, name):
            files[part_of(line.partition("\t")[0])].write(line + "\n")


def part_of(english: str) -> str:
    """The part of an English sentence: the same for all its translations, whatever else the file holds.

    >>> part_of("Go home."), part_of("go home!"), part_of("Oh no!")
    ('train', 'train', 'train')
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
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(f"{packed} is not a whole zip file ({error}).") from None
