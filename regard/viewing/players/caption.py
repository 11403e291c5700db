"""An image and what was said of it, word by word, lit where each word looked: a page in one file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import interpolate

from regard.errors import ShapeError, UsageError
from regard.viewing._images import as_image
from regard.viewing.players._player import STYLES, Player
from regard.viewing.web import page, quantized

LONGEST = 800  # pixels of a side: a larger image is made smaller


def caption(
    image: Any,
    words: Sequence[str],
    weights: Float[Tensor, "words down across"] | None,
    probabilities: Sequence[float],
    *,
    title: str | None = None,
    language: str | None = None,
) -> Player:
    """A page with an image and its caption: each word lights the part of the image that it looked at.

    `image` is (height, width) or (height, width, 3); `weights` is a grid over it for each word, or None for a model
    without attention.

    >>> caption(torch.rand(32, 48, 3), ["a", "dog"], torch.rand(2, 4, 6), [0.9, 0.4])
    Player(... characters of HTML)
    """
    if language not in (None, "en", "zh"):
        raise UsageError(f"A player speaks 'en' or 'zh', not {language!r}.")
    if not words or len(words) != len(probabilities):
        raise UsageError(f"caption shows at least one word with its probability, not {len(words)} words.")
    if weights is not None and (weights.dim() != 3 or len(weights) != len(words)):
        raise ShapeError(f"caption takes a grid for each of {len(words)} words, not {tuple(weights.shape)}.")
    pixels = _smaller(as_image("caption", image))
    told = title or " ".join(words)
    data = {
        "title": told,
        "words": list(words),
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
        blocks["weights"] = quantized(weights)
    styles = (*STYLES, "caption.css")
    return Player(page(told, ["caption.js"], data, blocks=blocks, styles=styles, language=language))


def _smaller(pixels: Any) -> Any:
    ratio = LONGEST / max(pixels.shape[:2])
    if ratio >= 1:
        return pixels
    size = [max(1, round(side * ratio)) for side in pixels.shape[:2]]
    given = torch.as_tensor(pixels).permute(2, 0, 1)[None]
    return interpolate(given, size, mode="bilinear", antialias=True)[0].permute(1, 2, 0).clamp(0, 1).numpy()
