"""The documents of each recipe: what to train on, to choose by, and to judge by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from regard.data.documents import Document, DocumentFiles, line_error, parse_record
from regard.data.text_files import read_lines
from regard.errors import ConfigError
from regard.tasks.datasets import find_data_folder, find_file, held_out, not_held_out
from regard.tasks.text_classification.config import TextClassificationConfig

IMDB_HELD_OUT = 2500  # of IMDB's 25,000 for training, to choose the best weights by


LoadDocuments = Callable[[], Iterable[Document]]  # read when it is asked for


@dataclass(frozen=True)
class Shelves:
    """Where the documents come from: to train on, to choose by, and tests by name."""

    train: LoadDocuments
    valid: LoadDocuments
    tests: Mapping[str, LoadDocuments] = field(default_factory=dict)


def open_documents(paths: Iterable[str], config: TextClassificationConfig) -> DocumentFiles:
    """Documents in files that somebody names, with the columns of the settings."""
    columns = config.columns
    counted = bool(columns) and all(column.isdecimal() for column in columns)
    return DocumentFiles(
        tuple(paths), columns=tuple(int(column) for column in columns) if counted else columns
    )


def from_files(name: str, config: TextClassificationConfig) -> Shelves:
    """Files that somebody names, for the recipe of this name."""
    if not config.train_files:
        raise ConfigError(
            f"{name} needs files to train on: --train x.tsv, where each line is a label, a tab and a text"
        )
    train = open_documents(config.train_files, config)
    tests: dict[str, LoadDocuments] = {}
    if config.test_files:
        test = open_documents(config.test_files, config)
        tests = {"test": lambda: _drop_line_numbers(test)}
    if config.valid_files:
        valid = open_documents(config.valid_files, config)
        return Shelves(lambda: _drop_line_numbers(train), lambda: _drop_line_numbers(valid), tests)
    return Shelves(
        lambda: _drop_line_numbers(not_held_out(train)), lambda: _drop_line_numbers(held_out(train)), tests
    )


def imdb(config: TextClassificationConfig) -> Shelves:
    """Film reviews: Maas et al. (2011). Of those for training, 2,500 are held out, the same ones for every seed."""
    root = find_data_folder(config.data_dir, "train.tsv and test.tsv of IMDB: label, tab, rating, tab, text")
    train, test = (_open_labeled(root, f"{part}.tsv", (0, 2), escaped=True) for part in ("train", "test"))

    def split(held: bool) -> list[Document]:
        every = _drop_line_numbers(train)
        chosen = set(Random("imdb").sample(range(len(every)), min(IMDB_HELD_OUT, len(every) // 2)))
        return [document for place, document in enumerate(every) if (place in chosen) == held]

    return Shelves(lambda: split(False), lambda: split(True), {"test": lambda: _drop_line_numbers(test)})


def movie_reviews(config: TextClassificationConfig) -> Shelves:
    """Film reviews split into sentences, in ten folds: Pang and Lee (2004)."""
    root = find_data_folder(config.data_dir, "movie_reviews.jsonl with the keys label, fold and sentences")
    path, test, valid = find_file(root, "movie_reviews.jsonl"), config.test_fold, (config.test_fold + 1) % 10

    def part(wanted: Callable[[int], bool]) -> LoadDocuments:
        return lambda: [document for fold, document in _read_folds(path) if wanted(fold)]

    tests = {"test": part(lambda fold: fold == test)}
    return Shelves(part(lambda fold: fold not in (test, valid)), part(lambda fold: fold == valid), tests)


def chnsenticorp(config: TextClassificationConfig) -> Shelves:
    """Chinese reviews of hotels, computers and books: Tan and Zhang (2008).

    A quarter of its test is in its training part, word for word. The default trains without those texts; with
    include_test_texts=on the training is the usual one, and the test `unseen` tells what it is worth.
    """
    root = find_data_folder(
        config.data_dir, "train.tsv, train.nodup.tsv, dev.tsv and test.tsv: text, tab, label"
    )
    usual, clean, dev, test = (
        _open_labeled(root, f"{name}.tsv", (1, 0)) for name in ("train", "train.nodup", "dev", "test")
    )

    def unseen() -> list[Document]:
        seen = {document.text for document in _drop_line_numbers(usual)}
        return [document for document in _drop_line_numbers(test) if document.text not in seen]

    chosen = usual if config.include_test_texts else clean
    return Shelves(
        lambda: _drop_line_numbers(chosen),
        lambda: _drop_line_numbers(dev),
        {"test": lambda: _drop_line_numbers(test), "unseen": unseen},
    )


def _open_labeled(root: Path, name: str, columns: tuple[int, int], escaped: bool = False) -> DocumentFiles:
    return DocumentFiles([find_file(root, name)], columns=columns, escaped=escaped)


def _drop_line_numbers(documents: Iterable[tuple[Document, int]]) -> list[Document]:
    return [document for document, _ in documents]


def _read_folds(path: Path) -> Iterator[tuple[int, Document]]:
    """The documents with their folds, which are a key of their own."""
    for (document, number), line in zip(DocumentFiles([path]), read_lines(path), strict=True):
        fold = parse_record(path, number, line).get("fold")
        if type(fold) is not int or not 0 <= fold <= 9:
            there = "no fold" if fold is None else f"fold {fold!r}"
            raise line_error(path, number, f"{there}, but each document is in one of 0 to 9; mend the line")
        yield fold, document
