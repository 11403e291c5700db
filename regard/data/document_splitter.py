"""Documents as sentences of words, within limits; everything that is left out is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from regard.data.parallel import MAX_LINE_NUMBERS, format_line_numbers, pluralize
from regard.data.segmentation import SPLITTERS, split_sentences
from regard.errors import UsageError

__all__ = ["DocumentReport", "DocumentSplitter", "SplitDocument", "Truncation", "leading_spaces"]

OVERFLOW_CHOICES = ("split", "truncate")
SplitDocument = list[list[str]]  # sentences of words


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
        parts = []
        if self.omitted_sentences:
            parts.append(pluralize(self.omitted_sentences, "sentence"))
        if self.omitted_words:
            parts.append(f"{pluralize(self.omitted_words, 'word')} of long sentences")
        return " and ".join(parts) or "nothing"


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
        for name, value, choices in (("unit", self.unit, SPLITTERS), ("overflow", self.overflow, OVERFLOW_CHOICES)):
            if value not in choices:
                raise UsageError(f"invalid value {value!r} for {name}: must be one of {', '.join(choices)}.")
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


@dataclass
class DocumentReport:
    """Counts of the documents that were read and used, and of what was left out.

    Args:
        max_words: the limit on the words of a sentence.
        max_sentences: the limit on the sentences of a document.
        overflow: what happens to longer sentences: `split` or `truncate`.
        read: documents that were read.
        used: documents that are used.
        words: their words.
        empty: empty documents, which are left out.
        empty_lines: line numbers of the first of them.
        long_sentences: sentences over `max_words`.
        omitted_words: words of them that are left out.
        long_documents: documents over `max_sentences`.
        long_document_lines: line numbers of the first of them.
        omitted_sentences: sentences of them that are left out.
        unknown: words that are not in the vocabulary.

    Example:
        >>> report = DocumentReport(max_words=40, max_sentences=2, overflow="truncate")
        >>> report.count_document([["Fine", "."]], Truncation(), line=1)
        >>> report.count_document([], Truncation(), line=2)
        >>> report.count_document([["Oh", "no"], ["Why"]], Truncation(1, 7, 3), line=9)
        >>> print(report)
        3 documents read, 2 used (5 words); 1 empty left out (line 2); 1 sentence over 40 words truncated (7 words left
        out); 1 document over 2 sentences truncated (line 9; 3 sentences left out).
    """

    max_words: int
    max_sentences: int
    overflow: str
    read: int = 0
    used: int = 0
    words: int = 0
    empty: int = 0
    empty_lines: list[int] = field(default_factory=list)
    long_sentences: int = 0
    omitted_words: int = 0
    long_documents: int = 0
    long_document_lines: list[int] = field(default_factory=list)
    omitted_sentences: int = 0
    unknown: int = 0

    @classmethod
    def from_splitter(cls, splitter: DocumentSplitter) -> DocumentReport:
        """Return an empty report for the limits of a splitter.

        Args:
            splitter: the splitter.

        Returns:
            The report.
        """
        return cls(splitter.max_words, splitter.max_sentences, splitter.overflow)

    def count_document(self, document: SplitDocument, truncation: Truncation, line: int) -> None:
        """Count one document.

        Args:
            document: its sentences of words, empty if it is left out.
            truncation: what is left out of it.
            line: its line number.
        """
        self.read += 1
        self.used += bool(document)
        self.words += sum(map(len, document))
        self.long_sentences += truncation.long_sentences
        self.omitted_words += truncation.omitted_words
        self.omitted_sentences += truncation.omitted_sentences
        if not document:
            self.empty += 1
            self.empty_lines += [line] * (len(self.empty_lines) < MAX_LINE_NUMBERS)
        if truncation.omitted_sentences:
            self.long_documents += 1
            self.long_document_lines += [line] * (len(self.long_document_lines) < MAX_LINE_NUMBERS)

    def as_dict(self) -> dict[str, object]:
        """Return the fields as plain values, for JSON.

        Returns:
            A dictionary of the fields.
        """
        return asdict(self)

    def __str__(self) -> str:
        parts = [f"{pluralize(self.read, 'document')} read, {self.used:,} used ({pluralize(self.words, 'word')})"]
        if self.empty:
            parts.append(f"{self.empty:,} empty left out ({format_line_numbers(self.empty_lines, self.empty)})")
        if self.long_sentences:
            omitted = f"truncated ({pluralize(self.omitted_words, 'word')} left out)"
            outcome = "split" if self.overflow == "split" else omitted
            parts.append(f"{pluralize(self.long_sentences, 'sentence')} over {self.max_words:,} words {outcome}")
        if self.long_documents:
            lines = format_line_numbers(self.long_document_lines, self.long_documents)
            omitted = f"{pluralize(self.omitted_sentences, 'sentence')} left out"
            count = f"{pluralize(self.long_documents, 'document')} over {self.max_sentences:,} sentences truncated"
            parts.append(f"{count} ({lines}; {omitted})")
        if self.unknown:
            percentage, verb = 100 * self.unknown / self.words, "is" if self.unknown == 1 else "are"
            parts.append(f"{pluralize(self.unknown, 'word')} ({percentage:.1f} %) {verb} not in the vocabulary")
        return "; ".join(parts) + "."
