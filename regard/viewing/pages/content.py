"""Pages of attention heads, image captions and classified documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from regard.errors import ShapeError, UsageError
from regard.viewing._arrays import as_image, resize_image
from regard.viewing.pages.page import HtmlPage, quantize_heads, quantize_uint16

__all__ = ["build_thumbnails", "caption_page", "document_page", "head_grid"]

MAX_THUMBNAIL_SIDE = 40  # pixels
MAX_WEIGHT = 1.01  # 1 with rounding
MAX_IMAGE_SIDE = 800  # pixels; larger images are reduced


def head_grid(
    weights: Float[Tensor, "layers heads queries keys"],
    query_tokens: Sequence[str],
    key_tokens: Sequence[str] | None = None,
    *,
    title: str = "Attention",
    language: str | None = None,
) -> HtmlPage:
    """Build a page with a thumbnail of every head and a heatmap of the selected one.

    Maps of 512 x 512 and more are supported: a map is unpacked on first use and painted on one canvas.

    Args:
        weights: attention weights
        query_tokens: the tokens of the queries
        key_tokens: the tokens of the keys; None: as the queries
        title: the title of the page
        language: "en" or "zh"; None: that of the browser

    Shape:
        weights (layers, heads, queries, keys)

    Example:
        >>> head_grid(torch.rand(2, 4, 3, 3).softmax(-1), ["a", "black", "cat"])
        HtmlPage(... characters)
    """
    key_tokens = query_tokens if key_tokens is None else key_tokens
    _validate_head_grid(weights, query_tokens, key_tokens)
    thumbnails = build_thumbnails(weights)
    data = {
        "title": title,
        "queries": list(query_tokens),
        "keys": list(key_tokens),
        "layers": weights.shape[0],
        "heads": weights.shape[1],
        "thumb": list(thumbnails.shape[2:]),
    }
    blocks = {"thumbs": thumbnails.numpy().tobytes(), **quantize_heads(weights)}
    return HtmlPage.build(title, ["heads.js"], data, blocks, language)


def build_thumbnails(weights: Float[Tensor, "layers heads queries keys"]) -> UInt8[Tensor, "layers heads height width"]:
    """Reduce heads to thumbnails: each pixel is the maximum of its weights, 255 the maximum of its head.

    Args:
        weights: the weights of all heads

    Shape:
        (layers, heads, queries, keys) -> (layers, heads, height, width)

    Returns:
        The pixels, from 0 to 255.
    """
    size = [min(MAX_THUMBNAIL_SIDE, side) for side in weights.shape[2:]]
    pooled = nn.functional.adaptive_max_pool2d(weights.detach().cpu().float().flatten(0, 1), size)
    vmax = pooled.amax((-2, -1), keepdim=True).clamp(min=1e-9)
    return (pooled / vmax * 255).round().to(torch.uint8).unflatten(0, weights.shape[:2])


def caption_page(
    image: Any,
    tokens: Sequence[str],
    weights: Float[Tensor, "tokens rows columns"] | None,
    probabilities: Sequence[float],
    *,
    title: str | None = None,
    language: str | None = None,
) -> HtmlPage:
    """Build a page with an image and its caption: the image is lit by the attention weights of the selected word.

    Args:
        image: (height, width) or (height, width, 3)
        tokens: the words of the caption
        weights: a grid over the image for each word; None for a model without attention
        probabilities: the probability of each word
        title: the title of the page; None: the caption
        language: "en" or "zh"; None: that of the browser

    Shape:
        weights (tokens, rows, columns)

    Example:
        >>> caption_page(torch.rand(32, 48, 3), ["a", "dog"], torch.rand(2, 4, 6), [0.9, 0.4])
        HtmlPage(... characters)
    """
    if not tokens or len(tokens) != len(probabilities):
        raise UsageError(
            f"caption_page requires a probability for each word, got {len(probabilities)} for {len(tokens)} words."
        )
    if weights is not None and (weights.dim() != 3 or len(weights) != len(tokens)):
        raise ShapeError(
            f"caption_page expects weights ({len(tokens)} words, rows, columns), got {tuple(weights.shape)}."
        )
    pixels = as_image("caption_page", image)
    if (ratio := MAX_IMAGE_SIDE / max(pixels.shape[:2])) < 1:
        height, width = (max(1, round(side * ratio)) for side in pixels.shape[:2])
        pixels = resize_image(pixels, (height, width), mode="bilinear", antialias=True)
    title = title or " ".join(tokens)
    data = {
        "title": title,
        "tokens": list(tokens),
        "probabilities": [float(probability) for probability in probabilities],
        "hasAttention": weights is not None,
        "gridRows": 0 if weights is None else weights.shape[1],
        "gridColumns": 0 if weights is None else weights.shape[2],
        "height": pixels.shape[0],
        "width": pixels.shape[1],
    }
    blocks = {"image": np.round(pixels * 255).astype(np.uint8).tobytes()}
    if weights is not None:
        blocks["weights"] = quantize_uint16(weights)
    return HtmlPage.build(title, ["caption.js"], data, blocks, language, styles=["caption.css"])


def document_page(
    tokens: Sequence[Sequence[str]],
    weights: Sequence[Sequence[float]] | None,
    sentence_weights: Sequence[float] | None,
    *,
    probabilities: Mapping[str, float],
    space_before: Sequence[Sequence[bool]] | None = None,
    title: str | None = None,
    truncation: Mapping[str, int] | None = None,
    language: str | None = None,
) -> HtmlPage:
    """Build a page of a classified document: a bar per sentence, and words shaded by their weight in the document.

    The weight of a word in the document is its weight in the sentence times the weight of the sentence.

    Args:
        tokens: the words of each sentence
        weights: the weights of the words of each sentence; None for a model without attention
        sentence_weights: the weight of each sentence; None for a model without attention
        probabilities: of the classes, the most probable first
        space_before: whether there is a space before each word; None: always
        title: the title of the page; None: the most probable class
        truncation: the number of "sentences" and "words" that were left out
        language: "en" or "zh"; None: that of the browser

    Example:
        >>> document_page([["so", "good"]], [[0.1, 0.9]], [1.0], probabilities={"pos": 0.97, "neg": 0.03})
        HtmlPage(... characters)
    """
    _validate_document(tokens, weights, sentence_weights)
    label = next(iter(probabilities), "")
    data = {
        "title": title,
        "label": label,
        "probabilities": list(probabilities.items()),
        "hasAttention": weights is not None,
        "sentences": [
            {
                "tokens": list(words),
                "spaceBefore": [True] * len(words) if space_before is None else list(space_before[i]),
                "weight": 0 if sentence_weights is None else float(sentence_weights[i]),
                "weights": [0] * len(words) if weights is None else [float(weight) for weight in weights[i]],
            }
            for i, words in enumerate(tokens)
        ],
        "truncation": dict(truncation or {}),
    }
    return HtmlPage.build(title or label, ["document.js"], data, None, language, styles=["document.css"])


def _validate_head_grid(weights: Tensor, query_tokens: Sequence[str], key_tokens: Sequence[str]) -> None:
    if weights.dim() != 4 or not weights.numel():
        raise ShapeError(f"head_grid expects weights (layers, heads, queries, keys), got {tuple(weights.shape)}.")
    if bool(((weights < 0) | (weights > MAX_WEIGHT)).any()):
        raise UsageError("head_grid: weights must be from 0 to 1; pass weights, not scores.")
    if tuple(weights.shape[2:]) != (len(query_tokens), len(key_tokens)):
        counts = f"{len(query_tokens)} query tokens and {len(key_tokens)} key tokens"
        raise ShapeError(f"head_grid: got {counts} for weights {tuple(weights.shape)}.")


def _validate_document(tokens: Sequence[Sequence[Any]], weights: Any, sentence_weights: Any) -> None:
    if not tokens or not all(tokens):
        raise UsageError("document_page requires at least one sentence, and a word in every sentence.")
    if weights is None and sentence_weights is None:
        return
    if weights is None or sentence_weights is None or len(sentence_weights) != len(tokens):
        raise UsageError(f"document_page requires weights and a sentence weight for {len(tokens)} sentences.")
    if [len(row) for row in weights] != [len(row) for row in tokens]:
        raise UsageError("document_page requires one weight for each word of every sentence.")
