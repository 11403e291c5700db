"""What cannot be drawn is refused in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import ShapeError, UsageError


def tensor_of(given: Tensor | NDArray[Any]) -> Tensor:
    """A tensor, or an array as one."""
    # A copy, since torch complains of arrays that it may not write to, and takes none that run backwards.
    return given if isinstance(given, Tensor) else torch.as_tensor(np.array(given, order="C"))


def numbers(who: str, tensor: Tensor | NDArray[Any], axes: str) -> Any:
    """The tensor as an array of float32 or float64, if it has these axes and something in it."""
    tensor = tensor_of(tensor)
    if tensor.dim() != len(axes.split()):
        raise ShapeError(
            f"{who} draws a tensor of shape ({', '.join(axes.split())}), not {tuple(tensor.shape)}."
        )
    if not tensor.numel():
        raise ShapeError(f"{who}: there is nothing to draw in a tensor of shape {tuple(tensor.shape)}.")
    half = tensor.is_floating_point() and tensor.dtype != torch.float64
    array = tensor.detach().cpu().to(torch.float32 if half else torch.float64).numpy()
    if np.isinf(array).any():
        raise UsageError(f"{who}: some numbers are infinite; are these scores, before the normalizer?")
    return array


def known(who: str, tensor: Tensor | NDArray[Any], axes: str) -> Any:
    """As `numbers`, and none of them NaN."""
    array = numbers(who, tensor, axes)
    if np.isnan(array).any():
        raise UsageError(f"{who}: some numbers are NaN, and there is no place for them in this picture.")
    return array


def weights(who: str, tensor: Tensor | NDArray[Any], axes: str) -> Any:
    """As `numbers`, and none of them negative."""
    array = numbers(who, tensor, axes)
    if (array < 0).any():
        raise UsageError(f"{who} draws weights, which are never negative; these are: scores, perhaps?")
    return array


def labels(who: str, what: str, given: Sequence[object] | None, count: int) -> list[str] | None:
    """The labels as texts, if there is one for each."""
    if given is None:
        return None
    if isinstance(given, str):
        raise UsageError(f"{who}: the labels of the {what}s are one text; give a list of them.")
    if len(given) != count:
        raise UsageError(f"{who} was given {len(given)} {what} labels for {count} {what}s.")
    return [str(label) for label in given]


def top(who: str, given: float | None, array: Any) -> float:
    """The weight that gets the darkest color: the one given, or the largest there is."""
    if given is not None:
        if not 0 < given < float("inf"):
            raise UsageError(f"{who}: top is the weight with the darkest color, above 0, but it is {given}.")
        return float(given)
    return largest(array) or 1.0


def largest(array: Any) -> float:
    """The largest number, NaN left out; 0 if there is none above it."""
    return float(np.max(array, where=~np.isnan(array), initial=0.0))


def same(who: str, **sizes: int | None) -> None:
    """The sizes that are there must be the same number."""
    known = {name: size for name, size in sizes.items() if size is not None}
    if len(set(known.values())) > 1:
        raise UsageError(
            f"{who}: these must go together, but " + ", ".join(f"{k} {v}" for k, v in known.items())
        )
