"""Parallel text from files, and the report of what became of each pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest

from regard.data import text_files
from regard.data.text_files import Paths, TextFiles, line_error, read_lines, select_columns
from regard.data.vocabulary import UNK_ID
from regard.errors import DataError

__all__ = [
    "DataReport",
    "ParallelFiles",
    "SentencePair",
    "TextReport",
    "describe_unknown",
    "format_line_numbers",
    "pluralize",
]

Links = tuple[tuple[int, int], ...]
MAX_LINE_NUMBERS = 3  # line numbers that a report keeps of each reason, enough to find an example


@dataclass(frozen=True)
class SentencePair:
    """A sentence and its translation, with word alignment links where they are known.

    A link (i, j) aligns word i of the source with word j of the target, counted from 0; for text split into
    characters, positions count characters.

    Args:
        source: the sentence.
        target: its translation.
        sure_links: links that every correct alignment has.
        possible_links: links that a correct alignment may have (Och and Ney 2003).

    Example:
        >>> SentencePair("das Haus", "the house", ((0, 0), (1, 1))).sure_links
        ((0, 0), (1, 1))
    """

    source: str
    target: str
    sure_links: Links | None = None
    possible_links: Links | None = None


class ParallelFiles(TextFiles):
    """Sentence pairs from files; every iteration reads the files again.

        a.en a.de          two files: line i of both is pair i (a third file may hold gold links)
        a.tsv              one file: columns[0] and columns[1], counted from 0; no quoting, no header;
                           without `columns` the first two, and then every line must have as many as the first
        a.jsonl            one file: an object per line, keys[0] and keys[1]

    Each file may be compressed, as .gz or .xz. A third column or key is read as gold links: "0-0 1-2" are sure links,
    "1?3" is a possible link. Sides may be empty; `PairEncoder` leaves such pairs out and counts them.

    Args:
        paths: one file, or two or three files with corresponding lines.
        columns: the columns of a .tsv to read; `None` reads the first two.
        keys: the keys of a .jsonl to read.

    Returns:
        Iterating yields (pair, line number), the number counted from 1.

    Raises:
        DataError: a file or line cannot be read; the message names file, line and remedy.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp(), "a.tsv")
        >>> _ = path.write_text("das Haus\\tthe house\\n")
        >>> [(pair.source, pair.target, line) for pair, line in ParallelFiles([path])]
        [('das Haus', 'the house', 1)]
    """

    def __init__(
        self, paths: Paths, *, columns: Sequence[int] | None = None, keys: Sequence[str] = ("source", "target")
    ) -> None:
        super().__init__(paths)
        self.columns, self.keys = (0, 1) if columns is None else tuple(columns), tuple(keys)
        self.has_columns = columns is not None
        if len(self.paths) not in (1, 2, 3):
            raise DataError(f"Parallel text is one .tsv, one .jsonl or two plain files, not {len(self.paths)} files.")
        self.file_type = text_files.file_type(self.paths[0]) if len(self.paths) == 1 else "plain"
        if self.file_type not in ("plain", ".tsv", ".jsonl"):
            raise DataError(f"{self.paths[0]} is a single file, so it must be a .tsv or .jsonl; or name two files.")
        if len(self.columns) not in (2, 3) or min(self.columns) < 0:
            raise self._option_error("columns", self.columns, "two numbers from 0 on (three with links), such as 0,1")
        if len(self.keys) not in (2, 3):
            raise self._option_error("keys", self.keys, "two names (three with links), such as source,target")
        for name, values in (("columns", self.columns), ("keys", self.keys)):
            if len(set(values)) < len(values):
                raise self._option_error(name, values, "different ones for source and target")

    def __iter__(self) -> Iterator[tuple[SentencePair, int]]:
        for line_number, fields in enumerate(self._read_fields(), 1):
            yield SentencePair(fields[0], fields[1], *self._parse_links(fields, line_number)), line_number

    def count_lines(self) -> int:
        """Count the lines; files with corresponding lines must have the same number.

        Returns:
            The number of lines of each file.

        Raises:
            DataError: the files differ in length, or are empty.
        """
        counts = [text_files.count_lines(path) for path in self.paths]
        if len(set(counts)) > 1:
            each = ", ".join(f"{path} has {n:,} lines" for path, n in zip(self.paths, counts, strict=True))
            longest = self.paths[counts.index(max(counts))]
            raise DataError(f"{each}: {longest} is longer, so its lines do not belong to the same sentences.")
        if counts[0] == 0:
            raise DataError(f"{self.paths[0]} is empty: it must have one sentence per line.")
        return counts[0]

    def _read_fields(self) -> Iterator[Sequence[str]]:
        if self.file_type == "plain":
            for sides in zip_longest(*map(read_lines, self.paths)):
                if None in sides:
                    self.count_lines()  # raises an error that names both counts
                    raise DataError(f"{self} changed while they were read; start again.")
                yield sides
            return
        first: tuple[int, int] | None = None  # the number of the first line, and of its columns
        for line_number, line in enumerate(read_lines(self.paths[0]), 1):
            if not line.strip():
                yield "", ""  # a blank line is an empty pair
            elif self.file_type == ".jsonl":
                record = text_files.parse_record(self.paths[0], line_number, line)
                yield [text_files.get_text(record, key, self.paths[0], line_number) for key in self.keys]
            else:
                fields = line.split("\t")
                first = first or (line_number, len(fields))
                selected = select_columns(fields, self.columns, self.paths[0], line_number)
                if len(fields) != first[1] and not self.has_columns:
                    problem = f"{pluralize(len(fields), 'column')}, but line {first[0]} has {first[1]}"
                    raise line_error(self.paths[0], line_number, f"{problem}; correct the line or choose columns")
                yield selected

    def _parse_links(self, fields: Sequence[str], line_number: int) -> tuple[Links | None, Links | None]:
        if len(fields) < 3:
            return None, None
        links: dict[str, list[tuple[int, int]]] = {"-": [], "?": []}
        for link in fields[2].split():
            left, mark, right = link.partition("?" if "?" in link else "-")
            if not (left.isdecimal() and right.isdecimal() and len(link) < 20):
                problem = f"invalid link {link[:40]!r}; write 0-1 (sure) or 0?1 (possible)"
                if len(self.paths) == 3:
                    problem = problem.replace(";", "; the third file has alignment links:") + ", or leave it out"
                raise line_error(self.paths[-1], line_number, problem)
            links[mark].append((int(left), int(right)))
        return tuple(links["-"]), tuple(links["?"])

    def _option_error(self, name: str, values: Sequence[object], expected: str) -> DataError:
        return DataError(f"{self}: {name} must be {expected}, not {','.join(map(str, values)) or 'none'}.")


@dataclass
class TextReport:
    """Base of the reports of text that was read; `str` makes a sentence of the counts.

    Example:
        >>> DataReport(read=1).as_dict()["read"]
        1
    """

    def as_dict(self) -> dict[str, object]:
        """Return the fields as plain values, for JSON.

        Returns:
            A dictionary of the fields.
        """
        return asdict(self)


@dataclass
class DataReport(TextReport):
    """Counts of the pairs that were read and used, and the reasons why others were not.

    Args:
        max_length: the limit on the tokens of a sentence, `None` without a limit.
        overflow: what happens to longer sentences: `drop`, `truncate` or `error`.
        read: pairs that were read.
        used: pairs that are used.
        empty: pairs with an empty side, which are left out.
        empty_lines: line numbers of the first of them.
        too_long: pairs over `max_length`.
        too_long_lines: line numbers of the first of them.
        tokens: tokens of the pairs that are used.
        unknown: of these, tokens that are not in the vocabulary.
        is_generated: whether the pairs are the first of an endless generator, without line numbers.

    Example:
        >>> report = DataReport(max_length=50, overflow="drop")
        >>> report.count_pair("used"), report.count_pair("empty", line=2), report.count_pair("dropped", line=7)
        (None, None, None)
        >>> print(report)
        3 pairs read, 1 used; 1 with an empty side left out (line 2); 1 over 50 tokens left out (line 7).
        >>> print(DataReport(read=3, used=3, tokens=20, unknown=1))
        3 pairs read, 3 used; 1 of 20 tokens (5 %) is not in the vocabulary.
    """

    max_length: int | None = None
    overflow: str = "drop"
    read: int = 0
    used: int = 0
    empty: int = 0
    empty_lines: list[int] = field(default_factory=list)
    too_long: int = 0
    too_long_lines: list[int] = field(default_factory=list)
    tokens: int = 0
    unknown: int = 0
    is_generated: bool = False

    def count_pair(self, outcome: str, line: int = 0) -> None:
        """Count one pair.

        Args:
            outcome: `used`, `empty`, `dropped` (too long, left out) or `truncated` (too long, used in part).
            line: the line number of the pair.
        """
        self.read += 1
        self.used += outcome in ("used", "truncated")
        if outcome == "empty":
            self.empty += 1
            self.empty_lines += [line] * (len(self.empty_lines) < MAX_LINE_NUMBERS)
        elif outcome in ("dropped", "truncated"):
            self.too_long += 1
            self.too_long_lines += [line] * (len(self.too_long_lines) < MAX_LINE_NUMBERS)

    def count_tokens(self, *sides: Sequence[int]) -> None:
        """Count the tokens of a pair that is used, and those among them that are unknown.

        Args:
            sides: the token ids of each side.
        """
        self.tokens += sum(map(len, sides))
        self.unknown += sum(side.count(UNK_ID) for side in sides)

    def __str__(self) -> str:
        verb = "generated first" if self.is_generated else "read"
        parts = [f"{pluralize(self.read, 'pair')} {verb}, {self.used:,} used"]
        if self.empty:
            lines = self._format_lines(self.empty_lines, self.empty)
            parts.append(f"{self.empty:,} with an empty side left out{lines}")
        if self.too_long:
            outcome = "truncated" if self.overflow == "truncate" else "left out"
            lines = self._format_lines(self.too_long_lines, self.too_long)
            parts.append(f"{self.too_long:,} over {self.max_length:,} tokens {outcome}{lines}")
        if self.unknown:
            parts.append(describe_unknown(self.unknown, self.tokens, "token"))
        return "; ".join(parts) + "."

    def _format_lines(self, line_numbers: list[int], total: int) -> str:
        return "" if self.is_generated else f" ({format_line_numbers(line_numbers, total)})"


def pluralize(number: int, noun: str) -> str:
    """Format a count with its noun.

    Args:
        number: the count.
        noun: the noun in the singular; the plural appends an s.

    Returns:
        The text.

    Example:
        >>> pluralize(1, "document"), pluralize(2000, "document")
        ('1 document', '2,000 documents')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def describe_unknown(unknown: int, total: int, noun: str) -> str:
    """Say how many tokens or words a vocabulary does not have.

    Args:
        unknown: how many it does not have.
        total: how many there are.
        noun: what they are, in the singular.

    Example:
        >>> describe_unknown(1, 20, "token")
        '1 of 20 tokens (5 %) is not in the vocabulary'
    """
    verb = "is" if unknown == 1 else "are"
    return f"{unknown:,} of {pluralize(total, noun)} ({100 * unknown / total:.2g} %) {verb} not in the vocabulary"


def format_line_numbers(line_numbers: list[int], total: int) -> str:
    """Format the first line numbers of `total` lines.

    Args:
        line_numbers: the numbers to list.
        total: the number of lines, at least `len(line_numbers)`.

    Returns:
        The text.

    Example:
        >>> format_line_numbers([2, 5], 3)
        'lines 2, 5, ...'
    """
    more = ", ..." if total > len(line_numbers) else ""
    return f"line{'s' * (total > 1)} {', '.join(map(str, line_numbers))}{more}"
