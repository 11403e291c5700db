"""Validated arrays for figures, pages and the terminal: tensors, labels, images, masks.

`caller` is the name of the public function that is called; error messages begin with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Shaped
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from regard.attention import Mask
from regard.errors import ShapeError, UsageError

MIN_BRIGHTNESS = 0.16  # of a pixel whose weight is 0
# Positions and values of a regression have a last axis of size 1, as `attend` expects it, or none.
ArrayLike = Tensor | np.ndarray
KeyValues = Shaped[ArrayLike, "keys"] | Shaped[ArrayLike, "keys 1"]
QueryValues = Shaped[ArrayLike, "queries"] | Shaped[ArrayLike, "queries 1"]


def as_tensor(value: Tensor | NDArray[Any]) -> Tensor:
    """Return a tensor, converting NumPy arrays."""
    # torch rejects arrays with negative strides and warns about read-only ones: copy.
    return value if isinstance(value, Tensor) else torch.as_tensor(np.array(value, order="C"))


def check_axes(caller: str, tensor: Tensor, axis_names: str) -> None:
    """Check that a tensor has these axes and is not empty."""
    names = axis_names.split()
    if tensor.dim() != len(names):
        raise ShapeError(f"{caller} expects a tensor of shape ({', '.join(names)}), got {tuple(tensor.shape)}.")
    if not tensor.numel():
        raise ShapeError(f"{caller}: the tensor is empty, its shape is {tuple(tensor.shape)}.")


def validate_array(caller: str, tensor: Tensor | NDArray[Any], axis_names: str, allow_nan: bool = True) -> Any:
    """Convert a tensor to an array of float32 or float64 and check its number of axes.

    Raises:
        ShapeError: wrong number of axes, or an empty tensor
        UsageError: infinite numbers, or NaN that is not allowed
    """
    tensor = as_tensor(tensor)
    check_axes(caller, tensor, axis_names)
    single = tensor.is_floating_point() and tensor.dtype != torch.float64
    array = tensor.detach().cpu().to(torch.float32 if single else torch.float64).numpy()
    if np.isinf(array).any():
        raise UsageError(f"{caller}: the tensor has infinite numbers; pass weights, not masked scores.")
    if not allow_nan and np.isnan(array).any():
        raise UsageError(f"{caller}: the tensor has NaN, which cannot be drawn here.")
    return array


def validate_weights(caller: str, tensor: Tensor | NDArray[Any], axis_names: str) -> Any:
    """Like `validate_array`, and reject negative numbers."""
    array = validate_array(caller, tensor, axis_names)
    if (array < 0).any():
        raise UsageError(f"{caller}: weights must not be negative; pass weights, not scores.")
    return array


def validate_labels(caller: str, axis: str, labels: Sequence[object] | None, count: int) -> list[str] | None:
    """Convert labels to strings and check that there is one for each entry of the axis."""
    if labels is None:
        return None
    if isinstance(labels, str):
        raise UsageError(f"{caller}: the {axis} labels must be a list of strings, not one string.")
    if len(labels) != count:
        raise UsageError(f"{caller}: got {len(labels)} {axis} labels for {count} {axis}s.")
    return [str(label) for label in labels]


def validate_names(caller: str, axis: str, names: Sequence[object] | None, count: int) -> list[str]:
    """Like `validate_labels`, and number the entries without names from 0."""
    return validate_labels(caller, axis, range(count) if names is None else names, count) or []


def validate_axis_labels(
    caller: str, rows: Sequence[object] | None, columns: Sequence[object] | None, shape: tuple[int, ...]
) -> tuple[list[str] | None, list[str] | None]:
    """Validate the labels of both axes of a matrix."""
    return validate_labels(caller, "row", rows, shape[-2]), validate_labels(caller, "column", columns, shape[-1])


def resolve_vmax(caller: str, vmax: float | None, array: Any) -> float:
    """Return the weight with the darkest color: `vmax`, or by default the largest weight."""
    if vmax is not None:
        if not 0 < vmax < float("inf"):
            raise UsageError(f"{caller}: invalid value {vmax} for vmax: must be above 0 and finite.")
        return float(vmax)
    return max_ignoring_nan(array) or 1.0


def max_ignoring_nan(array: Any) -> float:
    """Return the largest number, or 0 if none is positive."""
    return float(np.max(array, where=~np.isnan(array), initial=0.0))


def validate_equal_sizes(caller: str, **sizes: int | None) -> None:
    """Check that all sizes that are not None are equal."""
    known = {name: size for name, size in sizes.items() if size is not None}
    if len(set(known.values())) > 1:
        values = ", ".join(f"{name} {size}" for name, size in known.items())
        raise ShapeError(f"{caller}: these sizes must be equal: {values}.")


def validate_document(
    caller: str,
    tokens: Sequence[Sequence[str]],
    weights: Sequence[Sequence[float]] | None,
    sentence_weights: Sequence[float] | None,
) -> tuple[list[list[float]], list[float]]:
    """Return the weights of the words of each sentence and of the sentences; all are 0 if there is no attention."""
    sizes = [len(words) for words in tokens]
    if weights is None and sentence_weights is None:
        return [[0.0] * size for size in sizes], [0.0] * len(sizes)
    if [len(row) for row in weights or ()] != sizes or len(sentence_weights or ()) != len(sizes):
        raise UsageError(f"{caller} requires one weight for each of {len(sizes)} sentences and for each of its words.")
    return [list(map(float, row)) for row in weights or ()], list(map(float, sentence_weights or ()))


class RegressionData(NamedTuple):
    """Validated arrays of a kernel regression.

    Args:
        x, y: the data, in their order
        keys: the positions of the data, sorted
        queries, prediction, truth: the curves, sorted by query
        weights: (queries, keys), both sorted
    """

    x: Any
    y: Any
    keys: Any
    queries: Any
    prediction: Any
    truth: Any
    weights: Any


def validate_regression(weights: ArrayLike | None, **columns: ArrayLike | None) -> RegressionData:
    """Validate the arguments of `regression_curve` by name; only the prediction may have NaN."""
    caller = "regression_curve"
    values: dict[str, Any] = {"truth": None}
    for name, column in columns.items():
        if column is not None:
            vector, allow_nan = _flatten_column(column), name == "prediction"
            values[name] = validate_array(f"{caller} ({name})", vector, "length", allow_nan=allow_nan)
    for names in (("x", "y"), ("queries", "prediction", "truth")):
        sizes = {name: None if values[name] is None else len(values[name]) for name in names}
        validate_equal_sizes(caller, **sizes)
    order, rows = (np.argsort(values[name], kind="stable") for name in ("x", "queries"))
    values |= {name: values[name][rows] for name in ("queries", "prediction", "truth") if values[name] is not None}
    matrix = None
    if weights is not None:
        matrix, expected = validate_weights(caller, weights, "queries keys"), (len(rows), len(order))
        if matrix.shape != expected:
            raise ShapeError(f"{caller}: weights must be (queries, keys) = {expected}, got {matrix.shape}.")
        matrix = matrix[rows][:, order]
    return RegressionData(**values, keys=values["x"][order], weights=matrix)


def _flatten_column(value: ArrayLike) -> Tensor:
    tensor = as_tensor(value)
    return tensor[:, 0] if tensor.dim() == 2 and tensor.shape[-1] == 1 else tensor


def validate_overlay(image: Any, weights: Tensor, tokens: Sequence[str] | None) -> tuple[Any, Any, list[str] | None]:
    """Validate the arguments of `image_overlay`: pixels, grids (tokens, rows, columns) and tokens."""
    axis_names = "rows columns" if weights.dim() == 2 else "tokens rows columns"
    grids = validate_weights("image_overlay", weights, axis_names).reshape(-1, *weights.shape[-2:])
    names = validate_labels("image_overlay", "token", tokens, len(grids))
    return as_image("image_overlay", image), grids, names


def as_image(caller: str, image: Any) -> Any:
    """Convert an image to an array (height, width, 3) of numbers from 0 to 1."""
    pixels = as_tensor(image).detach().cpu()
    if pixels.dim() == 2:
        pixels = pixels.unsqueeze(-1).expand(-1, -1, 3)
    shape = tuple(pixels.shape)
    if pixels.dim() != 3 or pixels.shape[-1] != 3 or not pixels.numel():
        hint = "; use image.permute(1, 2, 0)" if pixels.dim() == 3 and shape[0] == 3 else ""
        raise ShapeError(f"{caller}: an image is (height, width) or (height, width, 3), not {shape}{hint}.")
    limit = 255 if not pixels.is_floating_point() and pixels.dtype != torch.bool else 1
    pixels = pixels.double() / limit
    if not bool(((pixels >= 0) & (pixels <= 1)).all()):
        raise UsageError(f"{caller}: the image has numbers outside of 0..{limit}.")
    return pixels.numpy()


def resize_image(image: Any, size: tuple[int, int], **options: Any) -> Any:
    """Resize an image (height, width, 3) with the options of `interpolate`."""
    pixels = torch.as_tensor(image).permute(2, 0, 1)[None]
    return interpolate(pixels, size=size, **options)[0].permute(1, 2, 0).clamp(0, 1).numpy()


def apply_weights_as_light(image: Any, weights: Any, smooth: bool) -> Any:
    """Darken an image except where its weights are large; cells with NaN become gray.

    Args:
        image: (height, width, 3)
        weights: (rows, columns), a coarse grid over the image
        smooth: interpolate between the cells
    """
    cells = torch.as_tensor(weights / resolve_vmax("image_overlay", None, weights))[None, None]
    size = image.shape[:2]
    mode: dict[str, Any] = {"mode": "bicubic", "align_corners": False} if smooth else {"mode": "nearest-exact"}
    light = interpolate(cells.nan_to_num(0.0), size=size, **mode)[0, 0].clamp(0, 1).numpy()
    is_nan = interpolate(cells.isnan().double(), size=size, mode="nearest-exact")[0, 0].numpy() > 0
    result = image * (MIN_BRIGHTNESS + (1 - MIN_BRIGHTNESS) * light)[..., None]
    result[is_nan] = 0.6
    return result


def materialize_mask(caller: str, mask: Mask | Tensor, num_queries: int | None, num_keys: int | None) -> Any:
    """Return a mask as a boolean array (batch entries, queries, keys)."""
    if isinstance(mask, Mask):
        if num_queries is None:
            raise UsageError(f"{caller}: num_queries is required for a Mask, which has no size of its own.")
        visible = mask.materialize(num_queries, num_queries if num_keys is None else num_keys)
    else:
        if mask.dim() < 2:
            raise ShapeError(f"{caller} expects a mask of shape (queries, keys), got {tuple(mask.shape)}.")
        visible = mask.bool()
    if not visible.numel():
        raise ShapeError(f"{caller}: the mask is empty, its shape is {tuple(visible.shape)}.")
    return visible.reshape(-1, *visible.shape[-2:]).cpu().numpy()


def describe_mask(mask: Mask | Tensor) -> str:
    """Return the expression of a `Mask`, or an empty string for a tensor.

    Example:
        >>> from regard.attention import causal, window
        >>> describe_mask(causal() & ~window(1, 0))
        'causal() & ~window(left=1, right=0)'
    """
    if not isinstance(mask, Mask):
        return ""
    rule = re.sub(r"(, )?offset=None", "", repr(mask))
    has_parentheses = rule.startswith("(") and rule.endswith(")")
    return rule[1:-1] if has_parentheses else rule


def max_pool(array: Any, max_rows: int, max_columns: int) -> Any:
    """Reduce a matrix to at most this size; each cell is the maximum of its neighbors, and NaN stays NaN.

    Example:
        >>> import numpy as np
        >>> max_pool(np.arange(16).reshape(4, 4), 2, 2).tolist()
        [[5, 7], [13, 15]]
    """
    for axis, limit in enumerate((max_rows, max_columns)):
        size = array.shape[axis]
        if size > limit:
            starts = np.arange(limit) * size // limit
            array = np.maximum.reduceat(array, starts, axis=axis)
    return array
