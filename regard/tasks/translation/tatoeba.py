"""Sentence pairs of tatoeba.org: downloaded, and divided into splits by the English sentence."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from regard.data.downloads import cache_dir, download
from regard.errors import DataError, DownloadError
from regard.files import sha256_of_file

__all__ = ["assign_split", "download_tatoeba", "write_splits"]

TATOEBA_URL = "https://www.manythings.org/anki"  # sentence pairs of tatoeba.org; the files grow from time to time
TATOEBA_LANGUAGES = {"zh": "cmn", "fr": "fra"}  # names of languages on that site
TATOEBA_SPLITS = ("dev", "test", "train")
CHECKSUM_FILE = "sha256"  # next to the splits
HELD_OUT_EVERY = 50  # of this many English sentences, one goes to dev and one to test


def download_tatoeba(language: str) -> Path:
    """The folder of the three splits, made of the file that the site had at the first download.

    Args:
        language: "zh" or "fr"
    """
    folder, name = cache_dir() / f"tatoeba-{language}-en", TATOEBA_LANGUAGES[language]
    url = f"{TATOEBA_URL}/{name}-eng.zip"
    try:
        archive = download(url, None, folder)
    except DownloadError as error:
        raise DownloadError(f"{error} Or get {url} in another way and put it into {folder}.") from None
    splits, checksum = folder / "parts", sha256_of_file(archive)
    if _read_checksum(splits) != checksum:
        partial_folder = folder / f".parts.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            partial_folder.mkdir()
            write_splits(archive, f"{name}.txt", partial_folder)
            (partial_folder / CHECKSUM_FILE).write_text(checksum, encoding="utf-8")
            shutil.rmtree(splits, ignore_errors=True)
            os.replace(partial_folder, splits)  # all three splits, or none
        except DataError:  # the file is not what it should be; it is downloaded again
            with suppress(OSError):
                archive.unlink()
                archive.with_name(f"{archive.name}.sha256").unlink()
            raise
        except OSError as error:
            if _read_checksum(splits) != checksum:  # else another process was faster
                raise DownloadError(
                    f"{folder} cannot be written to ({error.strerror or error}); REGARD_CACHE can name another folder."
                ) from None
        finally:
            shutil.rmtree(partial_folder, ignore_errors=True)
    return splits


def _read_checksum(folder: Path) -> str:
    """The checksum of the file that these splits were made of."""
    return (folder / CHECKSUM_FILE).read_text(encoding="utf-8") if (folder / CHECKSUM_FILE).is_file() else ""


def write_splits(archive_path: Path, name: str, folder: Path) -> None:
    """Divide the lines of a file in a zip archive into train.tsv, dev.tsv and test.tsv.

    Args:
        archive_path: the archive
        name: of the file in it
        folder: of the splits
    """
    lines: dict[str, list[str]] = {part: [] for part in TATOEBA_SPLITS}
    for number, line in enumerate(_read_zip_lines(archive_path, name), 1):
        english, tab, _ = line.partition("\t")
        if not line.strip():
            continue
        if not tab:
            raise DataError(f"{archive_path}: line {number:,} of {name} is no sentence, tab, translation.")
        lines[assign_split(english)].append(f"{line}\n")
    if not all(lines.values()):
        raise DataError(f"{archive_path}: {name} has {sum(map(len, lines.values())):,} lines, too few to be parted.")
    for part, kept in lines.items():
        (folder / f"{part}.tsv").write_text("".join(kept), encoding="utf-8", newline="\n")


def assign_split(english: str) -> str:
    """The split of an English sentence: the same for all its translations, whatever else the file has.

    Args:
        english: the sentence

    Example:
        >>> [assign_split(f"I have {number} dogs.") for number in ("two", 13, 24)]
        ['train', 'dev', 'test']
    """
    letters = "".join(filter(str.isalnum, english.lower()))
    number = int.from_bytes(hashlib.sha256(letters.encode()).digest()[:8], "big") % HELD_OUT_EVERY
    return TATOEBA_SPLITS[min(number, 2)]


def _read_zip_lines(archive_path: Path, name: str) -> Iterator[str]:
    try:
        with zipfile.ZipFile(archive_path) as archive, archive.open(name) as file:
            for number, line in enumerate(file, 1):
                try:
                    yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                except UnicodeDecodeError:
                    raise DataError(f"{archive_path}: line {number:,} of {name} is not UTF-8.") from None
    except KeyError:
        raise DataError(f"{archive_path} holds no {name}; what the site gives has changed.") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DataError(f"{archive_path} is not a whole zip file ({error}).") from None
