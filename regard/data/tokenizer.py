"""From text to numbers and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from random import Random
from typing import Any

from regard.data.segmentation import UNKNOWN_CHARACTER, is_space_delimited, split_token_group
from regard.data.vocabulary import (
    BOS_ID,
    EOS_ID,
    MAX_CACHED_WORDS,
    MODEL_TYPES,
    PAD_ID,
    SPECIAL_TOKENS,
    UNK_ID,
    WORD_MARK,
    DropoutVariants,
    Vocabulary,
    make_pre_tokenizer,
    train_vocabulary,
)
from regard.errors import DataError, UnknownNameError, UsageError

FORMAT_VERSION = 1


MAX_CACHED_LENGTH = 64  # letters of a word that is remembered: many long ones would fill the memory


class Tokenizer:
    """Text as tokens of a vocabulary learned from text, with numbers 0 to 3 for PAD, UNK, BOS and EOS.

        bpe        words are cut into pieces that were often seen together (Sennrich et al. 2016, arXiv 1508.07909)
        unigram    words are cut into their most probable pieces (Kudo 2018, arXiv 1804.10959)
        char       every character, spaces included
        word       what stands between spaces, the most frequent ones

    A piece that begins a word starts with ▁. Joining the pieces gives back text with single spaces; for char,
    any text. A character (for word: a word) that has no token becomes UNK, and `surfaces` tells what it was. Text
    that looks like a special token is text. The same texts give the same vocabulary.

    >>> tokenizer = Tokenizer.train(["low lower lowest", "new newer newest"], model_type="bpe", vocab_size=30)
    >>> tokenizer.convert_ids_to_tokens(tokenizer.encode("newest low"))
    ['▁ne', 'west', '▁lo', 'w']
    >>> tokenizer.decode(tokenizer.encode("newest low"))
    'newest low'
    """

    def __init__(
        self, model_type: str, vocabulary: Vocabulary, nfkc: bool = False, lowercase: bool = False
    ) -> None:
        self.model_type, self.vocabulary, self.nfkc, self.lowercase = model_type, vocabulary, nfkc, lowercase
        self._pre_tokenize = make_pre_tokenizer(model_type, nfkc, lowercase)
        self._model = vocabulary.build_model(model_type)
        self._cache: dict[str, tuple[int, ...]] = {}
        self._variants: DropoutVariants | None = None

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        model_type: str = "bpe",
        vocab_size: int = 8000,
        *,
        nfkc: bool = False,
        lowercase: bool = False,
    ) -> Tokenizer:
        """Learn a vocabulary of at most `size` tokens; of Unicode's look-alikes, nfkc makes one."""
        if model_type not in MODEL_TYPES:
            raise UnknownNameError.among("tokenizer", model_type, MODEL_TYPES)
        if isinstance(texts, str):
            raise TypeError("Tokenizer.learn takes many texts, such as the lines of a file, not one string.")
        return cls(
            model_type,
            train_vocabulary(texts, model_type, vocab_size, make_pre_tokenizer(model_type, nfkc, lowercase)),
            nfkc,
            lowercase,
        )

    def __len__(self) -> int:
        return len(self.vocabulary.tokens)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self._as_dict() == other._as_dict()

    __hash__ = None  # type: ignore[assignment]

    def encode(self, text: str) -> list[int]:
        """The numbers of the text's tokens, without special ones."""
        known = self._cache
        numbers: list[int] = []
        for piece in self._pre_tokenize(text):
            numbers += known.get(piece) or self._encode_piece(piece)
        return numbers

    def encode_all(self, texts: Iterable[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def encode_with_dropout(self, text: str, dropout: float, rng: Random) -> list[int]:
        """One of the ways to cut the text under BPE-dropout; without dropout, the usual one.

        A word is cut in one of 64 ways, each settled by the word, its index and the dropout, so that only
        the indices are drawn: a source that is started again from the same seed gives the same numbers.
        """
        if dropout == 0:
            return self.encode(text)
        if self.model_type != "bpe":
            raise UsageError(
                f"Only a bpe tokenizer can drop merges; for kind {self.model_type!r} set dropout to 0."
            )
        if not 0 <= dropout <= 1:
            raise UsageError(f"dropout is a probability, from 0 to 1, not {dropout}.")
        if self._variants is None or self._variants.dropout != dropout:
            self._variants = DropoutVariants(self.vocabulary, dropout)
        return self._variants.draw(self._pre_tokenize(text), rng)

    def decode(self, ids: Sequence[int], replacements: Mapping[int, str] | None = None) -> str:
        """The text of the tokens without PAD, BOS and EOS; at the positions in `instead`, what stands there.

        UNK reads <unk>, so that it is seen; `instead` can put a word in its place.
        """
        unknown = WORD_MARK + SPECIAL_TOKENS[UNK_ID] if self.model_type == "word" else SPECIAL_TOKENS[UNK_ID]
        parts = []
        for position, token in enumerate(self.convert_ids_to_tokens(ids)):
            if replacements and position in replacements:
                begins = token.startswith(WORD_MARK) or self.model_type == "word"
                parts.append(WORD_MARK * (begins and self.model_type != "char") + replacements[position])
            elif ids[position] not in (PAD_ID, BOS_ID, EOS_ID):
                parts.append(unknown if ids[position] == UNK_ID else token)
        text = "".join(parts)
        return text if self.model_type == "char" else " ".join(text.replace(WORD_MARK, " ").split())

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        """The tokens as text, special ones included: <pad>, <unk>, <s>, </s>."""
        if any(not 0 <= number < len(self) for number in ids):
            raise UsageError(
                f"A token's number is from 0 to {len(self) - 1}; this is another tokenizer's text."
            )
        return [self.vocabulary.tokens[number] for number in ids]

    def group_words(
        self,
        ids: Sequence[int],
        surface_forms: Sequence[str] | None = None,
        *,
        spaces_only: bool | None = None,
    ) -> list[list[int]]:
        """The positions that make up each word (for char: each character), special tokens left out.

        Word i of an encoded text is `text.split()[i]`. Chinese and Japanese have no spaces between words, so there
        each token is a word; but where spaces come every few characters, or with `spaced`, only they count. What
        UNK stands for is known from `surfaces`, if they are given.
        """
        words: list[list[int]] = []
        for position, token in enumerate(self.convert_ids_to_tokens(ids)):
            if ids[position] in (PAD_ID, BOS_ID, EOS_ID):
                continue
            if self.model_type in ("char", "word") or token.startswith(WORD_MARK) or not words:
                words.append([])
            words[-1].append(position)
        if spaces_only or self.model_type in ("char", "word"):
            return words
        read = self._visible_texts(ids) if surface_forms is None else surface_forms
        if spaces_only is None and is_space_delimited(["".join(read[i] for i in word) for word in words]):
            return words
        return [part for word in words for part in split_token_group(word, read)]

    def surface_forms(self, text: str) -> list[str]:
        """What stands in the text for each token of `encode(text)`: also where it is UNK, to be copied."""
        if self.model_type in ("char", "word"):
            return [
                piece.removeprefix(WORD_MARK) if self.model_type == "word" else piece
                for piece in self._pre_tokenize(text)
            ]
        found = []
        for piece in self._pre_tokenize(text):
            raw = piece.encode("utf-8", "replace")
            spans = [token.offsets for token in self._model.tokenize(raw.decode())]
            found += [raw[start:end].decode().removeprefix(WORD_MARK) for start, end in spans]
        return found

    def truncate(self, text: str, max_tokens: int) -> str:
        """As much of the text, from its beginning, as has at most so many tokens.

        >>> Tokenizer.train(["a b c"], model_type="word", vocab_size=10).truncate("a b c", max_tokens=2).split()
        ['a', 'b']
        """
        if len(self.encode(text)) <= max_tokens:
            return text
        short, long = 0, len(text)  # so many characters fit, so many do not
        while long - short > 1:
            middle = (short + long) // 2
            fits = len(self.encode(text[:middle])) <= max_tokens
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
            if saved["format"] != FORMAT_VERSION:
                wrong = f"has format {saved['format']!r}, but this version of regard reads {FORMAT_VERSION}"
                raise DataError(f"{path} {wrong}; the version that saved it can read it.")
            return cls(
                saved["kind"], Vocabulary.from_dict(saved), bool(saved["nfkc"]), bool(saved["lowercase"])
            )
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
        kind = {
            "format": FORMAT_VERSION,
            "kind": self.model_type,
            "nfkc": self.nfkc,
            "lowercase": self.lowercase,
        }
        return kind | self.vocabulary.as_dict()

    def _visible_texts(self, ids: Sequence[int]) -> list[str]:
        """What each token stands for, as far as it can be told without the text."""
        tokens = zip(ids, self.convert_ids_to_tokens(ids), strict=True)
        return [
            UNKNOWN_CHARACTER if number == UNK_ID else token.removeprefix(WORD_MARK)
            for number, token in tokens
        ]

    def _encode_piece(self, piece: str) -> tuple[int, ...]:
        if len(self._cache) >= MAX_CACHED_WORDS:
            self._cache.clear()
        # Half a surrogate pair is no character; it comes from an argument of the command line, say.
        found = self._model.tokenize(piece.encode("utf-8", "replace").decode())
        numbers = tuple(token.id for token in found)
        if len(piece) <= MAX_CACHED_LENGTH:
            self._cache[piece] = numbers
        return numbers
