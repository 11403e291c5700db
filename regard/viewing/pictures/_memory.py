"""Where a memory was written and read, over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtyping import Bool, Shaped
from torch import Tensor

from regard.viewing import _check as check
from regard.viewing._memory import LEVELS, Side, Strip, sides
from regard.viewing.pictures._colors import CURVE, MORE, MORE_LIGHT, OTHER, SIGNED, scale
from regard.viewing.pictures._labels import below, headline, no_labels, on_left, title
from regard.viewing.pictures._matrix import bar, cells, legend, not_numbers
from regard.viewing.pictures._picture import Picture
from regard.viewing.pictures._sheet import Sheet, cell_sizes

GAP, LONGEST = 0.25, 4.0  # inches: between panels, the longest side of one
LEAST, MOST = 0.06, 0.13  # inches: a number of a vector, of which there are more than rows at times
HIGH = 1.0  # inches: curves
Addresses = Shaped[Tensor, "time rows"]
Vectors = Shaped[Tensor, "time width"]


def memory(
    *,
    writes: Addresses | None = None,
    reads: Addresses | None = None,
    inputs: Shaped[Tensor, "time inputs"] | None = None,
    outputs: Shaped[Tensor, "time outputs"] | None = None,
    wanted: Shaped[Tensor, "time outputs"] | None = None,
    asked: Bool[Tensor, " time"] | None = None,
    added: Vectors | None = None,
    returned: Vectors | None = None,
    rows: Sequence[int] | None = None,
    title: str | None = None,
    dark: bool = False,
) -> Picture:
    """Draw addresses over time, writing left and reading right: time runs to the right, the rows of the memory down.

    Above are vectors: what came in and what was `added` to the memory; what went out, what was `wanted`, and what the
    memory `returned`. What came in, went out and was wanted has one scale, from 0 to 1 if these are probabilities; if
    it is one number a step, what went out and what was wanted are two curves. `asked` are the steps at which an output
    is asked for; at others none is drawn. `rows` are the numbers of the rows, if these are not all of a memory.
    `dark` is how Graves et al. (2014) draw it: light on black.

    >>> memory(writes=torch.eye(8)[:5], reads=torch.eye(8)[:5], inputs=torch.rand(5, 3))
    Picture(... x ... pixels)
    """
    told = {"inputs": inputs, "added": added, "outputs": outputs, "wanted": wanted, "returned": returned}
    known = sides({"write": writes, "read": reads}, told, asked)
    count, steps = known[0].weights.shape[1], max(len(side.weights) for side in known)
    names = check.labels("memory", "row", rows, count)
    top = max(check.top("memory", None, side.weights) for side in known)
    down, across = cell_sizes(count, steps, LONGEST)

    sheet, start = Sheet(dark), 0.0
    places = {side.name: place * (steps * across + GAP) for place, side in enumerate(known)}
    for level in LEVELS:
        high = 0.0
        for side in known:
            spot = (places[side.name], start, min(max(down, LEAST), MOST), across)
            high = max(high, _level(sheet, side, level, spot))
        start += high + GAP if high else 0.0
    for side in known:
        axes = sheet.axes(places[side.name], start, len(side.weights) * across, count * down)
        image = _weights(axes, sheet, side, across, top)
        if side is known[0]:
            on_left(axes, names, count, down)
            axes.set_ylabel("row", fontsize=8)
    bar(sheet, image, len(known) * (steps * across + GAP) - GAP + 0.1, start, min(2.0, count * down))
    headline(sheet, title)
    return sheet.done()


def _level(
    sheet: Sheet, side: Side, level: tuple[str | None, str], spot: tuple[float, float, float, float]
) -> float:
    """Draw what a side has on a level, if anything, and say how many inches high it is."""
    left, start, down, across = spot
    kind = level[0] if side.name == "write" else level[1]
    wide = len(side.weights) * across
    if side.is_curve and kind == "outputs":
        _curves(sheet.axes(left, start, wide, HIGH), sheet, side)
        return HIGH
    if kind not in side.strips or (side.is_curve and kind == "wanted"):
        return 0.0
    strip = side.strips[kind]
    high = float(strip.values.shape[1] * down)
    _strip(sheet.axes(left, start, wide, high), sheet, kind, strip)
    return high


def _strip(axes: Any, sheet: Sheet, kind: str, strip: Strip) -> None:
    colors = SIGNED if strip.signed else _more(sheet)
    cells(axes, strip.shown.T, scale(colors), *strip.ends, lines=0)
    _look(axes, sheet, kind, strip.scale)


def _curves(axes: Any, sheet: Sheet, side: Side) -> None:
    """What went out beside what was wanted, over the steps of the weights below."""
    said, wanted = side.strips["outputs"], side.strips["wanted"]
    steps, (low, top) = len(side.weights), said.ends
    line = CURVE if sheet.paper == "white" else MORE_LIGHT[-2]
    axes.plot(
        range(steps), wanted.line, color=OTHER, linewidth=0.9, marker=".", markersize=1.5, label="wanted"
    )
    axes.plot(range(steps), said.line, color=line, linewidth=0.9, marker=".", markersize=1.5, label="output")
    room = 0.04 * (top - low)
    axes.set(xlim=(-0.5, steps - 0.5), ylim=(low - room, top + room))
    _look(axes, sheet, "outputs and wanted")
    axes.set_yticks([low, (low + top) / 2, top], [f"{tick:.2g}" for tick in (low, (low + top) / 2, top)])
    axes.yaxis.tick_right()  # the other side is left of it
    axes.tick_params(axis="y", labelsize=6, length=2, width=0.4, pad=2)
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=2,
        frameon=False,
        fontsize=6,
        borderaxespad=0.1,
        borderpad=0.2,
        handlelength=1.2,
        columnspacing=0.8,
        labelcolor=sheet.ink,
    )


def _weights(axes: Any, sheet: Sheet, side: Side, across: float, top: float) -> Any:
    image = cells(axes, side.weights.T, scale(_more(sheet)), 0.0, top, lines=0)
    _look(axes, sheet, f"{side.name} weights")
    below(axes, len(side.weights), across)
    axes.set_xlabel("time", fontsize=8)
    legend(axes, not_numbers(side.weights))
    return image


def _more(sheet: Sheet) -> tuple[str, ...]:
    return MORE if sheet.paper == "white" else MORE_LIGHT


def _look(axes: Any, sheet: Sheet, name: str, ends: str = "") -> None:
    no_labels(axes)
    title(axes, name, size=8, color=sheet.ink, pad=3)
    if ends:
        axes.set_title(ends, loc="right", fontsize=6, color=sheet.ink, pad=3)
