"""From text to numbers and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from random import Random
from typing import Any

from regard.data._learn import KINDS, learn
from regard.data._merges import KEPT, Variants
from regard.data._pieces import MARK, cutter
from regard.data._vocabulary import SPECIALS, Vocabulary
from regard.data.batch import BOS, EOS, PAD, UNK
from regard.data.unspaced import UNREADABLE, apart, spaces_tell
from regard.errors import DataError, UnknownNameError, UsageError

FORMAT = 1
LONGEST = 64  # letters of a word that is remembered: many long ones would fill the memory


class Tokenizer:
    """Text as tokens of a vocabulary learned from text, with numbers 0 to 3 for PAD, UNK, BOS and EOS.

        bpe        words are cut into pieces that were often seen together (Sennrich et al. 2016, arXiv 1508.07909)
        unigram    words are cut into their most probable pieces (Kudo 2018, arXiv 1804.10959)
        char       every character, spaces included
        word       what stands between spaces, the most frequent ones

    A piece that begins a word starts with ▁. Joining the pieces gives back text with single spaces; for char,
    any text. A character (for word: a word) that has no token becomes UNK, and `surfaces` tells what it was. Text
    that looks like a special token is text. The same texts give the same vocabulary.

    >>> tokenizer = Tokenizer.learn(["low lower lowest", "new newer newest"], kind="bpe", size=30)
    >>> tokenizer.tokens(tokenizer.encode("newest low"))
    ['▁ne', 'west', '▁lo', 'w']
    >>> tokenizer.decode(tokenizer.encode("newest low"))
    'newest low'
    """

    def __init__(
        self, kind: str, vocabulary: Vocabulary, nfkc: bool = False, lowercase: bool = False
    ) -> None:
        self.kind, self.vocabulary, self.nfkc, self.lowercase = kind, vocabulary, nfkc, lowercase
        self._pieces = cutter(kind, nfkc, lowercase)
        self._model = vocabulary.model(kind)
        self._known: dict[str, tuple[int, ...]] = {}
        self._variants: Variants | None = None

    @classmethod
    def learn(
        cls,
        texts: Iterable[str],
        kind: str = "bpe",
        size: int = 8000,
        *,
        nfkc: bool = False,
        lowercase: bool = False,
    ) -> Tokenizer:
        """Learn a vocabulary of at most `size` tokens; of Unicode's look-alikes, nfkc makes one."""
        if kind not in KINDS:
            raise UnknownNameError.among("tokenizer", kind, KINDS)
        if isinstance(texts, str):
            raise TypeError("Tokenizer.learn takes many texts, such as the lines of a file, not one string.")
        return cls(kind, learn(texts, kind, size, cutter(kind, nfkc, lowercase)), nfkc, lowercase)

    def __len__(self) -> int:
        return len(self.vocabulary.tokens)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self._as_dict() == other._as_dict()

    __hash__ = None  # type: ignore[assignment]

    def encode(self, text: str) -> list[int]:
        """The numbers of the text's tokens, without special ones."""
        known = self._known
        numbers: list[int] = []
        for piece in self._pieces(text):
            numbers += known.get(piece) or self._look_up(piece)
        return numbers

    def encode_all(self, texts: Iterable[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def sample(self, text: str, dropout: float, random: Random) -> list[int]:
        """One of the ways to cut the text under BPE-dropout; without dropout, the usual one.

        A word is cut in one of 64 ways, each settled by the word, its index and the dropout, so that only
        the indices are drawn: a source that is started again from the same seed gives the same numbers.
        """
        if dropout == 0:
            return self.encode(text)
        if self.kind != "bpe":
            raise UsageError(
                f"Only a bpe tokenizer can drop merges; for kind {self.kind!r} set dropout to 0."
            )
        if not 0 <= dropout <= 1:
            raise UsageError(f"dropout is a probability, from 0 to 1, not {dropout}.")
        if self._variants is None or self._variants.dropout != dropout:
            self._variants = Variants(self.vocabulary, dropout)
        return self._variants.draw(self._pieces(text), random)

    def decode(self, numbers: Sequence[int], instead: Mapping[int, str] | None = None) -> str:
        """The text of the tokens without PAD, BOS and EOS; at the positions in `instead`, what stands there.

        UNK reads <unk>, so that it is seen; `instead` can put a word in its place.
        """
        unknown = MARK + SPECIALS[UNK] if self.kind == "word" else SPECIALS[UNK]
        parts = []
        for position, token in enumerate(self.tokens(numbers)):
            if instead and position in instead:
                begins = token.startswith(MARK) or self.kind == "word"
                parts.append(MARK * (begins and self.kind != "char") + instead[position])
            elif numbers[position] not in (PAD, BOS, EOS):
                parts.append(unknown if numbers[position] == UNK else token)
        text = "".join(parts)
        return text if self.kind == "char" else " ".join(text.replace(MARK, " ").split())

    def tokens(self, numbers: Sequence[int]) -> list[str]:
        """The tokens as text, special ones included: <pad>, <unk>, <s>, </s>."""
        if any(not 0 <= number < len(self) for number in numbers):
            raise UsageError(
                f"A token's number is from 0 to {len(self) - 1}; this is another tokenizer's text."
            )
        return [self.vocabulary.tokens[number] for number in numbers]

    def words(
        self, numbers: Sequence[int], surfaces: Sequence[str] | None = None, *, spaced: bool | None = None
    ) -> list[list[int]]:
        """The positions that make up each word (for char: each character), special tokens left out.

        Word i of an encoded text is `text.split()[i]`. Chinese and Japanese have no spaces between words, so there
        each token is a word; but where spaces come every few characters, or with `spaced`, only they count. What
        UNK stands for is known from `surfaces`, if they are given.
        """
        words: list[list[int]] = []
        for position, token in enumerate(self.tokens(numbers)):
            if numbers[position] in (PAD, BOS, EOS):
                continue
            if self.kind in ("char", "word") or token.startswith(MARK) or not words:
                words.append([])
            words[-1].append(position)
        if spaced or self.kind in ("char", "word"):
            return words
        read = self._read(numbers) if surfaces is None else surfaces
        if spaced is None and spaces_tell(["".join(read[i] for i in word) for word in words]):
            return words
        return [part for word in words for part in apart(word, read)]

    def surfaces(self, text: str) -> list[str]:
        """What stands in the text for each token of `encode(text)`: also where it is UNK, to be copied."""
        if self.kind in ("char", "word"):
            return [
                piece.removeprefix(MARK) if self.kind == "word" else piece for piece in self._pieces(text)
            ]
        found = []
        for piece in self._pieces(text):
            raw = piece.encode("utf-8", "replace")
            spans = [token.offsets for token in self._model.tokenize(raw.decode())]
            found += [raw[start:end].decode().removeprefix(MARK) for start, end in spans]
        return found

    def beginning(self, text: str, most: int) -> str:
        """As much of the text, from its beginning, as has at most so many tokens.

        >>> Tokenizer.learn(["a b c"], kind="word", size=10).beginning("a b c", most=2).split()
        ['a', 'b']
        """
        if len(self.encode(text)) <= most:
            return text
        short, long = 0, len(text)  # so many characters fit, so many do not
        while long - short > 1:
            middle = (short + long) // 2
            fits = len(self.encode(text[:middle])) <= most
            short, long = (middle, long) if fits else (short, middle)
        return text[:short]

    def save(self, path: str | PathLike[str]) -> None:
        """Write it as JSON; whoever finds the file finds all of it."""
        text, part = json.dumps(self._as_dict(), ensure_ascii=False), Path(path).with_suffix(".part")
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Tokenizer:
        try:
            saved = json.loads(Path(path).read_text(encoding="utf-8"))
            if saved["format"] != FORMAT:
                wrong = f"has format {saved['format']!r}, but this version of regard reads {FORMAT}"
                raise DataError(f"{path} {wrong}; the version that saved it can read it.")
            return cls(saved["kind"], Vocabulary.of(saved), bool(saved["nfkc"]), bool(saved["lowercase"]))
        except FileNotFoundError:
            raise DataError(f"There is no tokenizer {path}; a run keeps its own, made by training.") from None
        except DataError:
            raise
        except Exception as error:  # whatever a damaged file leads to, in JSON or in the model built from it
            wrong = f"{type(error).__name__}: {error}"
            raise DataError(
                f"{path} is not a tokenizer that regard saved ({wrong}); copy it again."
            ) from None

    def _as_dict(self) -> dict[str, Any]:
        kind = {"format": FORMAT, "kind": self.kind, "nfkc": self.nfkc, "lowercase": self.lowercase}
        return kind | self.vocabulary.as_dict()

    def _read(self, numbers: Sequence[int]) -> list[str]:
        """What each token stands for, as far as it can be told without the text."""
        tokens = zip(numbers, self.tokens(numbers), strict=True)
        return [UNREADABLE if number == UNK else token.removeprefix(MARK) for number, token in tokens]

    def _look_up(self, piece: str) -> tuple[int, ...]:
        if len(self._known) >= KEPT:
            self._known.clear()
        # Half a surrogate pair is no character; it comes from an argument of the command line, say.
        found = self._model.tokenize(piece.encode("utf-8", "replace").decode())
        numbers = tuple(token.id for token in found)
        if len(piece) <= LONGEST:
            self._known[piece] = numbers
        return numbers
