"""The documents of each recipe: what to train on, to choose by, and to judge by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from regard.data._lines import lines
from regard.data.documents import Document, Documents, record, wrong
from regard.errors import ConfigError
from regard.recipes._files import folder, named
from regard.recipes._held import held_out, without_held
from regard.recipes.documents.settings import Classification

HELD_OUT = 2500  # of IMDB's 25,000 for training, to choose the best weights by
Part = Callable[[], Iterable[Document]]  # read when it is asked for


@dataclass(frozen=True)
class Shelves:
    """Where the documents come from: to train on, to choose by, and tests by name."""

    train: Part
    valid: Part
    tests: Mapping[str, Part] = field(default_factory=dict)


def files(paths: Iterable[str], settings: Classification) -> Documents:
    """Documents in files that somebody names, with the columns of the settings."""
    columns = settings.columns
    counted = bool(columns) and all(column.isdecimal() for column in columns)
    return Documents(tuple(paths), columns=tuple(int(column) for column in columns) if counted else columns)


def from_files(name: str, settings: Classification) -> Shelves:
    """Files that somebody names, for the recipe of this name."""
    if not settings.train:
        raise ConfigError(
            f"{name} needs files to train on: --train x.tsv, where each line is a label, a tab and a text"
        )
    train = files(settings.train, settings)
    tests: dict[str, Part] = {}
    if settings.test:
        test = files(settings.test, settings)
        tests = {"test": lambda: _all(test)}
    if settings.valid:
        valid = files(settings.valid, settings)
        return Shelves(lambda: _all(train), lambda: _all(valid), tests)
    return Shelves(lambda: _all(without_held(train)), lambda: _all(held_out(train)), tests)


def imdb(settings: Classification) -> Shelves:
    """Film reviews: Maas et al. (2011). Of those for training, 2,500 are held out, the same ones for every seed."""
    root = folder(settings.data, "train.tsv and test.tsv of IMDB: label, tab, rating, tab, text")
    train, test = (_labeled(root, f"{part}.tsv", (0, 2), escaped=True) for part in ("train", "test"))

    def split(held: bool) -> list[Document]:
        every = _all(train)
        chosen = set(Random("imdb").sample(range(len(every)), min(HELD_OUT, len(every) // 2)))
        return [document for place, document in enumerate(every) if (place in chosen) == held]

    return Shelves(lambda: split(False), lambda: split(True), {"test": lambda: _all(test)})


def movie_reviews(settings: Classification) -> Shelves:
    """Film reviews split into sentences, in ten folds: Pang and Lee (2004)."""
    root = folder(settings.data, "movie_reviews.jsonl with the keys label, fold and sentences")
    path, test, valid = named(root, "movie_reviews.jsonl"), settings.fold, (settings.fold + 1) % 10

    def part(wanted: Callable[[int], bool]) -> Part:
        return lambda: [document for fold, document in _folds(path) if wanted(fold)]

    tests = {"test": part(lambda fold: fold == test)}
    return Shelves(part(lambda fold: fold not in (test, valid)), part(lambda fold: fold == valid), tests)


def chnsenticorp(settings: Classification) -> Shelves:
    """Chinese reviews of hotels, computers and books: Tan and Zhang (2008).

    A quarter of its test is in its training part, word for word. The default trains without those texts; with
    leak=on the training is the usual one, and the test `unseen` tells what it is worth.
    """
    root = folder(settings.data, "train.tsv, train.nodup.tsv, dev.tsv and test.tsv: text, tab, label")
    usual, clean, dev, test = (
        _labeled(root, f"{name}.tsv", (1, 0)) for name in ("train", "train.nodup", "dev", "test")
    )

    def unseen() -> list[Document]:
        seen = {document.text for document in _all(usual)}
        return [document for document in _all(test) if document.text not in seen]

    chosen = usual if settings.leak else clean
    return Shelves(lambda: _all(chosen), lambda: _all(dev), {"test": lambda: _all(test), "unseen": unseen})


def _labeled(root: Path, name: str, columns: tuple[int, int], escaped: bool = False) -> Documents:
    return Documents([named(root, name)], columns=columns, escaped=escaped)


def _all(documents: Iterable[tuple[Document, int]]) -> list[Document]:
    return [document for document, _ in documents]


def _folds(path: Path) -> Iterator[tuple[int, Document]]:
    """The documents with their folds, which are a key of their own."""
    for (document, number), line in zip(Documents([path]), lines(path), strict=True):
        fold = record(path, number, line).get("fold")
        if type(fold) is not int or not 0 <= fold <= 9:
            there = "no fold" if fold is None else f"fold {fold!r}"
            raise wrong(path, number, f"{there}, but each document is in one of 0 to 9; mend the line")
        yield fold, document
