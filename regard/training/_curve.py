"""The picture of a training: loss and score over steps."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from regard.files import write_atomic


def draw_curve(metrics: Path, picture: Path, watch: str) -> bool:
    """Draw the points of metrics.jsonl; without matplotlib there is no picture, and False."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    points = [json.loads(line) for line in metrics.read_text().splitlines()]
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    trained = [{**point, "loss": point.get("nll", point["loss"])} for point in points if "loss" in point]
    _line(axes, trained, "loss", "loss in training", "C0")  # plain, as the validation's is, if it was counted
    valid = [{"step": point["step"], **point["valid"]} for point in points if "valid" in point]
    if any("loss" in point for point in valid):
        _line(axes, valid, "loss", "loss in validation", "C1")
    axes.set(xlabel="step", ylabel="loss a token")
    if watch != "loss":
        other = axes.twinx()
        _line(other, valid, watch, watch, "C2")
        other.set_ylabel(watch)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)  # no line runs through it there
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    write_atomic(picture, content.getvalue())
    return True


def _line(axes: Any, points: list[dict[str, Any]], name: str, label: str, color: str) -> None:
    some = [point for point in points if name in point]
    axes.plot(
        [p["step"] for p in some], [p[name] for p in some], label=label, color=color, marker=".", ms=3, lw=1
    )
