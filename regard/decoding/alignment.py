"""Alignments of source and target words by attention weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.errors import ShapeError, UnsupportedError, UsageError

__all__ = ["Alignment", "LinkMethod", "TokenGroups", "WordAlignment", "replace_unknown"]

TokenGroups = tuple[tuple[int, ...], ...]
LinkMethod = Literal["argmax", "threshold"]
LinkMatrix = Bool[Tensor, "layers heads tgt_words src_words"]
MAX_HTML_WORDS, MAX_WORD_LENGTH = 60, 24  # in a notebook: words of each side, characters of a word
ROW = '<tr><th style="font-weight:normal;text-align:right;padding:0 6px">{}</th>{}</tr>'
CELL = '<td style="padding:0;min-width:1.5em;height:1.5em;background:rgba(20,63,120,{:.3f})"></td>'
COLUMN_STYLE = "font-weight:normal;writing-mode:vertical-rl;transform:rotate(180deg);padding:6px 0"


class WordAlignment(NamedTuple):
    """Words of both sides and the weights between them.

    Args:
        source, target: the words of both sides
        weights: attention weights, (layers, heads, tgt_words, src_words)

    Example:
        >>> WordAlignment(("cat",), ("Katze",), torch.ones(1, 1, 1, 1)).weights.shape
        torch.Size([1, 1, 1, 1])
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Float[Tensor, "layers heads tgt_words src_words"]


