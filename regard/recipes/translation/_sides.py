"""The two sides of an alignment: tokens, the words they make up, and how these read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from regard.data.batch import EOS
from regard.data.tokenizer import Tokenizer
from regard.decoding import Alignment


@dataclass(frozen=True)
class Side:
    """A sentence of an alignment: its tokens with the end, which of them make up each word, and how it reads."""

    tokens: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    words: tuple[str, ...]

    @classmethod
    def read(cls, tokenizer: Tokenizer, text: str, spaced: bool | None = None) -> Side:
        """That of a text: words read as they stand there, also those without a token."""
        numbers, surfaces = tokenizer.encode(text), tokenizer.surfaces(text)
        groups = tokenizer.words(numbers, surfaces, spaced=spaced)
        words = ["".join(surfaces[place] for place in group) for group in groups]
        if tokenizer.kind != "char" and len(written := text.split()) == len(words):
            words = written  # surfaces are of small letters, say, if the tokenizer makes them so
        return cls._of(tokenizer, numbers, groups, words)

    @classmethod
    def of(cls, tokenizer: Tokenizer, numbers: Sequence[int]) -> Side:
        """That of tokens, whose text nobody has seen."""
        groups = tokenizer.words(numbers)
        words = [tokenizer.decode([numbers[place] for place in group]) for group in groups]
        return cls._of(tokenizer, numbers, groups, words)

    @classmethod
    def _of(
        cls,
        tokenizer: Tokenizer,
        numbers: Sequence[int],
        groups: Sequence[Sequence[int]],
        words: Sequence[str],
    ) -> Side:
        return cls(tuple(tokenizer.tokens([*numbers, EOS])), tuple(map(tuple, groups)), tuple(words))


def joined(source: Side, target: Side, weights: Tensor) -> Alignment:
    """An alignment of two sentences, with the words of both."""
    return Alignment(
        source.tokens,
        target.tokens,
        weights,
        source_groups=source.groups,
        target_groups=target.groups,
        source_words=source.words,
        target_words=target.words,
    )
