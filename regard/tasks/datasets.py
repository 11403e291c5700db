"""The data of recipes: folders, examples held out for validation, reports, and downloads with their checksums."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, cast

from regard.data.downloads import cache_dir, download
from regard.data.parallel import pluralize
from regard.data.sources import GeneratedBatches
from regard.errors import ConfigError, DataError, DownloadError
from regard.files import replace_path, sha256_of_file
from regard.tasks.task import DataSplits, LazyExamples

__all__ = [
    "DOWNLOAD", "HELD_OUT_EVERY", "EvalBatches", "HeldOutReport", "assign_split", "concatenate_examples",
    "describe_reports", "download_g2p", "download_multi30k", "download_multi30k_tok", "download_tatoeba",
    "find_data_folder", "find_file", "held_out", "not_held_out", "split_files", "write_splits",
]  # fmt: skip

DOWNLOAD = "download"  # in place of the folder


def find_data_folder(data_dir: str | None, contents: str, download: Callable[[], Path] | None = None) -> Path:
    """The folder of a recipe's data; ConfigError says what it must hold and how to get it.

    Args:
        data_dir: the option of the config
        contents: what the folder holds
        download: downloads the data and returns its folder
    """
    if data_dir == DOWNLOAD and download is not None:
        return download()
    if data_dir is None:
        other = f", or data_dir={DOWNLOAD} to fetch it" if download else ""
        raise ConfigError(f"the recipe needs its data: data_dir=FOLDER with {contents}{other}")
    if not (path := Path(data_dir)).is_dir():
        raise ConfigError(f"data_dir={data_dir}: there is no such folder; it should hold {contents}")
    return path


def find_file(directory: Path, stem: str) -> Path:
    """A file of this name, compressed or not.

    Args:
        directory: its folder
        stem: its name without .xz or .gz
    """
    for suffix in ("", ".xz", ".gz"):
        if (path := directory / f"{stem}{suffix}").is_file():
            return path
    return directory / stem  # the reader reports that it is missing


HELD_OUT_EVERY = 20  # one example of this many is held out


ItemT = TypeVar("ItemT")
ExamplesT = TypeVar("ExamplesT")
BatchT = TypeVar("BatchT")


def not_held_out(documents: Iterable[ItemT]) -> list[ItemT]:
    """The examples to train on: all but every twentieth.

    Args:
        documents: the examples

    Example:
        >>> len(not_held_out(range(1, 50)))
        47
    """
    return [one for place, one in enumerate(documents, 1) if place % HELD_OUT_EVERY]


def held_out(documents: Iterable[ItemT]) -> list[ItemT]:
    """The examples to validate with: every twentieth.

    Args:
        documents: the examples

    Example:
        >>> held_out(range(1, 50))
        [20, 40]
    """
    every = list(documents)
    if len(every) < HELD_OUT_EVERY:
        has = f"{documents} has {pluralize(len(every), 'example')}"
        raise DataError(f"{has}, too few to hold one of {HELD_OUT_EVERY} out; give validation files: --valid FILE")
    return every[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]


def concatenate_examples(cls: type[ExamplesT], examples: Any) -> ExamplesT:
    """Examples as one object of a class such as `RenderedScenes`, whose iteration yields objects of one row.

    Args:
        cls: the class, with a method `concatenate`
        examples: such an object, an iterable of them, or `LazyExamples` of either
    """
    loaded = examples.load() if isinstance(examples, LazyExamples) else examples
    if isinstance(loaded, cls):
        return loaded
    if not (rows := list(loaded)):
        raise DataError("there is nothing to evaluate: there are no examples")
    return cast(Any, cls).concatenate(rows)


def split_files(
    config: Any,
    open_files: Callable[[tuple[str, ...]], Iterable[ItemT]],
    convert: Callable[[Any], Any] = lambda contents: contents,
) -> DataSplits[Any]:
    """The examples in the files of a config; without validation files, every twentieth training example is held out.

    Args:
        config: `train_files`, `valid_files` and `test_files`
        open_files: returns the contents of files
        convert: turns contents into examples
    """

    def split(files: Iterable[ItemT], select: Callable[[Iterable[ItemT]], Any] = lambda files: files) -> Any:
        return LazyExamples(lambda: convert(select(files)))

    train = open_files(config.train_files)
    tests = {"test": split(open_files(config.test_files))} if config.test_files else {}
    paths = tuple(map(Path, (*config.train_files, *config.valid_files)))
    if config.valid_files:
        return DataSplits(split(train), split(open_files(config.valid_files)), tests, paths)
    return DataSplits(split(train, not_held_out), split(train, held_out), tests, paths)


class EvalBatches(list[BatchT]):
    """The batches of an evaluation, with the report of what was read.

    Args:
        batches: the batches
        report: with `as_dict()` and a sentence as `str`
    """

    def __init__(self, batches: Iterable[BatchT], report: Any):
        super().__init__(batches)
        self.report = report


@dataclass(frozen=True)
class HeldOutReport:
    """The report of a validation split that was held out of the training data.

    Args:
        report: what was read
        noun: what one example is
    """

    report: Any
    noun: str

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return self.report.as_dict()

    def __str__(self) -> str:
        return f"{self.report} Every twentieth {self.noun} was held out for it."


def describe_reports(config: Any, train: Any, valid: EvalBatches[Any], noun: str) -> dict[str, Any]:
    """The reports of the splits by name; generated batches have none.

    Args:
        config: its files say whether validation examples were held out of the training data
        train: batches to train on
        valid: batches to validate with
        noun: what one example is
    """
    reports = {} if isinstance(train, GeneratedBatches) else {"train": train.report}
    is_held_out = config.train_files and not config.valid_files
    return reports | {"valid": HeldOutReport(valid.report, noun) if is_held_out else valid.report}


MULTI30K_URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1"
G2P_URL = "https://raw.githubusercontent.com/sigmorphon/2021-task1/821bcdece5a47820872215969f275004b0abe80c/data"


def _read_checksums(*folders: str) -> dict[str, str]:
    """SHA-256 of the uncompressed text of the files in these folders: compressed files differ between programs."""
    lines = resources.files("regard.tasks").joinpath("checksums.txt").read_text(encoding="utf-8").splitlines()
    return {name: checksum for checksum, name in map(str.split, lines) if name.partition("/")[0] in folders}


MULTI30K_FILES, MULTI30K_TOK_FILES = _read_checksums("raw"), _read_checksums("tok")
G2P_FILES = _read_checksums("medium", "high")


def download_multi30k() -> Path:
    """The folder of Multi30k's raw text, downloaded if it is missing."""
    return _download_files("multi30k", MULTI30K_URL, MULTI30K_FILES)


