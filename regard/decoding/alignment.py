"""Which source words a translation looked at: weights with the words they belong to.

Words that the vocabulary does not have, copied from the source.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.errors import ShapeError, UnsupportedError, UsageError

TokenGroups = tuple[tuple[int, ...], ...]


LinkMethod = Literal["argmax", "threshold"]


MAX_HTML_WORDS, MAX_WORD_LENGTH = 60, 24  # what a notebook shows: words of a side, letters of a word


ROW_STYLE = "font-weight:normal;text-align:right;padding:0 6px"


COLUMN_STYLE = "font-weight:normal;writing-mode:vertical-rl;transform:rotate(180deg);padding:6px 0"


class WordAlignment(NamedTuple):
    """Words on both sides, and the weights between them."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Float[Tensor, "layers heads target source"]


@dataclass(frozen=True)
class Alignment:
    """A sentence, its translation, and how the second looked at the first: the same from every way of decoding.

    `source` and `target` are tokens; where `source_end` and `target_end` are True, the last is the end of the
    sentence. A word is a group of positions (default: every token is one), read as `source_words` and
    `target_words` say (default: its pieces joined).

    >>> weights = torch.tensor([[[[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]]])
    >>> seen = Alignment(("Kat", "ze", "</s>"), ("cat", "</s>"), weights, source_groups=((0, 1),))
    >>> seen.merge_words().source, seen.merge_words(renormalize=False).weights.tolist()
    (('Katze',), [[[[0.800...]]]])
    >>> seen.links()
    {(0, 0)}
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Float[Tensor, "layers heads target source"]
    source_end: bool = True
    target_end: bool = True
    source_groups: TokenGroups | None = None
    target_groups: TokenGroups | None = None
    source_words: tuple[str, ...] | None = None
    target_words: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        size = (len(self.target), len(self.source))
        if self.weights.dim() != 4 or self.weights.shape[2:] != size:
            raise ShapeError(
                f"Alignment: weights must be (layers, heads, {size[0]} target tokens, {size[1]} source tokens),"
                f" but their shape is {tuple(self.weights.shape)}."
            )
        for side in ("source", "target"):
            self._check_side(side)

    def _check_side(self, side: str) -> None:
        groups, words = self.groups(side), getattr(self, f"{side}_words")
        tokens = len(getattr(self, side)) - getattr(self, f"{side}_end")
        for position in (p for group in groups for p in group):
            if not 0 <= position < tokens:
                raise UsageError(
                    f"Alignment: {side}_groups has position {position}, but the {side} has {tokens} tokens that"
                    " are not the end of the sentence."
                )
        if words is not None and len(words) != len(groups):
            raise UsageError(f"Alignment: {len(words)} {side}_words for {len(groups)} {side} groups.")

    def groups(self, side: str) -> TokenGroups:
        """The positions of each word of "source" or "target"."""
        given: TokenGroups | None = getattr(self, f"{side}_groups")
        tokens = len(getattr(self, side)) - getattr(self, f"{side}_end")
        return tuple((i,) for i in range(tokens)) if given is None else given

    def words_of(self, side: str) -> tuple[str, ...]:
        """How the words of "source" or "target" read."""
        given: tuple[str, ...] | None = getattr(self, f"{side}_words")
        if given is not None:
            return given
        tokens = getattr(self, side)
        return tuple("".join(tokens[p] for p in group).strip("▁") for group in self.groups(side))

    def select_head(self, layer: int | None = None, head: int | None = None) -> Alignment:
        """The weights of one layer and head only; without a number, their average. Both axes stay."""
        if not self.weights.shape[0] * self.weights.shape[1]:
            raise UnsupportedError(
                "Alignment: this model has no attention, so there are no weights to look at."
            )
        weights = self.weights.mean(0, keepdim=True) if layer is None else self.weights[layer][None]
        weights = weights.mean(1, keepdim=True) if head is None else weights[:, head][:, None]
        return replace(self, weights=weights)

    def merge_words(self, *, include_end: bool = False, renormalize: bool = True) -> WordAlignment:
        """Weights between words: a source word has the sum of its pieces' weights, a target word their mean.

        With `end` the ends of sentences stay, as last words. Without, and with `renormalize`, the rest of each
        target word's weights is scaled to sum to 1, unless there is none.
        """
        from_end, to_end = include_end and self.target_end, include_end and self.source_end
        into = _merge_matrix(self.groups("source"), len(self.source), to_end)
        out_of = _merge_matrix(self.groups("target"), len(self.target), from_end)
        out_of = out_of / out_of.sum(0).clamp(min=1)
        merged = out_of.T @ self.weights.float() @ into
        if renormalize and not include_end:
            rest = merged.sum(-1, keepdim=True)
            merged = torch.where(rest > 0, merged / rest, 0.0)
        source = self.words_of("source") + self.source[-1:] * to_end
        target = self.words_of("target") + self.target[-1:] * from_end
        return WordAlignment(source, target, merged)

    def link_matrix(
        self, method: LinkMethod = "argmax", threshold: float = 0.25
    ) -> Bool[Tensor, "layers heads target source"]:
        """Which words each head joins, as `links` describes it."""
        merged = self.merge_words(include_end=True).weights[:, :, : len(self.groups("target"))]
        if method == "threshold":
            linked = merged >= threshold
        else:
            linked = torch.zeros_like(merged, dtype=torch.bool)
            if merged.numel():
                linked.scatter_(-1, merged.argmax(-1, keepdim=True), True)
            linked &= merged > 0
        return linked[..., : len(self.groups("source"))]

    def links(
        self,
        layer: int | None = None,
        head: int | None = None,
        method: LinkMethod = "argmax",
        threshold: float = 0.25,
    ) -> set[tuple[int, int]]:
        """Which words belong together: pairs of (source word, target word), counted from 0.

        "argmax" links each target word to the source word it looks at most, and to none if that is the end of
        the sentence or if it looks nowhere; "threshold" to all it looks at with at least this weight. Without
        a layer or head, the average over them decides.
        """
        linked = self.select_head(layer, head).link_matrix(method, threshold)[0, 0]
        return {(i, j) for j, i in linked.nonzero().tolist()}

    def to_json(self, digits: int = 6) -> dict[str, Any]:
        """Plain lists: tokens with their weights, and words with theirs (`words()`); weights are rounded."""
        plain = {name: _to_lists(value) for name, value in vars(self).items() if name != "weights"}
        source, target, merged = self.merge_words()
        return plain | {
            "source_words": list(source),
            "target_words": list(target),
            "weights": _round_nested(self.weights.tolist(), digits),
            "shape": list(self.weights.shape),
            "word_weights": _round_nested(merged.tolist(), digits),
        }

    def _repr_html_(self) -> str:
        """What a notebook shows: target words down, source words across, darker the more regard (mean of all heads)."""
        if not self.weights.shape[0] * self.weights.shape[1]:
            return f"<p>{escape(' '.join(self.source))} &rarr; {escape(' '.join(self.target))}</p>"
        source, target, weights = self.select_head().merge_words(include_end=True)
        table = weights[0, 0].nan_to_num() / weights.nan_to_num().amax().clamp(min=1e-12)
        across = "".join(
            f'<th style="{COLUMN_STYLE}">{_format_word(word)}</th>' for word in source[:MAX_HTML_WORDS]
        )
        down = [
            f'<tr><th style="{ROW_STYLE}">{_format_word(word)}</th>{"".join(map(_format_cell, row[:MAX_HTML_WORDS]))}</tr>'
            for word, row in zip(target[:MAX_HTML_WORDS], table.tolist(), strict=False)
        ]
        left = (
            f"<p>the first {MAX_HTML_WORDS} words of each</p>"
            if max(len(source), len(target)) > MAX_HTML_WORDS
            else ""
        )
        return (
            f'<table style="border-collapse:collapse"><tr><th></th>{across}</tr>{"".join(down)}</table>{left}'
        )

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Alignment:
        """What `to_json` wrote."""
        weights = torch.tensor(data["weights"], dtype=torch.float32).view(data["shape"])
        told = ("weights", "shape", "word_weights")  # the last follow from the others
        rest = {name: value for name, value in data.items() if name not in told}
        return cls(weights=weights, **{name: _to_tuples(value) for name, value in rest.items()})


def _merge_matrix(groups: TokenGroups, tokens: int, include_end: bool) -> Float[Tensor, "tokens words"]:
    """A matrix that has 1 where a token belongs to a word."""
    if include_end:
        groups = (*groups, (tokens - 1,))
    matrix = torch.zeros(tokens, len(groups))
    words = [word for word, group in enumerate(groups) for _ in group]
    matrix[[position for group in groups for position in group], words] = 1
    return matrix


def _format_word(word: str) -> str:
    return escape(word if len(word) <= MAX_WORD_LENGTH else word[: MAX_WORD_LENGTH - 1] + "…")


def _format_cell(share: float) -> str:
    """A cell of the table, blue as deep as its share of the largest weight."""
    return f'<td style="padding:0;min-width:1.5em;height:1.5em;background:rgba(20,63,120,{share:.3f})"></td>'


def _to_lists(value: Any) -> Any:
    return [_to_lists(item) for item in value] if isinstance(value, tuple) else value


def _to_tuples(value: Any) -> Any:
    return tuple(_to_tuples(item) for item in value) if isinstance(value, list) else value


def _round_nested(value: Any, digits: int) -> Any:
    return (
        [_round_nested(item, digits) for item in value] if isinstance(value, list) else round(value, digits)
    )


def replace_unknown(
    alignment: Alignment,
    unknown: Collection[int],
    dictionary: Mapping[str, str] | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> tuple[str, ...]:
    """The target words, those with an unknown token replaced by the source word it looked at most.

    Luong et al. (2015), arXiv 1410.8206, with attention in the place of their aligner; names and numbers
    mostly survive it. `unknown` are positions of target tokens. A word of the `dictionary` is translated by
    it, others are copied as they are. The words are those of the alignment, so give it source words as they
    were written: the pieces of an unknown one may not tell. The end of the sentence is never copied; a word that
    looked at nothing else stays as it is.

    >>> weights = torch.tensor([[[[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]]]])
    >>> seen = Alignment(("<unk>", "lacht", "</s>"), ("<unk>", "laughs"), weights, target_end=False,
    ...                  source_words=("Ottilie", "lacht"))
    >>> replace_unknown(seen, [0])
    ('Ottilie', 'laughs')
    """
    words = list(alignment.words_of("target"))
    names = alignment.words_of("source")
    for place, group in enumerate(alignment.groups("target")):
        pieces = tuple(position for position in group if position in unknown)
        if not pieces or not names:
            continue
        weights = _attention_mass(alignment, pieces, layer, head)
        if weights.any():
            word = names[int(weights.argmax())]
            words[place] = (dictionary or {}).get(word, word)
    return tuple(words)


def _attention_mass(
    alignment: Alignment, pieces: tuple[int, ...], layer: int | None, head: int | None
) -> Tensor:
    """How much these target tokens look at each source word."""
    alone = replace(alignment, target_groups=(pieces,), target_words=None)
    return alone.select_head(layer, head).merge_words(renormalize=False).weights.flatten()
