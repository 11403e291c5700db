"""The page of a translation: weights, next tokens, alignment and beam search, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from regard.errors import UsageError
from regard.viewing._arrays import validate_equal_sizes
from regard.viewing.pages.page import HtmlPage, quantize_heads

__all__ = ["BeamNode", "NextToken", "TokenizedSentence", "TranslationPageData", "translation_page"]


@dataclass(frozen=True)
class TokenizedSentence:
    """A text with its tokens, and optionally the words that they belong to.

    Args:
        text: the text
        tokens: its tokens
        words: its words; None: every token is a word
        groups: for each word, the indices of its tokens
        end: whether the last token is the end of the sentence

    Example:
        >>> TokenizedSentence("Katze", ["Kat", "ze", "</s>"], words=["Katze"], groups=[[0, 1]]).end
        True
    """

    text: str
    tokens: Sequence[str]
    words: Sequence[str] | None = None
    groups: Sequence[Sequence[int]] | None = None
    end: bool = True

    def __post_init__(self) -> None:
        if (self.words is None) != (self.groups is None):
            raise UsageError("TokenizedSentence requires words and groups, or neither.")
        if self.words is not None and len(self.words) != len(self.groups or ()):
            raise UsageError(f"TokenizedSentence: got {len(self.words)} words, but {len(self.groups or ())} groups.")
        valid = range(len(self.tokens))
        if any(index not in valid for group in self.groups or () for index in group):
            raise UsageError(f"TokenizedSentence: groups are indices of tokens, from 0 to {len(self.tokens) - 1}.")

    def to_page_data(self, side: str) -> dict[str, Any]:
        """The fields as JSON, with names that begin with `side`."""
        tokens = self.tokens[: len(self.tokens) - self.end]
        groups = [[i] for i in range(len(tokens))] if self.groups is None else map(list, self.groups)
        return {
            side: list(self.tokens),
            f"{side}Words": list(tokens if self.words is None else self.words),
            f"{side}Groups": list(groups),
            f"{side}End": int(self.end),
        }


@dataclass(frozen=True)
class BeamNode:
    """A token on the beam.

    Args:
        text: the token
        p: its probability
        score: the score of the hypothesis up to this token
        parent: the index of its parent in the previous step
        end: whether the hypothesis is finished

    Example:
        >>> BeamNode("cat", p=0.9, score=-0.1).parent
        -1
    """

    text: str
    p: float
    score: float
    parent: int = -1
    end: bool = False


@dataclass(frozen=True)
class NextToken:
    """A candidate for the next token.

    Args:
        text: the token
        p: its probability
        chosen: whether it is the next token of the translation

    Example:
        >>> NextToken("cat", p=0.9, chosen=True).text
        'cat'
    """

    text: str
    p: float
    chosen: bool = False


@dataclass(frozen=True)
class TranslationPageData:
    """The data of `translation_page`.

    Args:
        source: the source text
        target: the translation
        next_tokens: for every target token, the candidates at its step
        score: the score of the translation
        weights: attention weights of the tokens; None for a model without attention
        tree: the beam of every step; empty for a given translation
        best_path: for every step of `tree`, the index of the node of the best hypothesis
        beam_size: the number of hypotheses on the beam
        forced: whether the translation was given (forced decoding)
        faithfulness: by language, a sentence about the faithfulness of the weights

    Shape:
        weights (layers, heads, target, source)

    Example:
        >>> text = TokenizedSentence("a", ["a", "</s>"])
        >>> next_tokens = [[NextToken("a", 0.9, True)], [NextToken("</s>", 0.8, True)]]
        >>> TranslationPageData(text, text, next_tokens, score=-0.3).beam_size
        1
    """

    source: TokenizedSentence
    target: TokenizedSentence
    next_tokens: Sequence[Sequence[NextToken]]
    score: float
    weights: Float[Tensor, "layers heads target source"] | None = None
    tree: Sequence[Sequence[BeamNode]] = ()
    best_path: Sequence[int] = ()
    beam_size: int = 1
    forced: bool = False
    faithfulness: dict[str, str] | None = None

    def __post_init__(self) -> None:
        steps = len(self.target.tokens)
        if not steps or not self.source.tokens:
            raise UsageError("TranslationPageData: the source or the target has no tokens.")
        if len(self.best_path) != len(self.tree) or (self.tree and len(self.tree) < steps):
            raise UsageError(
                f"TranslationPageData: tree and best_path need an entry for each of {steps} target tokens, "
                f"but have {len(self.tree)} and {len(self.best_path)}."
            )
        queries, keys = (None, None) if self.weights is None else self.weights.shape[2:]
        sizes = {"steps_of_next_tokens": len(self.next_tokens), "queries_of_weights": queries}
        if any(size not in (None, steps) for size in sizes.values()):
            validate_equal_sizes("TranslationPageData", target_tokens=steps, **sizes)
        if keys not in (None, len(self.source.tokens)):
            validate_equal_sizes("TranslationPageData", source_tokens=len(self.source.tokens), keys_of_weights=keys)


def translation_page(
    page_data: TranslationPageData,
    *,
    layer: int | None = None,
    head: int | None = None,
    merge_tokens: bool = True,
    language: str | None = None,
) -> HtmlPage:
    """Build a page that shows a translation step by step.

    Each step has the attention weights and the coverage of the source words, the candidates for the next token, the
    alignment so far, and the beam as a tree.

    Args:
        page_data: the translation
        layer: the initial layer; None: the mean
        head: the initial head; None: the mean
        merge_tokens: show words instead of tokens at first
        language: "en" or "zh"; None: that of the browser

    Example:
        >>> source = TokenizedSentence("chat", ["chat", "</s>"])
        >>> target = TokenizedSentence("cat", ["cat", "</s>"])
        >>> next_tokens = [[NextToken("cat", 0.9, chosen=True)], [NextToken("</s>", 1.0, chosen=True)]]
        >>> weights = torch.tensor([[[[0.9, 0.1], [0.2, 0.8]]]])
        >>> translation_page(TranslationPageData(source, target, next_tokens, -0.1, weights))
        HtmlPage(... characters)
    """
    source, target, weights = page_data.source, page_data.target, page_data.weights
    layers, heads = (0, 0) if weights is None else weights.shape[:2]
    steps = len(target.tokens)
    data = {
        "text": [source.text, target.text],
        **source.to_page_data("source"),
        **target.to_page_data("target"),
        "layers": layers,
        "heads": heads,
        "layer": _validate_index("layer", layer, layers),
        "head": _validate_index("head", head, heads),
        "mergeTokens": merge_tokens,
        "nextTokens": [[vars(token) for token in step] for step in page_data.next_tokens],
        "tree": [[vars(node) for node in step] for step in page_data.tree[:steps]],
        "bestPath": list(page_data.best_path[:steps]),
        "score": page_data.score,
        "beamSize": page_data.beam_size,
        "forced": page_data.forced,
        "faithfulness": page_data.faithfulness,
    }
    blocks = None if weights is None else quantize_heads(weights)
    return HtmlPage.build(f"{source.text} → {target.text}", ["translation.js"], data, blocks, language)


def _validate_index(name: str, index: int | None, count: int) -> int | None:
    if index is not None and not 0 <= index < count:
        raise UsageError(f"no {name} {index}; this model has {count}, counted from 0")
    return index
