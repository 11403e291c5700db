"""What a translator needs for its inputs: two tokenizers, and the normalization of source texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.data.dates.formats import normalize_text
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import EOS_ID
from regard.decoding import Alignment
from regard.errors import RunFormatError
from regard.files import write_json
from regard.tasks.task import Processor

__all__ = ["CLEANERS", "TokenizedText", "TranslationProcessor", "make_alignment"]

# Functions that normalize a source text; a run saves the name only, so loading one runs no code of its own.
CLEANERS: dict[str, Callable[[str], str]] = {"": str, "dates": normalize_text}


@dataclass(frozen=True)
class TranslationProcessor(Processor):
    """The tokenizers of both languages.

    Args:
        source, target: tokenizers
        cleaner: name of a function in `CLEANERS`, applied to source texts
        unaligned_words: target words that have no source word
    """

    source: Tokenizer
    target: Tokenizer
    cleaner: str = ""
    unaligned_words: tuple[str, ...] = ()

    @property
    def clean(self) -> Callable[[str], str]:
        """The function that normalizes a source text."""
        if self.cleaner not in CLEANERS:
            raise RunFormatError(f"this version of regard has no cleaner {self.cleaner!r}; install a newer one")
        return CLEANERS[self.cleaner]

    def describe(self) -> dict[str, Any]:
        """The sizes of the vocabularies."""
        return {"vocab_size": {"source": len(self.source), "target": len(self.target)}}

    def save(self, folder: Path) -> None:
        """Write source.json, target.json and processor.json."""
        self.source.save(folder / "source.json")
        self.target.save(folder / "target.json")
        values = {"cleaner": self.cleaner, "unaligned_words": list(self.unaligned_words)}
        write_json(folder / "processor.json", values)

    @classmethod
    def load(cls, folder: Path) -> TranslationProcessor:
        """Read what `save` wrote."""
        values = cls.read_values(folder)
        source, target = (Tokenizer.load(folder / name) for name in ("source.json", "target.json"))
        return cls(source, target, str(values.get("cleaner", "")), tuple(values.get("unaligned_words", ())))


@dataclass(frozen=True)
class TokenizedText:
    """A sentence of an alignment.

    Args:
        tokens: with the end of the sentence
        groups: the token indices of each word
        words: as they are shown
    """

    tokens: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    words: tuple[str, ...]

    @classmethod
    def from_text(
        cls, tokenizer: Tokenizer, text: str, spaced: bool | None = None, token_ids: Sequence[int] | None = None
    ) -> TokenizedText:
        """Tokenize a text; words read as in the text, even those without a token.

        Args:
            tokenizer: of the language
            text: the sentence
            spaced: words are separated by spaces only; None: as the tokenizer separates them
            token_ids: the tokens of the text, if they are known
        """
        token_ids = tokenizer.encode(text) if token_ids is None else token_ids
        surfaces = tokenizer.surface_forms(text)
        groups = tokenizer.group_words(token_ids, surfaces, spaces_only=spaced)
        words = ["".join(surfaces[index] for index in group) for group in groups]
        if tokenizer.model_type != "char" and len(split := text.split()) == len(words):
            words = split  # surface forms are normalized, for example lowercased
        return cls._build(tokenizer, token_ids, groups, words)

    @classmethod
    def from_ids(cls, tokenizer: Tokenizer, token_ids: Sequence[int]) -> TokenizedText:
        """From token ids without a text."""
        groups = tokenizer.group_words(token_ids)
        words = [tokenizer.decode([token_ids[index] for index in group]) for group in groups]
        return cls._build(tokenizer, token_ids, groups, words)

    @classmethod
    def _build(
        cls, tokenizer: Tokenizer, token_ids: Sequence[int], groups: Sequence[Sequence[int]], words: Sequence[str]
    ) -> TokenizedText:
        return cls(
            tuple(tokenizer.convert_ids_to_tokens([*token_ids, EOS_ID])), tuple(map(tuple, groups)), tuple(words)
        )


def make_alignment(source: TokenizedText, target: TokenizedText, weights: Tensor) -> Alignment:
    """The alignment of two sentences.

    Args:
        source, target: the sentences
        weights: (layers, heads, target tokens, source tokens)
    """
    return Alignment(
        source.tokens,
        target.tokens,
        weights,
        source_groups=source.groups,
        target_groups=target.groups,
        source_words=source.words,
        target_words=target.words,
    )
