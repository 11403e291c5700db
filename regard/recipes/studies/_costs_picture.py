"""The picture of the costs of layers: what is counted above, what is measured below, both over the length."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard._imports import require_extra

COLORS = ("#0072B2", "#56B4E9", "#009E73", "#D55E00", "#CC79A7")
MARKS = ("o", "s", "D", "^", "v")
DASHES: tuple[Any, ...] = ("-", (0, (1, 1)), "-", "-", (0, (5, 4)))
PANELS = {
    "operations": "operations, forwards",
    "path": "longest path, steps",
    "time": "processor seconds, a step of training",
    "memory": "memory of that step, MB",
}


def draw(
    path: Path,
    found: Mapping[str, Mapping[str, Mapping[int, float]]],
    theory: Mapping[str, Mapping[str, int]],
) -> None:
    """Four panels with logarithmic axes; thin lines are the slopes of theory through the last points."""
    plt = require_extra("matplotlib.pyplot", extra="draw")
    figure, axes = plt.subplots(2, 2, figsize=(9, 6.6), layout="constrained")
    for panel, (name, title) in zip(axes.flat, PANELS.items(), strict=True):
        for place, (kind, points) in enumerate(found.items()):
            x, y = zip(*sorted(points[name].items()), strict=True)
            line = [y[-1] * (one / x[-1]) ** theory[kind][name] for one in x]
            look = {"color": COLORS[place], "ls": DASHES[place], "lw": 1}
            # later ones are smaller and lie on top, so that equal points show both
            panel.plot(x, y, MARKS[place], color=COLORS[place], markersize=9 - 1.3 * place, label=kind)
            panel.plot(x, line, zorder=1, **look)
        panel.set(xscale="log", yscale="log", title=title)
        _ticks(panel, sorted({length for points in found.values() for length in points[name]}))
    for panel in axes[1]:
        panel.set_xlabel("positions")
    lines = axes.flat[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=len(found), frameon=False)
    figure.suptitle("Points: counted or measured. Lines: the slope of theory.", fontsize=10)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _ticks(panel: Any, lengths: list[int]) -> None:
    """The lengths themselves, and no others."""
    panel.set_xticks(lengths, [f"{length:,}" for length in lengths])
    panel.minorticks_off()
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", lw=0.4, color="#dddddd")
