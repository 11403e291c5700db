"""Every head of every layer at a glance, and one of them large: also for 512 tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from regard.errors import ShapeError, UsageError
from regard.viewing.players._player import Player
from regard.viewing.web import quantized

THUMB = 40  # pixels a side at most
MOST = 1.01  # a weight, with some rounding


def heads(
    weights: Float[Tensor, "layers heads queries keys"],
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    title: str = "Attention",
    language: str | None = None,
) -> Player:
    """A page with a thumbnail of every head, and the one that is chosen as a large map; without `keys`, as queries.

    A map of 512 x 512 is unpacked when it is looked at, and painted on one canvas.

    >>> heads(torch.rand(2, 4, 3, 3).softmax(-1), ["a", "black", "cat"])
    Player(... characters of HTML)
    """
    keys = queries if keys is None else keys
    _check(weights, queries, keys)
    thumbs = thumbnails(weights)
    data = {
        "title": title,
        "queries": list(queries),
        "keys": list(keys),
        "layers": weights.shape[0],
        "heads": weights.shape[1],
        "thumb": list(thumbs.shape[2:]),
    }
    blocks = {"thumbs": thumbs.numpy().tobytes()}
    for layer, several in enumerate(weights):
        for head, one in enumerate(several):
            blocks[f"w-{layer}-{head}"] = quantized(one)
    return Player.of(title, ["heads.js"], data, blocks, language)


def thumbnails(
    weights: Float[Tensor, "layers heads queries keys"],
) -> UInt8[Tensor, "layers heads high wide"]:
    """The heads made small: each pixel has the largest weight under it, and 255 is the largest of its head."""
    size = [min(THUMB, side) for side in weights.shape[2:]]
    small = nn.functional.adaptive_max_pool2d(weights.detach().cpu().float().flatten(0, 1), size)
    top = small.amax((-2, -1), keepdim=True).clamp(min=1e-9)
    return (small / top * 255).round().to(torch.uint8).unflatten(0, weights.shape[:2])


def _check(weights: Tensor, queries: Sequence[str], keys: Sequence[str]) -> None:
    if weights.dim() != 4 or not weights.numel():
        raise ShapeError(f"heads shows weights (layers, heads, queries, keys), not {tuple(weights.shape)}.")
    if bool(((weights < 0) | (weights > MOST)).any()):
        raise UsageError("heads shows weights, from 0 to 1, and these are not: scores, perhaps?")
    if tuple(weights.shape[2:]) != (len(queries), len(keys)):
        raise ShapeError(
            f"heads was given {len(queries)} queries and {len(keys)} keys for weights {tuple(weights.shape)}."
        )
