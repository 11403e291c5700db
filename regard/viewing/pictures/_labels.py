"""Labels drawn as they are: no formulas, no line breaks, in the right order, thinned where there are too many."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

from regard._imports import require_extra
from regard.viewing._letters import clusters, in_lines, shortened, width
from regard.viewing.pictures._fonts import dressed
from regard.viewing.pictures._sheet import INK, Sheet

LONGEST, LONGEST_TITLE, SHORTEST_LINE = 18, 90, 32  # columns
LETTER = 0.6  # of the font size: about the width of a letter
SIZE, SMALL = 8.0, 6.0  # points
Names = tuple[list[str] | None, list[str] | None]  # of the rows and of the columns
Starts = Sequence[float] | None
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)


def literally(*texts: str) -> tuple[list[str], dict[str, Any]]:
    """The texts as they shall be drawn, and what to tell matplotlib so that it draws them so."""
    drawn, families = dressed([_in_order(text) for text in texts])
    return drawn, {"family": families, "parse_math": False, "usetex": False}


def visible(text: str) -> str:
    """A text in which spaces at the ends and control characters can be seen.

    >>> visible(" the"), visible("a\\n\\x1b")
    ('␣the', 'a↵\\\\x1b')
    """
    named = {"\n": "↵", "\t": "⇥"}
    text = "".join(
        named.get(c, repr(c)[1:-1]) if unicodedata.category(c) in ("Cc", "Cs") else c for c in text
    )
    inner = text.strip()
    start = len(text) - len(text.lstrip())
    return "␣" * start + inner + "␣" * (len(text) - start - len(inner))


def title(
    axes: Any, text: str | None, size: float = SIZE + 1, room: float | None = None, **more: Any
) -> None:
    """Write a title, if there is one, in lines as wide as the axes or so many inches."""
    if text:
        inches = axes.get_position(original=True).width if room is None else room
        columns = max(SHORTEST_LINE, int(inches * 72 / (LETTER * size)))
        drawn, how = literally(*in_lines(shortened(visible(text), LONGEST_TITLE), columns))
        axes.set_title("\n".join(drawn), fontsize=size, **{"loc": "left", "color": INK, **how, **more})


def headline(sheet: Sheet, text: str | None) -> None:
    """Write a title above everything that is on the sheet so far."""
    if text:
        edge = sheet.figure.get_tightbbox(sheet.figure.canvas.get_renderer())
        axes = sheet.axes(edge.x0, -edge.y1 - 0.02, 0.01, 0.01)
        axes.set_axis_off()
        title(axes, text, room=edge.width, color=sheet.ink)


def on_top(axes: Any, labels: Sequence[str] | None, count: int, cell: float, starts: Starts = None) -> None:
    """Label the columns, whose cells are so many inches wide: above them, turned only if they would touch.

    If several matrices stand in the axes, `starts` says where each begins, in inches.
    """
    axes.xaxis.tick_top()
    places, texts, size, room = _chosen(labels, count, cell)
    drawn, how = literally(*texts)
    need_turn = max((width(text) * LETTER * size / 72 for text in texts), default=0.0) > 0.92 * room
    if need_turn and room > 0.2:
        how |= {"rotation": 45, "ha": "left", "va": "bottom", "rotation_mode": "anchor"}
    elif need_turn:
        how |= {"rotation": 90}
    axes.set_xticks(*_repeated(places, drawn, cell, starts), fontsize=size, **how)
    axes.tick_params(axis="x", length=0 if labels else 2, width=0.5, pad=2)


def both_sides(axes: Any, names: Names, counts: tuple[int, int], cell: tuple[float, float]) -> None:
    """Label rows and columns; where there are no labels, number them and say what they are."""
    on_left(axes, names[0], counts[0], cell[0])
    on_top(axes, names[1], counts[1], cell[1])
    if names[0] is None:
        axes.set_ylabel("query", fontsize=SIZE)
    if names[1] is None:
        axes.xaxis.set_label_position("top")
        axes.set_xlabel("key", fontsize=SIZE)


def below(axes: Any, count: int, cell: float) -> None:
    """Number the columns, below them."""
    places, texts, size, _ = _chosen(None, count, cell)
    axes.set_xticks(places, texts, fontsize=size)
    axes.tick_params(axis="x", length=2, width=0.5, pad=2)


def on_left(axes: Any, labels: Sequence[str] | None, count: int, cell: float, starts: Starts = None) -> None:
    """Label the rows, whose cells are so many inches high."""
    places, texts, size, _ = _chosen(labels, count, cell)
    drawn, how = literally(*texts)
    axes.set_yticks(*_repeated(places, drawn, cell, starts), fontsize=size, **how)
    axes.tick_params(axis="y", length=0 if labels else 2, width=0.5, pad=2)


def no_labels(axes: Any) -> None:
    axes.set_xticks([])
    axes.set_yticks([])


def _chosen(
    labels: Sequence[str] | None, count: int, cell: float
) -> tuple[list[int], list[str], float, float]:
    """Which places get a label, the labels, their size in points and the room of each in inches."""
    numbers = labels is None
    size = SIZE if cell >= 1.15 * SIZE / 72 else SMALL
    line = (2.6 if numbers else 1.15) * size / 72  # numbers stand upright, and need not be many
    step = next((step for step in STEPS if step * cell >= line), count)
    places = list(range(0, count, step))
    texts = [str(i) if labels is None else shortened(visible(labels[i]), LONGEST) for i in places]
    return places, texts, size, step * cell


def _repeated(
    places: list[int], texts: list[str], cell: float, starts: Starts
) -> tuple[Sequence[float], list[str]]:
    if starts is None:
        return places, texts
    return [start + (i + 0.5) * cell for start in starts for i in places], texts * len(starts)


def _in_order(text: str) -> str:
    """Right to left where matplotlib does not do that itself, which it does from 3.11 on.

    Only texts that are entirely right to left are turned, and Arabic letters are not joined then.
    """
    if hasattr(require_extra("matplotlib.ft2font", extra="draw"), "__libraqm_version__"):
        return text
    kinds = {unicodedata.bidirectional(c) for c in text}
    if kinds & {"R", "AL"} and not kinds & {"L", "EN", "AN"}:
        return "".join(reversed(clusters(text)))
    return text
