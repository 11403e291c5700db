"""Every head of every layer at a glance, and one of them large: also for 512 tokens.

An image and what was said of it, word by word, lit where each word looked: a page in one file.

A document that was read, its sentences and words lit by their weights: a page in one file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.functional import interpolate

from regard.errors import ShapeError, UsageError
from regard.viewing._arrays import as_image
from regard.viewing.pages.page import STYLE_SHEETS, HtmlPage, build_page, quantize_uint16

MAX_THUMBNAIL_SIDE = 40  # pixels a side at most


MAX_WEIGHT = 1.01  # a weight, with some rounding


def head_grid(
    weights: Float[Tensor, "layers heads queries keys"],
    query_tokens: Sequence[str],
    key_tokens: Sequence[str] | None = None,
    *,
    title: str = "Attention",
    language: str | None = None,
) -> HtmlPage:
    """A page with a thumbnail of every head, and the one that is chosen as a large map; without `keys`, as queries.

    A map of 512 x 512 is unpacked when it is looked at, and painted on one canvas.

    >>> head_grid(torch.rand(2, 4, 3, 3).softmax(-1), ["a", "black", "cat"])
    Player(... characters of HTML)
    """
    key_tokens = query_tokens if key_tokens is None else key_tokens
    _validate_head_grid(weights, query_tokens, key_tokens)
    thumbs = build_thumbnails(weights)
    data = {
        "title": title,
        "queries": list(query_tokens),
        "keys": list(key_tokens),
        "layers": weights.shape[0],
        "heads": weights.shape[1],
        "thumb": list(thumbs.shape[2:]),
    }
    blocks = {"thumbs": thumbs.numpy().tobytes()}
    for layer, several in enumerate(weights):
        for head, one in enumerate(several):
            blocks[f"w-{layer}-{head}"] = quantize_uint16(one)
    return HtmlPage.build(title, ["heads.js"], data, blocks, language)


def build_thumbnails(
    weights: Float[Tensor, "layers heads queries keys"],
) -> UInt8[Tensor, "layers heads high wide"]:
    """The heads made small: each pixel has the largest weight under it, and 255 is the largest of its head."""
    size = [min(MAX_THUMBNAIL_SIDE, side) for side in weights.shape[2:]]
    small = nn.functional.adaptive_max_pool2d(weights.detach().cpu().float().flatten(0, 1), size)
    top = small.amax((-2, -1), keepdim=True).clamp(min=1e-9)
    return (small / top * 255).round().to(torch.uint8).unflatten(0, weights.shape[:2])


def _validate_head_grid(weights: Tensor, query_tokens: Sequence[str], key_tokens: Sequence[str]) -> None:
    if weights.dim() != 4 or not weights.numel():
        raise ShapeError(f"heads shows weights (layers, heads, queries, keys), not {tuple(weights.shape)}.")
    if bool(((weights < 0) | (weights > MAX_WEIGHT)).any()):
        raise UsageError("heads shows weights, from 0 to 1, and these are not: scores, perhaps?")
    if tuple(weights.shape[2:]) != (len(query_tokens), len(key_tokens)):
        raise ShapeError(
            f"heads was given {len(query_tokens)} queries and {len(key_tokens)} keys for weights {tuple(weights.shape)}."
        )


MAX_IMAGE_SIDE = 800  # pixels of a side: a larger image is made smaller


def caption_page(
    image: Any,
    tokens: Sequence[str],
    weights: Float[Tensor, "words down across"] | None,
    probabilities: Sequence[float],
    *,
    title: str | None = None,
    language: str | None = None,
) -> HtmlPage:
    """A page with an image and its caption: each word lights the part of the image that it looked at.

    `image` is (height, width) or (height, width, 3); `weights` is a grid over it for each word, or None for a model
    without attention.

    >>> caption_page(torch.rand(32, 48, 3), ["a", "dog"], torch.rand(2, 4, 6), [0.9, 0.4])
    Player(... characters of HTML)
    """
    if language not in (None, "en", "zh"):
        raise UsageError(f"A player speaks 'en' or 'zh', not {language!r}.")
    if not tokens or len(tokens) != len(probabilities):
        raise UsageError(f"caption shows at least one word with its probability, not {len(tokens)} words.")
    if weights is not None and (weights.dim() != 3 or len(weights) != len(tokens)):
        raise ShapeError(f"caption takes a grid for each of {len(tokens)} words, not {tuple(weights.shape)}.")
    pixels = _shrink_image(as_image("caption", image))
    told = title or " ".join(tokens)
    data = {
        "title": told,
        "words": list(tokens),
        "probabilities": [float(share) for share in probabilities],
        "attends": weights is not None,
        "down": 0 if weights is None else weights.shape[1],
        "across": 0 if weights is None else weights.shape[2],
        "height": pixels.shape[0],
        "width": pixels.shape[1],
        "language": language,
    }
    blocks = {"image": np.round(pixels * 255).astype(np.uint8).tobytes()}
    if weights is not None:
        blocks["weights"] = quantize_uint16(weights)
    styles = (*STYLE_SHEETS, "caption.css")
    return HtmlPage(build_page(told, ["caption.js"], data, blocks=blocks, styles=styles, language=language))


def _shrink_image(pixels: Any) -> Any:
    ratio = MAX_IMAGE_SIDE / max(pixels.shape[:2])
    if ratio >= 1:
        return pixels
    size = [max(1, round(side * ratio)) for side in pixels.shape[:2]]
    given = torch.as_tensor(pixels).permute(2, 0, 1)[None]
    return interpolate(given, size, mode="bilinear", antialias=True)[0].permute(1, 2, 0).clamp(0, 1).numpy()


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
    """A page with the weight of each sentence as a bar, and each word shaded by its share of the document.

    A word's share is its weight within its sentence times the weight of the sentence. `probabilities` are those
    of the classes, the likeliest first; `gaps` says before which words there is a space; `left` counts what was
    left out of a document too long.

    >>> document_page([["so", "good"]], [[0.1, 0.9]], [1.0], probabilities={"pos": 0.97, "neg": 0.03})
    Player(... characters of HTML)
    """
    if language not in (None, "en", "zh"):
        raise UsageError(f"A player speaks 'en' or 'zh', not {language!r}.")
    _validate_document(tokens, weights, sentence_weights)
    label = next(iter(probabilities), "")
    data = {
        "title": title,
        "label": label,
        "probabilities": list(probabilities.items()),
        "attends": weights is not None,
        "sentences": [
            {
                "words": list(sentence),
                "gaps": list(space_before[place]) if space_before is not None else [True] * len(sentence),
                "weight": 0 if sentence_weights is None else float(sentence_weights[place]),
                "weights": [0] * len(sentence) if weights is None else [float(w) for w in weights[place]],
            }
            for place, sentence in enumerate(tokens)
        ],
        "left": dict(truncation or {}),
        "language": language,
    }
    styles = (*STYLE_SHEETS, "document.css")
    return HtmlPage(build_page(title or label, ["document.js"], data, styles=styles, language=language))


def _validate_document(tokens: Sequence[Sequence[Any]], weights: Any, sentence_weights: Any) -> None:
    if not tokens or not all(tokens):
        raise UsageError("document shows at least one sentence, and every sentence has a word.")
    if weights is None and sentence_weights is None:
        return
    if weights is None or sentence_weights is None or len(sentence_weights) != len(tokens):
        raise UsageError(f"document was given {len(tokens)} sentences, and should have a weight for each.")
    if [len(row) for row in weights] != [len(row) for row in tokens]:
        raise UsageError("document was given words and weights that are not as many in every sentence.")
