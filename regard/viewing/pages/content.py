"""Pages of attention heads, image captions and classified documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from regard.errors import UsageError
from regard.viewing import _arrays as arrays
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
    arrays.check_axes("head_grid", weights, "layers heads queries keys")
    if bool(((weights < 0) | (weights > MAX_WEIGHT)).any()):
        raise UsageError("head_grid: weights must be from 0 to 1; pass weights, not scores.")
    arrays.validate_equal_sizes("head_grid", queries=weights.shape[2], query_tokens=len(query_tokens))
    arrays.validate_equal_sizes("head_grid", keys=weights.shape[3], key_tokens=len(key_tokens))
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
    if not tokens:
        raise UsageError("caption_page requires at least one word.")
    if weights is not None:
        arrays.check_axes("caption_page", weights, "words rows columns")
    sizes = {"probabilities": len(probabilities), "weights": None if weights is None else len(weights)}
    arrays.validate_equal_sizes("caption_page", words=len(tokens), **sizes)
    pixels = arrays.as_image("caption_page", image)
    if (ratio := MAX_IMAGE_SIDE / max(pixels.shape[:2])) < 1:
        height, width = (max(1, round(side * ratio)) for side in pixels.shape[:2])
        pixels = arrays.resize_image(pixels, (height, width), mode="bilinear", antialias=True)
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
    if not tokens or not all(tokens):
        raise UsageError("document_page requires at least one sentence, and a word in every sentence.")
    word_weights, shares = arrays.validate_document("document_page", tokens, weights, sentence_weights)
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
                "weight": shares[i],
                "weights": word_weights[i],
            }
            for i, words in enumerate(tokens)
        ],
        "truncation": dict(truncation or {}),
    }
    return HtmlPage.build(title or label, ["document.js"], data, None, language, styles=["document.css"])
