"""A document as sentences of words, within limits; what goes over them is counted, never lost in silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from regard.data.parallel import MAX_LINE_NUMBERS, format_line_numbers, pluralize
from regard.data.segmentation import SPLITTERS, split_sentences
from regard.errors import UsageError

SplitDocument = list[list[str]]  # sentences of words


@dataclass(frozen=True)
class Truncation:
    """What a document has more than the limits allow."""

    long_sentences: int = 0  # sentences over max_words
    omitted_words: int = 0  # left out of them
    omitted_sentences: int = 0  # left out after max_sentences

    def __bool__(self) -> bool:
        return bool(self.omitted_words or self.omitted_sentences)

    def __str__(self) -> str:
        parts = []
        if self.omitted_sentences:
            parts.append(f"{self.omitted_sentences:,} sentence{'s' * (self.omitted_sentences > 1)}")
        if self.omitted_words:
            parts.append(f"{self.omitted_words:,} word{'s' * (self.omitted_words > 1)} of long sentences")
        return " and ".join(parts) or "nothing"


@dataclass(frozen=True)
class DocumentSplitter:
    """How a text becomes sentences of words.

    pieces          word (punctuation apart), or char
    max_words       at most so many words in a sentence
    max_sentences   at most so many sentences in a document: the first ones
    over            a longer sentence is split into several, or cut: then the rest of it is left out

    >>> DocumentSplitter(max_words=3, max_sentences=2, overflow="cut").split("One. A very long one. And more.")
    ([['One', '.'], ['A', 'very', 'long']], Left(long=1, words=2, sentences=1))
    """

    unit: str = "word"
    max_words: int = 50
    max_sentences: int = 40
    overflow: str = "split"

    def __post_init__(self) -> None:
        if self.unit not in SPLITTERS:
            raise UsageError(f"pieces={self.unit!r} is not one of {', '.join(SPLITTERS)}.")
        if self.overflow not in ("split", "cut"):
            raise UsageError(f"over={self.overflow!r} is not one of split, cut.")
        if min(self.max_words, self.max_sentences) < 1:
            raise UsageError(
                f"max_words={self.max_words} and max_sentences={self.max_sentences} should be at least 1."
            )

    def split(self, text: str | Sequence[str]) -> tuple[SplitDocument, Truncation]:
        """The sentences of a text, each as words; those of a text that comes as sentences are left as they are."""
        most, made, long, words = self.max_words, [], 0, 0
        for sentence in split_sentences(text) if isinstance(text, str) else text:
            pieces = SPLITTERS[self.unit](sentence)
            long += len(pieces) > most
            if self.overflow == "cut":
                words += max(len(pieces) - most, 0)
                pieces = pieces[:most]
            made += [pieces[start : start + most] for start in range(0, len(pieces), most)]
        kept = made[: self.max_sentences]
        return kept, Truncation(long, words, len(made) - len(kept))


def leading_spaces(text: str | Sequence[str], document: SplitDocument) -> list[list[bool]]:
    """Before which words of a cut text there was a space.

    >>> leading_spaces("It's well-made.", [["It's", "well", "-", "made", "."]])
    [[False, True, False, False, False]]
    """
    whole, place = text if isinstance(text, str) else "\n".join(text), 0
    found: list[list[bool]] = []
    for sentence in document:
        found.append([])
        for word in sentence:
            here = max(whole.find(word, place), place)
            found[-1].append(whole[place:here].strip() != whole[place:here])
            place = here + len(word)
    return found


@dataclass
class DocumentReport:
    """How many documents were read and used, and what was cut.

    >>> report = DocumentReport(max_words=40, max_sentences=2, overflow="cut")
    >>> report.count_document([["Fine", "."]], Truncation(), line=1), report.count_document([], Truncation(), line=2)
    (None, None)
    >>> report.count_document([["Oh", "no"], ["Why"]], Truncation(long_sentences=1, omitted_words=7, omitted_sentences=3), line=9)
    >>> print(report)
    3 documents read, 2 used (5 words); 1 empty left out (line 2); 1 sentence over 40 words cut (7 words left out);
    1 document over 2 sentences cut (line 9; 3 sentences left out).
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
    unknown: int = 0  # words, counted by who knows the vocabulary

    @classmethod
    def from_splitter(cls, splitter: DocumentSplitter) -> DocumentReport:
        return cls(splitter.max_words, splitter.max_sentences, splitter.overflow)

    def count_document(self, document: SplitDocument, truncation: Truncation, line: int) -> None:
        """One more document was read."""
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
        """The same as plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        parts = [
            f"{pluralize(self.read, 'document')} read, {self.used:,} used ({pluralize(self.words, 'word')})"
        ]
        if self.empty:
            parts.append(
                f"{self.empty:,} empty left out ({format_line_numbers(self.empty_lines, self.empty)})"
            )
        if self.long_sentences:
            done = (
                "split"
                if self.overflow == "split"
                else f"cut ({pluralize(self.omitted_words, 'word')} left out)"
            )
            parts.append(f"{pluralize(self.long_sentences, 'sentence')} over {self.max_words:,} words {done}")
        if self.long_documents:
            where = format_line_numbers(self.long_document_lines, self.long_documents)
            left = f"{pluralize(self.omitted_sentences, 'sentence')} left out"
            what = f"{pluralize(self.long_documents, 'document')} over {self.max_sentences:,} sentences cut"
            parts.append(f"{what} ({where}; {left})")
        if self.unknown:
            share = 100 * self.unknown / self.words
            are = "is" if self.unknown == 1 else "are"
            parts.append(f"{pluralize(self.unknown, 'word')} ({share:.1f} %) {are} not in the vocabulary")
        return "; ".join(parts) + "."