@dataclass(frozen=True)
class Alignment:
    """Tokens of a source and a target, and the attention weights between them.

    Args:
        source, target: tokens
        weights: attention weights of every layer and head
        source_end, target_end: whether the last token is the end of the sentence (EOS)
        source_groups, target_groups: for each word the positions of its tokens; None: every token is a word
        source_words, target_words: text of each word; None: its tokens joined

    >>> weights = torch.tensor([[[[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]]])
    >>> alignment = Alignment(("Kat", "ze", "</s>"), ("cat", "</s>"), weights, source_groups=((0, 1),))
    >>> alignment.merge_words().source, alignment.merge_words(renormalize=False).weights.tolist()
    (('Katze',), [[[[0.800...]]]])
    >>> alignment.links()
    {(0, 0)}
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Float[Tensor, "layers heads tgt_len src_len"]
    source_end: bool = True
    target_end: bool = True
    source_groups: TokenGroups | None = None
    target_groups: TokenGroups | None = None
    source_words: tuple[str, ...] | None = None
    target_words: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        size = (len(self.target), len(self.source))
        if self.weights.dim() != 4 or self.weights.shape[2:] != size:
            shape = f"(layers, heads, {size[0]} target tokens, {size[1]} source tokens)"
            raise ShapeError(f"Alignment: weights must have shape {shape}, not {tuple(self.weights.shape)}")
        for side in ("source", "target"):
            groups, words = self.word_groups(side), getattr(self, f"{side}_words")
            tokens = len(getattr(self, side)) - getattr(self, f"{side}_end")
            if outside := [position for group in groups for position in group if not 0 <= position < tokens]:
                reason = f"but the {side} has {tokens} tokens without EOS"
                raise UsageError(f"Alignment: {side}_groups has position {outside[0]}, {reason}")
            if words is not None and len(words) != len(groups):
                raise UsageError(f"Alignment: {len(words)} {side}_words for {len(groups)} {side} groups")

    def word_groups(self, side: str) -> TokenGroups:
        """Token positions of each word.

        Args:
            side: "source" or "target"
        """
        groups: TokenGroups | None = getattr(self, f"{side}_groups")
        tokens = len(getattr(self, side)) - getattr(self, f"{side}_end")
        return tuple((i,) for i in range(tokens)) if groups is None else groups

    def words_of(self, side: str) -> tuple[str, ...]:
        """Text of each word.

        Args:
            side: "source" or "target"
        """
        words, tokens = getattr(self, f"{side}_words"), getattr(self, side)
        texts = ("".join(tokens[p] for p in group).strip("▁") for group in self.word_groups(side))
        return tuple(texts) if words is None else words

    def select_head(self, layer: int | None = None, head: int | None = None) -> Alignment:
        """The alignment of one layer and head; None averages over them. Both axes remain.

        Args:
            layer: index of a layer
            head: index of a head
        """
        if not self.weights.shape[0] * self.weights.shape[1]:
            raise UnsupportedError("Alignment: no attention weights; the model has no attention")
        weights = self.weights.mean(0, keepdim=True) if layer is None else self.weights[layer][None]
        weights = weights.mean(1, keepdim=True) if head is None else weights[:, head][:, None]
        return replace(self, weights=weights)

    def merge_words(self, *, include_end: bool = False, renormalize: bool = True) -> WordAlignment:
        """Weights between words: summed over the tokens of a source word, averaged over those of a target word.

        Args:
            include_end: keep EOS of both sides as the last word
            renormalize: without EOS, scale the weights of each target word to sum to 1 (a sum of 0 stays 0)
        """
        target_end, source_end = include_end and self.target_end, include_end and self.source_end
        source_matrix = _merge_matrix(self.word_groups("source"), len(self.source), source_end)
        target_matrix = _merge_matrix(self.word_groups("target"), len(self.target), target_end)
        target_matrix = target_matrix / target_matrix.sum(0).clamp(min=1)
        merged = target_matrix.T @ self.weights.float() @ source_matrix
        if renormalize and not include_end:
            total = merged.sum(-1, keepdim=True)
            merged = torch.where(total > 0, merged / total, 0.0)
        source = self.words_of("source") + self.source[-1:] * source_end
        target = self.words_of("target") + self.target[-1:] * target_end
        return WordAlignment(source, target, merged)

    def link_matrix(self, method: LinkMethod = "argmax", threshold: float = 0.25) -> LinkMatrix:
        """Which words each head links.

        Args:
            method, threshold: as for `links`
        """
        merged = self.merge_words(include_end=True).weights[:, :, : len(self.word_groups("target"))]
        if method == "threshold":
            linked = merged >= threshold
        else:
            linked = torch.zeros_like(merged, dtype=torch.bool)
            if merged.numel():
                linked.scatter_(-1, merged.argmax(-1, keepdim=True), True)
            linked &= merged > 0
        return linked[..., : len(self.word_groups("source"))]

    def links(
        self, layer: int | None = None, head: int | None = None, method: LinkMethod = "argmax", threshold: float = 0.25
    ) -> set[tuple[int, int]]:
        """Linked words.

        Args:
            layer, head: as for `select_head`
            method: "argmax" links each target word to the source word with the largest weight, and to none if that is
                EOS or if all weights are 0; "threshold" to all source words with at least this weight
            threshold: minimum weight of a link, for "threshold"

        Returns:
            Pairs of (source word, target word), counted from 0.
        """
        linked = self.select_head(layer, head).link_matrix(method, threshold)[0, 0]
        return {(i, j) for j, i in linked.nonzero().tolist()}

    def to_json(self, digits: int = 6) -> dict[str, Any]:
        """Tokens with their weights, and words with theirs (`merge_words()`), as plain lists.

        Args:
            digits: decimal places of the weights
        """
        fields = {name: _to_lists(value) for name, value in vars(self).items() if name != "weights"}
        source, target, merged = self.merge_words()
        return fields | {
            "source_words": list(source),
            "target_words": list(target),
            "weights": _round_nested(self.weights.tolist(), digits),
            "shape": list(self.weights.shape),
            "word_weights": _round_nested(merged.tolist(), digits),
        }

    def _repr_html_(self) -> str:
        """A table for notebooks: target words down, source words across, darker for larger weights (mean head)."""
        if not self.weights.shape[0] * self.weights.shape[1]:
            return f"<p>{escape(' '.join(self.source))} &rarr; {escape(' '.join(self.target))}</p>"
        source, target, weights = self.select_head().merge_words(include_end=True)
        table = weights[0, 0].nan_to_num() / weights.nan_to_num().amax().clamp(min=1e-12)
        header = "".join(f'<th style="{COLUMN_STYLE}">{_format_word(word)}</th>' for word in source[:MAX_HTML_WORDS])
        cells = ("".join(map(CELL.format, row[:MAX_HTML_WORDS])) for row in table.tolist())
        rows = map(ROW.format, map(_format_word, target[:MAX_HTML_WORDS]), cells)
        is_cut = max(len(source), len(target)) > MAX_HTML_WORDS
        note = f"<p>the first {MAX_HTML_WORDS} words of each side</p>" if is_cut else ""
        return f'<table style="border-collapse:collapse"><tr><th></th>{header}</tr>{"".join(rows)}</table>{note}'

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Alignment:
        """The alignment of which `to_json` returned `data`."""
        weights = torch.tensor(data["weights"], dtype=torch.float32).view(data["shape"])
        fields = {name: value for name, value in data.items() if name not in ("weights", "shape", "word_weights")}
        return cls(weights=weights, **{name: _to_tuples(value) for name, value in fields.items()})


def replace_unknown(
    alignment: Alignment,
    unknown: Collection[int],
    dictionary: Mapping[str, str] | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> tuple[str, ...]:
    """Replace target words with an unknown token by the source word with the largest attention weight.

    EOS is never copied; a word without attention to any other token stays as it is.

    Args:
        alignment: its `source_words` should be the words of the text, since the tokens of a source word may be
            unknown as well
        unknown: positions of unknown target tokens
        dictionary: translations of source words; other words are copied
        layer, head: as for `Alignment.select_head`

    Returns:
        The target words.

    Reference: Luong et al. (2015), arXiv 1410.8206, with attention in place of their aligner.

    >>> weights = torch.tensor([[[[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]]]])
    >>> alignment = Alignment(("<unk>", "lacht", "</s>"), ("<unk>", "laughs"), weights, target_end=False,
    ...                       source_words=("Ottilie", "lacht"))
    >>> replace_unknown(alignment, [0])
    ('Ottilie', 'laughs')
    """
    target_words = list(alignment.words_of("target"))
    source_words = alignment.words_of("source")
    for index, group in enumerate(alignment.word_groups("target")):
        positions = tuple(position for position in group if position in unknown)
        if not positions or not source_words:
            continue
        tokens = replace(alignment, target_groups=(positions,), target_words=None)
        weights = tokens.select_head(layer, head).merge_words(renormalize=False).weights.flatten()
        if weights.any():
            word = source_words[int(weights.argmax())]
            target_words[index] = (dictionary or {}).get(word, word)
    return tuple(target_words)


def _merge_matrix(groups: TokenGroups, tokens: int, include_end: bool) -> Float[Tensor, "tokens words"]:
    """A matrix with 1 where a token belongs to a word."""
    if include_end:
        groups = (*groups, (tokens - 1,))
    matrix = torch.zeros(tokens, len(groups))
    words = [word for word, group in enumerate(groups) for _ in group]
    matrix[[position for group in groups for position in group], words] = 1
    return matrix


def _format_word(word: str) -> str:
    return escape(word if len(word) <= MAX_WORD_LENGTH else word[: MAX_WORD_LENGTH - 1] + "…")


def _to_lists(value: Any) -> Any:
    return [_to_lists(item) for item in value] if isinstance(value, tuple) else value


def _to_tuples(value: Any) -> Any:
    return tuple(_to_tuples(item) for item in value) if isinstance(value, list) else value


def _round_nested(value: Any, digits: int) -> Any:
    return [_round_nested(item, digits) for item in value] if isinstance(value, list) else round(value, digits)
