"""What cannot be drawn is refused in one sentence.

Images, and the light that weights throw on them.

Masks as cells, and their rules as a person writes them.

A matrix with fewer cells, for where there is not room for all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from regard.attention import Mask
from regard.errors import ShapeError, UsageError
from regard.viewing import _arrays as check


def as_tensor(value: Tensor | NDArray[Any]) -> Tensor:
    """A tensor, or an array as one."""
    # A copy, since torch complains of arrays that it may not write to, and takes none that run backwards.
    return value if isinstance(value, Tensor) else torch.as_tensor(np.array(value, order="C"))


def validate_array(caller: str, tensor: Tensor | NDArray[Any], axis_names: str) -> Any:
    """The tensor as an array of float32 or float64, if it has these axes and something in it."""
    tensor = as_tensor(tensor)
    if tensor.dim() != len(axis_names.split()):
        raise ShapeError(
            f"{caller} draws a tensor of shape ({', '.join(axis_names.split())}), not {tuple(tensor.shape)}."
        )
    if not tensor.numel():
        raise ShapeError(f"{caller}: there is nothing to draw in a tensor of shape {tuple(tensor.shape)}.")
    half = tensor.is_floating_point() and tensor.dtype != torch.float64
    array = tensor.detach().cpu().to(torch.float32 if half else torch.float64).numpy()
    if np.isinf(array).any():
        raise UsageError(f"{caller}: some numbers are infinite; are these scores, before the normalizer?")
    return array


def validate_array_without_nan(caller: str, tensor: Tensor | NDArray[Any], axis_names: str) -> Any:
    """As `numbers`, and none of them NaN."""
    array = validate_array(caller, tensor, axis_names)
    if np.isnan(array).any():
        raise UsageError(f"{caller}: some numbers are NaN, and there is no place for them in this picture.")
    return array


def validate_weights(caller: str, tensor: Tensor | NDArray[Any], axis_names: str) -> Any:
    """As `numbers`, and none of them negative."""
    array = validate_array(caller, tensor, axis_names)
    if (array < 0).any():
        raise UsageError(f"{caller} draws weights, which are never negative; these are: scores, perhaps?")
    return array


def validate_labels(caller: str, axis: str, labels: Sequence[object] | None, count: int) -> list[str] | None:
    """The labels as texts, if there is one for each."""
    if labels is None:
        return None
    if isinstance(labels, str):
        raise UsageError(f"{caller}: the labels of the {axis}s are one text; give a list of them.")
    if len(labels) != count:
        raise UsageError(f"{caller} was given {len(labels)} {axis} labels for {count} {axis}s.")
    return [str(label) for label in labels]


def resolve_vmax(caller: str, vmax: float | None, array: Any) -> float:
    """The weight that gets the darkest color: the one given, or the largest there is."""
    if vmax is not None:
        if not 0 < vmax < float("inf"):
            raise UsageError(
                f"{caller}: top is the weight with the darkest color, above 0, but it is {vmax}."
            )
        return float(vmax)
    return max_ignoring_nan(array) or 1.0


def max_ignoring_nan(array: Any) -> float:
    """The largest number, NaN left out; 0 if there is none above it."""
    return float(np.max(array, where=~np.isnan(array), initial=0.0))


def validate_equal_sizes(caller: str, **sizes: int | None) -> None:
    """The sizes that are there must be the same number."""
    known = {name: size for name, size in sizes.items() if size is not None}
    if len(set(known.values())) > 1:
        raise UsageError(
            f"{caller}: these must go together, but " + ", ".join(f"{k} {v}" for k, v in known.items())
        )


MIN_BRIGHTNESS = 0.16  # of its light is left to what is not looked at


def as_image(caller: str, image: Any) -> Any:
    """An image as an array (height, width, 3) of numbers from 0 to 1."""
    # A copy, since torch complains of arrays that it may not write to, such as those of image files.
    pixels = image.detach().cpu() if isinstance(image, torch.Tensor) else torch.as_tensor(np.array(image))
    if pixels.dim() == 2:
        pixels = pixels.unsqueeze(-1).expand(-1, -1, 3)
    if pixels.dim() != 3 or pixels.shape[-1] != 3 or not pixels.numel():
        hint = "; write image.permute(1, 2, 0)" if pixels.dim() == 3 and pixels.shape[0] == 3 else ""
        shape = tuple(pixels.shape)
        raise ShapeError(f"{caller}: an image is (height, width) or (height, width, 3), not {shape}{hint}.")
    whole_numbers = not pixels.is_floating_point() and pixels.dtype != torch.bool
    pixels = pixels.double() / (255 if whole_numbers else 1)
    if not bool(((pixels >= 0) & (pixels <= 1)).all()):
        raise UsageError(f"{caller}: the image has numbers outside of 0..{255 if whole_numbers else 1}.")
    return pixels.numpy()


def apply_weights_as_light(image: Any, weights: Any, smooth: bool) -> Any:
    """The picture, dark but for where the grid has weight; gray where the grid is not a number."""
    top = check.resolve_vmax("overlay", None, weights)
    cells = torch.as_tensor(weights / top)[None, None]
    size = image.shape[:2]
    how: dict[str, Any] = {"mode": "bicubic", "align_corners": False} if smooth else {"mode": "nearest-exact"}
    light = interpolate(cells.nan_to_num(0.0), size=size, **how)[0, 0].clamp(0, 1).numpy()
    unknown = interpolate(cells.isnan().double(), size=size, mode="nearest-exact")[0, 0].numpy() > 0
    found = image * (MIN_BRIGHTNESS + (1 - MIN_BRIGHTNESS) * light)[..., None]
    found[unknown] = 0.6
    return found


def materialize_mask(caller: str, mask: Mask | Tensor, num_queries: int | None, num_keys: int | None) -> Any:
    """The mask as an array (entries of the batch, queries, keys) of bool."""
    if isinstance(mask, Mask):
        if num_queries is None:
            raise UsageError(
                f"{caller}: a rule has no size; say how many queries, and keys if they are not as many."
            )
        seen = mask.materialize(num_queries, num_queries if num_keys is None else num_keys)
    else:
        if mask.dim() < 2:
            raise ShapeError(f"{caller} draws a mask of shape (queries, keys), not {tuple(mask.shape)}.")
        seen = mask.bool()
    if not seen.numel():
        raise ShapeError(f"{caller}: there is nothing to draw in a mask of shape {tuple(seen.shape)}.")
    return seen.reshape(-1, *seen.shape[-2:]).cpu().numpy()


def describe_mask(mask: Mask | Tensor) -> str:
    """The rule of a named mask as it is written; nothing for a tensor.

    >>> from regard.attention import causal, window
    >>> describe_mask(causal() & ~window(1, 0))
    'causal() & ~window(left=1, right=0)'
    """
    if not isinstance(mask, Mask):
        return ""
    rule = re.sub(r"(, )?offset=None", "", repr(mask))
    joined = rule.startswith("(") and rule.endswith(")")
    return rule[1:-1] if joined else rule


def max_pool(array: Any, max_rows: int, max_columns: int) -> Any:
    """The matrix made smaller, to at most so many rows and columns: of neighbors the largest; NaN stays NaN.

    >>> import numpy as np
    >>> max_pool(np.arange(16).reshape(4, 4), 2, 2).tolist()
    [[5, 7], [13, 15]]
    """
    for axis, most in enumerate((max_rows, max_columns)):
        size = array.shape[axis]
        if size > most:
            starts = np.arange(most) * size // most
            array = np.maximum.reduceat(array, starts, axis=axis)
    return array
