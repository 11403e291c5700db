"""The translation player: step by step through a translation, as it was searched and written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from regard.errors import ShapeError, UsageError
from regard.viewing.pages.page import HtmlPage, quantize_uint16


@dataclass(frozen=True)
class TokenizedText:
    """A text with its tokens, and which of them make up which word; `end`: the last token ends the sentence."""

    text: str
    tokens: Sequence[str]
    words: Sequence[str] | None = None
    groups: Sequence[Sequence[int]] | None = None
    end: bool = True

    def __post_init__(self) -> None:
        if (self.words is None) != (self.groups is None):
            raise UsageError("Sentence: give words and groups, or neither of them.")
        if self.words is not None and len(self.words) != len(self.groups or ()):
            raise UsageError(f"Sentence: {len(self.words)} words, but {len(self.groups or ())} groups.")
        known = range(len(self.tokens))
        if any(place not in known for group in self.groups or () for place in group):
            raise UsageError(f"Sentence: groups are positions in tokens, from 0 to {len(self.tokens) - 1}.")

    def to_page_data(self, side: str) -> dict[str, Any]:
        single = self.tokens[: len(self.tokens) - self.end]
        return {
            side: list(self.tokens),
            f"{side}Words": list(single if self.words is None else self.words),
            f"{side}Groups": [[i] for i in range(len(single))]
            if self.groups is None
            else _to_lists(self.groups),
            f"{side}End": int(self.end),
        }


@dataclass(frozen=True)
class BeamNode:
    """A token on the beam: its probability `p`, the score up to it, its parent's place in the step before."""

    text: str
    p: float
    score: float
    parent: int = -1
    end: bool = False


@dataclass(frozen=True)
class NextToken:
    """What could have been written at a step, with its probability."""

    text: str
    p: float
    chosen: bool = False


@dataclass(frozen=True)
class TranslationPageData:
    """All that is known of one translation.

    `next` has the options of every target token. `tree` has the beam of every step, and `path` the place of the
    winner in each; both are empty for a translation that was given. `weights` are those of the tokens, None
    for a model without attention. `faith` says by language how far the weights can be trusted.
    """

    source: TokenizedText
    target: TokenizedText
    next_tokens: Sequence[Sequence[NextToken]]
    score: float
    weights: Float[Tensor, "layers heads target source"] | None = None
    tree: Sequence[Sequence[BeamNode]] = ()
    best_path: Sequence[int] = ()
    beam_size: int = 1
    forced: bool = False
    faithfulness: dict[str, str] | None = None

    def __post_init__(self) -> None:
        tokens = len(self.target.tokens)
        if not tokens or not self.source.tokens:
            raise UsageError("There is nothing to play: the text or its translation has no tokens.")
        if len(self.next_tokens) != tokens:
            raise UsageError(
                f"Decoded: options for {len(self.next_tokens)} steps, but {tokens} target tokens."
            )
        if len(self.best_path) != len(self.tree) or (self.tree and len(self.tree) < tokens):
            raise UsageError(
                f"Decoded: tree and path go from step to step, but have {len(self.tree)} and {len(self.best_path)}"
                f" for {tokens} target tokens."
            )
        size = (tokens, len(self.source.tokens))
        if self.weights is not None and self.weights.shape[2:] != size:
            raise ShapeError(f"Decoded: weights must be (layers, heads, {size[0]}, {size[1]}).")


def translation_page(
    page_data: TranslationPageData,
    *,
    layer: int | None = None,
    head: int | None = None,
    merge_tokens: bool = True,
    language: str | None = None,
) -> HtmlPage:
    """A page that goes through a translation step by step.

    Source words are lit by the weights of the step, with how much regard each has had so far; beside them what
    else could have come, the alignment as it fills in, and the beam as a tree. It begins with the average over
    layers and heads unless one is named, and with words unless `merged` is False.

    >>> word = TokenizedText("chat", ["chat", "</s>"])
    >>> options = [[NextToken("cat", 0.9, chosen=True)], [NextToken("</s>", 1.0, chosen=True)]]
    >>> weights = torch.tensor([[[[0.9, 0.1], [0.2, 0.8]]]])
    >>> translation_page(TranslationPageData(word, TokenizedText("cat", ["cat", "</s>"]), options, -0.1, weights))
    Player(... characters of HTML)
    """
    weights = page_data.weights
    layers, heads = (0, 0) if weights is None else weights.shape[:2]
    data = {
        "text": [page_data.source.text, page_data.target.text],
        **page_data.source.to_page_data("source"),
        **page_data.target.to_page_data("target"),
        "layers": layers,
        "heads": heads,
        "layer": _validate_index("layer", layer, layers),
        "head": _validate_index("head", head, heads),
        "merged": merge_tokens,
        "next": [[vars(option) for option in step] for step in page_data.next_tokens],
        "tree": [[vars(node) for node in step] for step in page_data.tree[: len(page_data.target.tokens)]],
        "path": list(page_data.best_path[: len(page_data.target.tokens)]),
        "score": page_data.score,
        "beam": page_data.beam_size,
        "forced": page_data.forced,
        "faith": page_data.faithfulness,
    }
    blocks = {
        f"w-{layer}-{head}": quantize_uint16(one)
        for layer, several in enumerate([] if weights is None else weights)
        for head, one in enumerate(several)
    }
    return HtmlPage.build(
        f"{page_data.source.text} → {page_data.target.text}", ["translation.js"], data, blocks, language
    )


def _validate_index(name: str, index: int | None, count: int) -> int | None:
    if index is not None and not 0 <= index < count:
        raise UsageError(f"There is no {name} {index}; this model has {count}, counted from 0.")
    return index


def _to_lists(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(group) for group in groups]
