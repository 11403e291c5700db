"""A document as sentences of words, within limits; what goes over them is counted, never lost in silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from regard.data.report import SHOWN, _lines, counted
from regard.data.sentences import sentences
from regard.data.words import CUTS
from regard.errors import UsageError

Cut = list[list[str]]  # sentences of words


@dataclass(frozen=True)
class Left:
    """What a document has more than the limits allow."""

    long: int = 0  # sentences over max_words
    words: int = 0  # left out of them
    sentences: int = 0  # left out after max_sentences

    def __bool__(self) -> bool:
        return bool(self.words or self.sentences)

    def __str__(self) -> str:
        parts = []
        if self.sentences:
            parts.append(f"{self.sentences:,} sentence{'s' * (self.sentences > 1)}")
        if self.words:
            parts.append(f"{self.words:,} word{'s' * (self.words > 1)} of long sentences")
        return " and ".join(parts) or "nothing"


@dataclass(frozen=True)
class Cutting:
    """How a text becomes sentences of words.

    pieces          word (punctuation apart), or char
    max_words       at most so many words in a sentence
    max_sentences   at most so many sentences in a document: the first ones
    over            a longer sentence is split into several, or cut: then the rest of it is left out

    >>> Cutting(max_words=3, max_sentences=2, over="cut").cut("One. A very long one. And more.")
    ([['One', '.'], ['A', 'very', 'long']], Left(long=1, words=2, sentences=1))
    """

    pieces: str = "word"
    max_words: int = 50
    max_sentences: int = 40
    over: str = "split"

    def __post_init__(self) -> None:
        if self.pieces not in CUTS:
            raise UsageError(f"pieces={self.pieces!r} is not one of {', '.join(CUTS)}.")
        if self.over not in ("split", "cut"):
            raise UsageError(f"over={self.over!r} is not one of split, cut.")
        if min(self.max_words, self.max_sentences) < 1:
            raise UsageError(
                f"max_words={self.max_words} and max_sentences={self.max_sentences} should be at least 1."
            )

    def cut(self, text: str | Sequence[str]) -> tuple[Cut, Left]:
        """The sentences of a text, each as words; those of a text that comes as sentences are left as they are."""
        most, made, long, words = self.max_words, [], 0, 0
        for sentence in sentences(text) if isinstance(text, str) else text:
            pieces = CUTS[self.pieces](sentence)
            long += len(pieces) > most
            if self.over == "cut":
                words += max(len(pieces) - most, 0)
                pieces = pieces[:most]
            made += [pieces[start : start + most] for start in range(0, len(pieces), most)]
        kept = made[: self.max_sentences]
        return kept, Left(long, words, len(made) - len(kept))


def gaps(text: str | Sequence[str], cut: Cut) -> list[list[bool]]:
    """Before which words of a cut text there was a space.

    >>> gaps("It's well-made.", [["It's", "well", "-", "made", "."]])
    [[False, True, False, False, False]]
    """
    whole, place = text if isinstance(text, str) else "\n".join(text), 0
    found: list[list[bool]] = []
    for sentence in cut:
        found.append([])
        for word in sentence:
            here = max(whole.find(word, place), place)
            found[-1].append(whole[place:here].strip() != whole[place:here])
            place = here + len(word)
    return found


@dataclass
class DocumentReport:
    """How many documents were read and used, and what was cut.

    >>> report = DocumentReport(max_words=40, max_sentences=2, over="cut")
    >>> report.note([["Fine", "."]], Left(), line=1), report.note([], Left(), line=2)
    (None, None)
    >>> report.note([["Oh", "no"], ["Why"]], Left(long=1, words=7, sentences=3), line=9)
    >>> print(report)
    3 documents read, 2 used (5 words); 1 empty left out (line 2); 1 sentence over 40 words cut (7 words left out);
    1 document over 2 sentences cut (line 9; 3 sentences left out).
    """

    max_words: int
    max_sentences: int
    over: str
    read: int = 0
    used: int = 0
    words: int = 0
    empty: int = 0
    empty_lines: list[int] = field(default_factory=list)
    long_sentences: int = 0
    words_left: int = 0
    long_documents: int = 0
    long_lines: list[int] = field(default_factory=list)
    sentences_left: int = 0
    unknown: int = 0  # words, counted by who knows the vocabulary

    @classmethod
    def of(cls, cutting: Cutting) -> DocumentReport:
        return cls(cutting.max_words, cutting.max_sentences, cutting.over)

    def note(self, cut: Cut, left: Left, line: int) -> None:
        """One more document was read."""
        self.read += 1
        self.used += bool(cut)
        self.words += sum(map(len, cut))
        self.long_sentences += left.long
        self.words_left += left.words
        self.sentences_left += left.sentences
        if not cut:
            self.empty += 1
            self.empty_lines += [line] * (len(self.empty_lines) < SHOWN)
        if left.sentences:
            self.long_documents += 1
            self.long_lines += [line] * (len(self.long_lines) < SHOWN)

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        parts = [f"{counted(self.read, 'document')} read, {self.used:,} used ({counted(self.words, 'word')})"]
        if self.empty:
            parts.append(f"{self.empty:,} empty left out ({_lines(self.empty_lines, self.empty)})")
        if self.long_sentences:
            done = "split" if self.over == "split" else f"cut ({counted(self.words_left, 'word')} left out)"
            parts.append(f"{counted(self.long_sentences, 'sentence')} over {self.max_words:,} words {done}")
        if self.long_documents:
            where = _lines(self.long_lines, self.long_documents)
            left = f"{counted(self.sentences_left, 'sentence')} left out"
            what = f"{counted(self.long_documents, 'document')} over {self.max_sentences:,} sentences cut"
            parts.append(f"{what} ({where}; {left})")
        if self.unknown:
            share = 100 * self.unknown / self.words
            are = "is" if self.unknown == 1 else "are"
            parts.append(f"{counted(self.unknown, 'word')} ({share:.1f} %) {are} not in the vocabulary")
        return "; ".join(parts) + "."