def download_multi30k_tok() -> Path:
    """The folder of Multi30k, with its tokenized text in the folder tok."""
    return _download_files("multi30k", MULTI30K_URL, MULTI30K_TOK_FILES, subfolder="tok")


def download_g2p() -> Path:
    """The folder of SIGMORPHON 2021's words and sounds."""
    return _download_files("g2p", G2P_URL, G2P_FILES)


def _download_files(name: str, base_url: str, files: dict[str, str], subfolder: str = "") -> Path:
    folder = cache_dir() / name
    for path, checksum in files.items():
        download(f"{base_url}/{path}", checksum, folder / subfolder, checksum_unpacked=True)
    return folder


TATOEBA_URL = "https://www.manythings.org/anki"  # sentence pairs of tatoeba.org; the files grow from time to time
TATOEBA_LANGUAGES = {"zh": "cmn", "fr": "fra"}  # names of languages on that site
TATOEBA_SPLITS = ("dev", "test", "train")
CHECKSUM_FILE = "sha256"  # next to the splits
TATOEBA_HELD_OUT_EVERY = 50  # of this many English sentences, one goes to dev and one to test


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
            replace_path(partial_folder, splits)  # all three splits, or none
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
    for part, part_lines in lines.items():
        (folder / f"{part}.tsv").write_text("".join(part_lines), encoding="utf-8", newline="\n")


def assign_split(english: str) -> str:
    """The split of an English sentence: the same for all its translations, whatever else the file has.

    Args:
        english: the sentence

    Example:
        >>> [assign_split(f"I have {number} dogs.") for number in ("two", 13, 24)]
        ['train', 'dev', 'test']
    """
    letters = "".join(filter(str.isalnum, english.lower()))
    number = int.from_bytes(hashlib.sha256(letters.encode()).digest()[:8], "big") % TATOEBA_HELD_OUT_EVERY
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
