"""The documents of each recipe of text classification."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from random import Random

from regard.data.documents import Document, DocumentFiles
from regard.data.text_files import line_error, parse_record, read_lines
from regard.errors import ConfigError
from regard.tasks.datasets import find_data_folder, find_file, split_files
from regard.tasks.task import DataSplits, LazyExamples
from regard.tasks.text_classification.config import TextClassificationConfig

__all__ = ["chnsenticorp", "documents", "from_files", "imdb", "mixed", "movie_reviews", "open_documents"]

NUM_IMDB_HELD_OUT = 2500  # of IMDB's 25,000 training reviews, to validate with


def open_documents(paths: Iterable[str], config: TextClassificationConfig) -> DocumentFiles:
    """Documents in files.

    Args:
        paths: the files
        config: the columns of label and text
    """
    columns = config.columns
    is_numbered = bool(columns) and all(column.isdecimal() for column in columns)
    return DocumentFiles(tuple(paths), columns=tuple(int(column) for column in columns) if is_numbered else columns)


def from_files(config: TextClassificationConfig, recipe: str) -> DataSplits[Document]:
    """The files in the options of a recipe.

    Args:
        config: the files, and their columns of label and text
        recipe: its name, for errors
    """
    if not config.train_files:
        raise ConfigError(
            f"{recipe} needs files to train on: --train x.tsv, where each line is a label, a tab and a text"
        )
    return split_files(config, lambda paths: open_documents(paths, config), _drop_line_numbers)


documents, mixed = partial(from_files, recipe="documents"), partial(from_files, recipe="mixed")


def imdb(config: TextClassificationConfig) -> DataSplits[Document]:
    """English film reviews; 2,500 training reviews, the same for every seed, are held out for validation.

    Args:
        config: the folder of the data

    Reference: Maas et al. (2011), "Learning Word Vectors for Sentiment Analysis".
    """
    root = find_data_folder(config.data_dir, "train.tsv and test.tsv of IMDB: label, tab, rating, tab, text")
    train, test = (_open_labeled(root, f"{name}.tsv", (0, 2), escaped=True) for name in ("train", "test"))

    def split(is_valid: bool) -> list[Document]:
        reviews = _drop_line_numbers(train)
        count = min(NUM_IMDB_HELD_OUT, len(reviews) // 2)
        held_out = set(Random("imdb").sample(range(len(reviews)), count))
        return [review for index, review in enumerate(reviews) if (index in held_out) == is_valid]

    return DataSplits(LazyExamples(lambda: split(False)), LazyExamples(lambda: split(True)), {"test": _lazy(test)})


def movie_reviews(config: TextClassificationConfig) -> DataSplits[Document]:
    """English film reviews, split into sentences, in ten folds.

    Args:
        config: the folder of the data, and the test fold

    Reference: Pang and Lee (2004), "A Sentimental Education".
    """
    root = find_data_folder(config.data_dir, "movie_reviews.jsonl with the keys label, fold and sentences")
    path = find_file(root, "movie_reviews.jsonl")
    test_fold, valid_fold = config.test_fold, (config.test_fold + 1) % 10

    def select(is_wanted: Callable[[int], bool]) -> LazyExamples[Document]:
        return LazyExamples(lambda: [review for fold, review in _read_folds(path) if is_wanted(fold)])

    return DataSplits(
        select(lambda fold: fold not in (test_fold, valid_fold)),
        select(lambda fold: fold == valid_fold),
        {"test": select(lambda fold: fold == test_fold)},
    )


def chnsenticorp(config: TextClassificationConfig) -> DataSplits[Document]:
    """Chinese reviews of hotels, computers and books.

    A quarter of the test texts also occur in the training file, word for word. By default they are left out of the
    training; with include_test_texts=on they are not, as in published results, and the test `unseen` has the others.

    Args:
        config: the folder of the data, and `include_test_texts`

    Reference: Tan and Zhang (2008), "An empirical study of sentiment analysis for Chinese documents".
    """
    root = find_data_folder(config.data_dir, "train.tsv, train.nodup.tsv, dev.tsv and test.tsv: text, tab, label")
    full, clean, valid, test = (
        _open_labeled(root, f"{name}.tsv", (1, 0)) for name in ("train", "train.nodup", "dev", "test")
    )

    def select_unseen() -> list[Document]:
        train_texts = {document.text for document in _drop_line_numbers(full)}
        return [document for document in _drop_line_numbers(test) if document.text not in train_texts]

    train = full if config.include_test_texts else clean
    return DataSplits(_lazy(train), _lazy(valid), {"test": _lazy(test), "unseen": LazyExamples(select_unseen)})


def _open_labeled(root: Path, name: str, columns: tuple[int, int], escaped: bool = False) -> DocumentFiles:
    return DocumentFiles([find_file(root, name)], columns=columns, escaped=escaped)


def _lazy(files: DocumentFiles) -> LazyExamples[Document]:
    return LazyExamples(lambda: _drop_line_numbers(files))


def _drop_line_numbers(items: Iterable[tuple[Document, int]]) -> list[Document]:
    return [document for document, _ in items]


def _read_folds(path: Path) -> Iterator[tuple[int, Document]]:
    """The documents with their folds, which are a key of their own."""
    for (document, number), line in zip(DocumentFiles([path]), read_lines(path), strict=True):
        fold = parse_record(path, number, line).get("fold")
        if type(fold) is not int or not 0 <= fold <= 9:
            problem = "no fold" if fold is None else f"fold {fold!r}"
            raise line_error(path, number, f"{problem}, but the fold of a document must be 0 to 9; correct the line")
        yield fold, document
