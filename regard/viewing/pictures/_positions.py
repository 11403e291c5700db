"""Positional encodings as a matrix, and what a step does to them."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Shaped
from torch import Tensor

from regard.errors import UsageError
from regard.viewing import _check as check
from regard.viewing.pictures._colors import CURVE, LINE, POINT, SIGNED, scale
from regard.viewing.pictures._labels import below, headline, on_left, on_top, title
from regard.viewing.pictures._matrix import bar, cells
from regard.viewing.pictures._picture import Picture
from regard.viewing.pictures._sheet import Sheet, cell_sizes

LONGEST, SIDE = 5.0, 2.2  # inches


def positions(
    encoding: Shaped[Tensor, "length dim"],
    *,
    beside: Shaped[Tensor, "length size"] | None = None,
    title: str | None = None,
) -> Picture:
    """Draw the vectors of positions as rows: blue above 0, orange below.

    `beside` is another code of the same positions, such as the binary one, which the sines resemble: from fast to
    slow.

    >>> from regard.attention import Sinusoidal
    >>> from regard.attention.positions import binary_code
    >>> positions(Sinusoidal(dim=16).encoding(32), beside=binary_code(32))
    Picture(... x ... pixels)
    """
    array = check.numbers("positions", encoding, "length dim")
    other = None if beside is None else check.numbers("positions", beside, "length size")
    check.same("positions", positions=len(array), beside=None if other is None else len(other))
    down, across = cell_sizes(array.shape[0], array.shape[1], LONGEST)

    sheet = Sheet()
    left = _code(sheet, array, 0, down, across, title, "feature")
    if other is not None:
        _code(
            sheet, other, left + 0.55, down, max(across, 0.1), None, "bit" if _is_binary(other) else "feature"
        )
    return sheet.done()


def shift(
    encoding: Shaped[Tensor, "length dim"],
    delta: int,
    *,
    matrix: Shaped[Tensor, "dim dim"] | None = None,
    title: str | None = None,
) -> Picture:
    """Draw what a step by `delta` does to an encoding: one linear map, and a likeness that only distance decides.

        p[i + delta] = M p[i]        p[i] . p[j] depends on j - i only

    `matrix` is M (`Sinusoidal.shift_matrix`). Without it M is the best one in the sense of least squares, so that it
    can be seen how far a learned encoding is from having such a map.

    >>> from regard.attention import Sinusoidal
    >>> position = Sinusoidal(dim=16)
    >>> shift(position.encoding(64), 5, matrix=position.shift_matrix(5))
    Picture(... x ... pixels)
    """
    array = check.known("shift", encoding, "length dim")
    length, dim = array.shape
    if not 0 < delta < length:
        raise UsageError(
            f"shift: delta must be in 1..{length - 1} for {length} positions, but it is {delta}."
        )
    step = _fitted(array, delta) if matrix is None else check.known("shift", matrix, "dim dim")
    check.same("shift", features=dim, rows_of_the_matrix=step.shape[0], columns_of_the_matrix=step.shape[1])
    moved, true = array[:-delta] @ step.T, array[delta:]

    sheet = Sheet()
    axes = sheet.axes(0, 0, SIDE, SIDE)
    largest = float(np.abs(step).max()) or 1.0
    image = cells(axes, step, scale(SIGNED), -largest, largest)
    _heading(axes, f"M, a step by {delta}" + (", fitted" if matrix is None else ""))
    on_left(axes, None, dim, SIDE / dim)
    below(axes, dim, SIDE / dim)
    bar(sheet, image, SIDE + 0.07, 0, SIDE, name="")
    _against(sheet.axes(SIDE + 0.85, 0, SIDE, SIDE), moved, true, delta)
    _likeness(sheet.axes(2 * SIDE + 1.3, 0, SIDE, SIDE), array)
    headline(sheet, title)
    return sheet.done()


def _code(
    sheet: Sheet, array: Any, left: float, down: float, across: float, name: str | None, kind: str
) -> float:
    """One code with its bar; gives where it ends."""
    rows, columns = array.shape
    axes = sheet.axes(left, 0, columns * across, rows * down)
    largest = check.top("", None, np.abs(array))
    image = cells(axes, array, scale(SIGNED), -largest, largest)
    on_left(axes, None, rows, down)
    on_top(axes, None, columns, across)
    axes.xaxis.set_label_position("top")
    axes.set_xlabel(kind, fontsize=8)
    axes.set_ylabel("position" if left == 0 else "", fontsize=8)
    title(axes, name)
    end = left + columns * across
    if kind == "feature":
        bar(sheet, image, end + 0.08, 0, min(2.0, rows * down), name="")
        end += 0.35
    return end


def _is_binary(array: Any) -> bool:
    return bool(np.isin(array, (0, 1)).all())


def _fitted(array: Any, delta: int) -> Any:
    known, dim = len(array) - delta, array.shape[1]
    if known < dim:
        raise UsageError(
            f"shift: {known} steps cannot tell a map of {dim} features; give an encoding of {dim + delta} positions."
        )
    return np.linalg.lstsq(array[:-delta], array[delta:], rcond=None)[0].T


def _against(axes: Any, moved: Any, true: Any, delta: int) -> None:
    ends = [float(min(moved.min(), true.min())), float(max(moved.max(), true.max()))]
    axes.plot(ends, ends, color=LINE, linewidth=0.8, zorder=0)
    points = slice(None, None, max(1, moved.size // 4000))
    axes.plot(true.ravel()[points], moved.ravel()[points], ".", color=CURVE, markersize=2, alpha=0.5, mew=0)
    axes.set_xlabel(f"p[i + {delta}]", fontsize=8)
    axes.set_ylabel("M p[i]", fontsize=8, labelpad=1)
    _heading(axes, f"largest error {float(np.abs(moved - true).max()):.2g}")
    _plain(axes)


def _likeness(axes: Any, array: Any) -> None:
    """Dot products by distance: their mean, and between which values they lie."""
    dots = array @ array.T
    distances = range(-(len(array) - 1), len(array))
    of = [np.diagonal(dots, distance) for distance in distances]
    axes.fill_between(
        distances, [d.min() for d in of], [d.max() for d in of], color=POINT, alpha=0.3, linewidth=0
    )
    axes.plot(distances, [d.mean() for d in of], color=CURVE, linewidth=1)
    axes.set_xlabel("j - i", fontsize=8)
    _heading(axes, "p[i] . p[j]")
    _plain(axes)


def _heading(axes: Any, text: str) -> None:
    title(axes, text, size=8)


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.locator_params(nbins=5)
    axes.tick_params(labelsize=7, length=2, width=0.4, pad=2)
