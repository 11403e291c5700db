"""Labeled documents from .tsv, .csv and .jsonl files, and as sentences of words within limits."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.data import text_files
from regard.data.parallel import pluralize
from regard.data.segmentation import SPLITTERS, split_sentences
from regard.data.text_files import Paths, TextFiles, file_type, line_error, read_lines, select_columns
from regard.errors import DataError, UsageError, require_choice

__all__ = ["Document", "DocumentFiles", "DocumentSplitter", "SplitDocument", "Truncation", "leading_spaces"]

OVERFLOW_CHOICES = ("split", "truncate")
FILE_TYPES = (".tsv", ".csv", ".jsonl")
DEFAULT_COLUMNS = ("label", "text")
SENTENCES_KEY = "sentences"  # the key of a .jsonl whose texts are split already
SplitDocument = list[list[str]]  # sentences of words


@dataclass(frozen=True)
class Document:
    """A labeled text.

    Args:
        text: the text, or its sentences if it is split already.
        label: the class.
        file: the file it was read from; not compared.
        line: its line, counted from 1, 0 if it was not read from a file; not compared.

    Example:
        >>> Document(("Fine.", "Really."), "pos").full_text
        'Fine.\\nReally.'
    """

    text: str | tuple[str, ...]
    label: str
    file: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)

    @property
    def full_text(self) -> str:
        """The text as one string, with a line for each sentence of a text that is split already."""
        return self.text if isinstance(self.text, str) else "\n".join(self.text)


class DocumentFiles(TextFiles):
    """Labeled documents from files; every iteration reads the files again.

        a.tsv      columns[0] is the label, columns[1] the text, counted from 0; no quoting, no header
        a.csv      columns are names in the first row, or numbers counted from 0 without such a row; quotes as usual
        a.jsonl    an object per line; columns are keys; without a text, a list of "sentences"

    Each file may be compressed, as .gz or .xz. Without `columns`, a .tsv must have exactly these two, and no row may
    have more columns than the first: a tab or comma inside a text would cut it off.

    Args:
        paths: one file or more, read one after the other.
        columns: the columns of label and text: numbers, or names for .csv and .jsonl.
        escaped: whether a line break inside a text of a .tsv is written as the two characters \\n.

    Returns:
        Iterating yields (document, line number), the number counted from 1. A text may be empty; `DocumentBatches`
        leaves such documents out and counts them.

    Raises:
        DataError: a file or line cannot be read; the message names file, line and remedy.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a.tsv")
        >>> _ = path.write_text("pos\\tA fine film.\\n")
        >>> [(document.label, document.text, line) for document, line in DocumentFiles([path])]
        [('pos', 'A fine film.', 1)]
    """

    def __init__(self, paths: Paths, *, columns: Sequence[int | str] = (), escaped: bool = False) -> None:
        super().__init__(paths)
        self.escaped, self.columns = escaped, tuple(columns)
        if self.columns and len(self.columns) != 2:
            raise DataError(f"columns must be two, of the label and of the text, not {len(self.columns)}.")
        has_numbers = all(isinstance(column, int) and column >= 0 for column in self.columns)
        for path in self.paths:
            if file_type(path) not in FILE_TYPES:
                raise DataError(f"{path} must be a .tsv, .csv or .jsonl, compressed or not.")
            if file_type(path) == ".tsv" and not has_numbers:
                raise DataError(f"{path} has no names for its columns; give their numbers, counted from 0: 0,1.")

    def __iter__(self) -> Iterator[tuple[Document, int]]:
        for path in self.paths:
            for document in self._read_jsonl(path) if file_type(path) == ".jsonl" else self._read_table(path):
                yield document, document.line

    def _read_table(self, path: Path) -> Iterator[Document]:
        """Read the columns of label and text; a line must have as many columns as the first one, or as by default."""
        is_tsv = file_type(path) == ".tsv"
        columns: Sequence[Any] = self.columns or ((0, 1) if is_tsv else DEFAULT_COLUMNS)
        limit = 2 if is_tsv and not self.columns else 0
        for line_number, fields in (_read_tsv if is_tsv else _read_csv)(path):
            limit = limit or len(fields)
            if str in map(type, columns):  # the first row names the columns
                columns = _find_columns(path, fields, columns)
                continue
            label, text = select_columns(fields, columns, path, line_number) if fields else ("", "")
            if len(fields) > limit:  # a text would be cut off
                remedy = "remove the tabs from the text" if is_tsv else "put the text in quotes"
                problem = f"{pluralize(len(fields), 'column')}, but there must be {limit}; {remedy}"
                raise line_error(path, line_number, f"{problem}, or choose the columns of label and text")
            yield self._make_document(path, line_number, label, text)

    def _read_jsonl(self, path: Path) -> Iterator[Document]:
        label, text = map(str, self.columns or DEFAULT_COLUMNS)
        for line_number, line in enumerate(read_lines(path), 1):
            record = text_files.parse_record(path, line_number, line) if line.strip() else {label: "", text: ""}
            key = SENTENCES_KEY if text not in record and SENTENCES_KEY in record else text
            values = [text_files.get_value(record, name, path, line_number) for name in (label, key)]
            yield self._make_document(path, line_number, *values)

    def _make_document(self, path: Path, line_number: int, label: Any, text: Any) -> Document:
        parts = text if isinstance(text, list) else [text]
        if others := [part for part in parts if not isinstance(part, str)]:
            problem = f"the text is {text_files.json_type_name(others[0])}, but must be text or a list of sentences"
            raise line_error(path, line_number, problem)
        for part in parts:
            text_files.check_characters(part, "the text", path, line_number)
        if isinstance(label, bool) or not isinstance(label, str | int):
            problem = f"the label is {text_files.json_type_name(label)}, but must be text or a whole number"
            raise line_error(path, line_number, problem)
        if not str(label).strip() and any(part.strip() for part in parts):
            raise line_error(path, line_number, "the text has no label; add one, or remove the line")
        if self.escaped:
            parts = [part.replace("\\n", "\n") for part in parts]
        content = tuple(parts) if isinstance(text, list) else parts[0]
        return Document(content, str(label).strip(), str(path), line_number)


def _read_tsv(path: Path) -> Iterator[tuple[int, list[str]]]:
    return enumerate((line.split("\t") if line.strip() else [] for line in read_lines(path)), 1)


def _read_csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((f"{line}\n" for line in read_lines(path)), strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise line_error(path, reader.line_num, f"not CSV ({error}); correct the quotes, or use a .jsonl") from None


def _find_columns(path: Path, row: list[str], columns: Sequence[str]) -> list[int]:
    names = [name.strip() for name in row]
    if missing := [column for column in columns if column not in names]:
        problem = f"no column {missing[0]!r} in the first row, only {', '.join(map(repr, names[:8]))}"
        raise line_error(path, 1, f"{problem}; name the columns of label and text, or give their numbers")
    return [names.index(column) for column in columns]


@dataclass(frozen=True)
class Truncation:
    """What a document has beyond the limits.

    Args:
        long_sentences: sentences over `max_words`.
        omitted_words: words of them that are left out.
        omitted_sentences: sentences after `max_sentences`, which are left out.

    Example:
        >>> print(Truncation(long_sentences=1, omitted_words=2, omitted_sentences=1))
        1 sentence and 2 words of long sentences
    """

    long_sentences: int = 0
    omitted_words: int = 0
    omitted_sentences: int = 0

    def __bool__(self) -> bool:
        return bool(self.omitted_words or self.omitted_sentences)

    def __str__(self) -> str:
        sentences = pluralize(self.omitted_sentences, "sentence") if self.omitted_sentences else ""
        words = f"{pluralize(self.omitted_words, 'word')} of long sentences" if self.omitted_words else ""
        return " and ".join(filter(None, (sentences, words))) or "nothing"


@dataclass(frozen=True)
class DocumentSplitter:
    """Splits texts into sentences of words, within limits.

    Args:
        unit: `word` (punctuation separate) or `char`.
        max_words: the limit on the words of a sentence.
        max_sentences: the limit on the sentences of a document; the first ones are kept.
        overflow: `split` a longer sentence into several, or `truncate` it.

    Example:
        >>> splitter = DocumentSplitter(max_words=3, max_sentences=2, overflow="truncate")
        >>> document, truncation = splitter.split("One. A very long one. And more.")
        >>> document
        [['One', '.'], ['A', 'very', 'long']]
        >>> truncation
        Truncation(long_sentences=1, omitted_words=2, omitted_sentences=1)
    """

    unit: str = "word"
    max_words: int = 50
    max_sentences: int = 40
    overflow: str = "split"

    def __post_init__(self) -> None:
        require_choice("unit", self.unit, SPLITTERS)
        require_choice("overflow", self.overflow, OVERFLOW_CHOICES)
        if min(self.max_words, self.max_sentences) < 1:
            raise UsageError(f"max_words={self.max_words} and max_sentences={self.max_sentences} must be at least 1.")

    def split(self, text: str | Sequence[str]) -> tuple[SplitDocument, Truncation]:
        """Split a text.

        Args:
            text: the text, or its sentences, which stay as they are.

        Returns:
            The sentences of words, and what was left out.
        """
        limit, num_long, num_words = self.max_words, 0, 0
        sentences: SplitDocument = []
        for sentence in split_sentences(text) if isinstance(text, str) else text:
            words = SPLITTERS[self.unit](sentence)
            num_long += len(words) > limit
            if self.overflow == "truncate":
                num_words += max(len(words) - limit, 0)
                words = words[:limit]
            sentences += [words[start : start + limit] for start in range(0, len(words), limit)]
        num_omitted = max(len(sentences) - self.max_sentences, 0)
        return sentences[: self.max_sentences], Truncation(num_long, num_words, num_omitted)


def leading_spaces(text: str | Sequence[str], document: SplitDocument) -> list[list[bool]]:
    """Find the words of a split document that have a space before them.

    Args:
        text: the text, or its sentences.
        document: its sentences of words, from `DocumentSplitter`.

    Returns:
        For each word, whether there is a space before it.

    Example:
        >>> leading_spaces("It's well-made.", [["It's", "well", "-", "made", "."]])
        [[False, True, False, False, False]]
    """
    full_text, end = text if isinstance(text, str) else "\n".join(text), 0
    spaces: list[list[bool]] = []
    for sentence in document:
        spaces.append([])
        for word in sentence:
            start = max(full_text.find(word, end), end)
            spaces[-1].append(full_text[end:start].strip() != full_text[end:start])
            end = start + len(word)
    return spaces
