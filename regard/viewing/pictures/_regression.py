"""Kernel regression: what was measured, what is predicted, and which measurements each prediction looks at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Shaped
from torch import Tensor

from regard.errors import ShapeError
from regard.viewing import _check as check
from regard.viewing._letters import shortened
from regard.viewing.pictures._colors import CURVE, MORE, OTHER, POINT, scale
from regard.viewing.pictures._labels import LONGEST, LONGEST_TITLE, literally, title, visible
from regard.viewing.pictures._matrix import bar, cells, legend, not_numbers
from regard.viewing.pictures._picture import Picture
from regard.viewing.pictures._sheet import INK, Sheet

WIDE, HIGH = 3.4, 2.3  # inches
TICKS = 5
# With a last axis of size 1, as `attend` wants it, or without.
Given = Tensor | np.ndarray
Keys = Shaped[Given, "keys"] | Shaped[Given, "keys 1"]
Queries = Shaped[Given, "queries"] | Shaped[Given, "queries 1"]


def regression(
    x: Keys,
    y: Keys,
    queries: Queries,
    prediction: Queries,
    weights: Shaped[Given, "queries keys"] | None = None,
    *,
    truth: Queries | None = None,
    names: tuple[str, str] = ("x", "y"),
    title: str | None = None,
) -> Picture:
    """Draw measurements (x, y) as points, the prediction at `queries` as a curve, and the weights beside them.

    All are tensors or arrays. Where the prediction is NaN, as `KernelRegression` has it where no point is in reach,
    the curve has a gap. A last axis of size 1, as `attend` wants it, is taken off. The rows and columns of the weights
    are put in the order of `queries` and `x`. `truth` is a second curve, if it is known; `names` are those of the axes.

    >>> x = torch.linspace(0, 5, 20)
    >>> seen = attend(x[:, None], x[:, None], x[:, None].sin(), score=Gaussian(width=0.5))
    >>> regression(x, x.sin(), x, seen.context, seen.weights)
    Picture(... x ... pixels)
    """
    known = [_flat("x", x), _flat("y", y)]
    asked = [_flat("queries", queries), _flat("prediction", prediction, check.numbers)]
    asked += [] if truth is None else [_flat("truth", truth)]
    check.same("regression", x=len(known[0]), y=len(known[1]))
    check.same("regression", queries=len(asked[0]), prediction=len(asked[1]), truth=len(asked[-1]))
    matrix = None if weights is None else check.weights("regression", weights, "queries keys")
    if matrix is not None and matrix.shape != (len(asked[0]), len(known[0])):
        raise ShapeError(
            f"regression: weights must be ({len(asked[0])} queries, {len(known[0])} keys), not {matrix.shape}."
        )
    names = (
        shortened(visible(names[0]), LONGEST_TITLE // 2),
        shortened(visible(names[1]), LONGEST_TITLE // 2),
    )
    rows, columns = np.argsort(asked[0], kind="stable"), np.argsort(known[0], kind="stable")

    sheet = Sheet()
    axes = sheet.axes(0, 0, WIDE, HIGH)
    _curve(axes, known, [line[rows] for line in asked], names)
    _title(axes, title)
    if matrix is not None:
        beside = sheet.axes(WIDE + 0.75, 0, HIGH, HIGH)
        image = cells(
            beside, matrix[rows][:, columns], scale(MORE), 0.0, check.top("regression", None, matrix)
        )
        _number(beside, known[0][columns], asked[0][rows], names[0])
        legend(beside, not_numbers(matrix))
        bar(sheet, image, WIDE + 0.75 + HIGH + 0.08, 0, HIGH)
    return sheet.done()


def _flat(name: str, given: Given, checked: Callable[[str, Tensor, str], Any] = check.known) -> Any:
    tensor = check.tensor_of(given)
    if tensor.dim() == 2 and tensor.shape[-1] == 1:
        tensor = tensor[:, 0]
    return checked(f"regression ({name})", tensor, "length")


def _curve(axes: Any, known: list[Any], asked: list[Any], names: tuple[str, str]) -> None:
    axes.plot(*known, "o", color=POINT, markersize=2.5, mew=0, alpha=0.8, label="measured")
    if len(asked) == 3:
        axes.plot(asked[0], asked[2], "--", color=OTHER, linewidth=1, label="truth")
    axes.plot(asked[0], asked[1], color=CURVE, linewidth=1.4, label="predicted")
    (across, down), how = literally(*names)
    axes.set_xlabel(across, fontsize=8, **how)
    axes.set_ylabel(down, fontsize=8, **how)
    axes.tick_params(labelsize=7, length=2, width=0.4, pad=2)
    axes.spines[["top", "right"]].set_visible(False)
    # Above the axes, at the right: no point can lie under it there.
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=3,
        frameon=False,
        fontsize=7,
        borderaxespad=0,
        handlelength=1.4,
        labelcolor=INK,
    )


def _title(axes: Any, text: str | None) -> None:
    title(axes, text, pad=18)


def _number(axes: Any, keys: Any, queries: Any, name: str) -> None:
    """Write at some rows and columns which x they stand for."""
    for which, places in (("x", keys), ("y", queries)):
        ticks = np.unique(np.linspace(0, len(places) - 1, TICKS).round().astype(int))
        set_ticks = axes.set_xticks if which == "x" else axes.set_yticks
        set_ticks(ticks, [f"{places[i]:.3g}" for i in ticks], fontsize=7)
    (key, query), how = literally(
        *(text.format(shortened(name, LONGEST)) for text in ("key: {}", "query: {}"))
    )
    axes.set_xlabel(key, fontsize=8, **how)
    axes.set_ylabel(query, fontsize=8, labelpad=2, **how)
    axes.tick_params(length=2, width=0.4, pad=2)
