"""The picture of the costs of layers: what is counted above, what is measured below, both over the length.

Costs that need no clock: operations, steps that wait for each other, and the path between far positions.

What layers over a sequence cost, counted and measured: table 1 of Vaswani et al. (2017), arXiv 1706.03762.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from regard._imports import require_extra
from regard.errors import TrainingError
from regard.models.hybrid_encoder import ConvBlock, LocalAttentionBlock, RNNBlock, SelfAttentionBlock
from regard.studies.runner import Row, format_markdown_table
from regard.training.display import LogFn

COLORS = ("#0072B2", "#56B4E9", "#009E73", "#D55E00", "#CC79A7")


MARKERS = ("o", "s", "D", "^", "v")


DASHES: tuple[Any, ...] = ("-", (0, (1, 1)), "-", "-", (0, (5, 4)))


PANELS = {
    "operations": "operations, forwards",
    "path": "longest path, steps",
    "time": "processor seconds, a step of training",
    "memory": "memory of that step, MB",
}


def draw_costs(
    path: Path, measurements: Mapping[str, Mapping[str, Mapping[int, float]]], theory: Mapping[str, Mapping[str, int]]
) -> None:
    """Four panels with logarithmic axes; thin lines are the slopes of theory through the last points."""
    plt = require_extra("matplotlib.pyplot", extra="draw")
    figure, axes = plt.subplots(2, 2, figsize=(9, 6.6), layout="constrained")
    for panel, (name, title) in zip(axes.flat, PANELS.items(), strict=True):
        for place, (kind, points) in enumerate(measurements.items()):
            x, y = zip(*sorted(points[name].items()), strict=True)
            line = [y[-1] * (one / x[-1]) ** theory[kind][name] for one in x]
            look = {"color": COLORS[place], "ls": DASHES[place], "lw": 1}
            # later ones are smaller and lie on top, so that equal points show both
            panel.plot(x, y, MARKERS[place], color=COLORS[place], markersize=9 - 1.3 * place, label=kind)
            panel.plot(x, line, zorder=1, **look)
        panel.set(xscale="log", yscale="log", title=title)
        _set_ticks(panel, sorted({length for points in measurements.values() for length in points[name]}))
    for panel in axes[1]:
        panel.set_xlabel("positions")
    lines = axes.flat[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=len(measurements), frameon=False)
    figure.suptitle("Points: counted or measured. Lines: the slope of theory.", fontsize=10)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _set_ticks(panel: Any, lengths: list[int]) -> None:
    """The lengths themselves, and no others."""
    panel.set_xticks(lengths, [f"{length:,}" for length in lengths])
    panel.minorticks_off()
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", lw=0.4, color="#dddddd")


def count_operations(layer: nn.Module, length: int, dim: int) -> int:
    """Multiplications and additions of one pass forwards, as PyTorch counts them; exp and the like are left out.

    >>> from regard.models.hybrid_encoder import RNNBlock
    >>> count_operations(RNNBlock(48), passage_length=10, dim=48) == 8 * 10 * 48**2
    True
    """
    with torch.no_grad(), OperationCounter() as counter:
        layer(torch.zeros(1, length, dim))
    return counter.total


class OperationCounter(TorchDispatchMode):
    """Adds up what each product costs.

    PyTorch's own FlopCounterMode looks into what modules return, and weights that are looked at are computed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._overloadpacket
        if name == torch.ops.aten._scaled_dot_product_flash_attention_for_cpu:  # PyTorch has no count for it
            query, key, value = args[:3]
            self.total += 2 * query[..., 0].numel() * key.shape[-2] * (query.shape[-1] + value.shape[-1])
        elif name in flop_registry:
            self.total += flop_registry[name](*args, **(kwargs or {}), out_val=out)
        return out


def graph_depth(layer: nn.Module, length: int, dim: int) -> int:
    """Operations that wait for each other: the longest chain in the graph that PyTorch keeps for backward.

    >>> from regard.models.hybrid_encoder import ConvBlock
    >>> graph_depth(ConvBlock(12), 8, 12) == graph_depth(ConvBlock(12), 80, 12)
    True
    """
    root = layer(torch.zeros(1, length, dim, requires_grad=True)).grad_fn
    heights: dict[Any, int] = {None: 0}
    stack = [root]
    while stack:
        below = [child for child, _ in stack[-1].next_functions]
        waiting = [child for child in below if child not in heights]
        if waiting:
            stack += waiting
        else:
            heights[stack.pop()] = 1 + max((heights[child] for child in below), default=0)
    return heights[root]


def path_length(layer: nn.Module, length: int, dim: int) -> int:
    """Steps from the first position to the last: the layers that takes, times the steps within a layer.

        layers = (length - 1) / reach, rounded up

    The reach of a layer is how far back its last position depends on others, which the gradient tells. Attention and
    convolution take one step within a layer, a recurrence as many as it reaches. (Convolutions whose gaps widen from
    layer to layer would need only the logarithm.)

    >>> from regard.models.hybrid_encoder import ConvBlock, SelfAttentionBlock
    >>> path_length(ConvBlock(12, kernel_size=5), 33, 12), path_length(SelfAttentionBlock(12), 33, 12)
    (16, 1)
    """
    x = torch.randn(1, length, dim, requires_grad=True)
    layer(x)[0, -1].sum().backward()
    assert x.grad is not None
    reach = length - 1 - int(x.grad[0].abs().sum(-1).nonzero()[0])
    within = reach if isinstance(layer, RNNBlock) else 1
    return -(-(length - 1) // reach) * within


def fit_exponent(points: Mapping[int, float], last: int | None = None) -> float:
    """The exponent of a power law through points, by least squares of the logarithms; of the `last` ones only.

    >>> round(fit_exponent({10: 3.0, 20: 12.0, 40: 48.0}), 6)
    2.0
    """
    kept = sorted(points.items())[-(last or len(points)) :]
    x, y = ([math.log(value) for value in column] for column in zip(*kept, strict=True))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    over = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return over / sum((a - mean_x) ** 2 for a in x)


def quadratic_share(points: Mapping[int, float]) -> float:
    """The share of a n^2 at the longest n, where a n^2 + b n is fitted to relative errors.

    >>> round(quadratic_share({n: 2.0 * n**2 + 600.0 * n for n in (100, 200, 300)}), 6)
    0.5
    """
    n = torch.tensor(sorted(points), dtype=torch.float64)
    y = torch.tensor([points[int(length)] for length in n.tolist()], dtype=torch.float64)
    found = torch.linalg.lstsq(torch.stack([n**2, n], 1) / y[:, None], torch.ones_like(y)[:, None])
    a, b = found.solution.flatten().tolist()
    most = float(n[-1])
    return min(max(a * most / (a * most + b), 0.0), 1.0)


DIM, RADIUS, KERNEL = 96, 16, 3


GRAPH_LENGTHS = (16, 32, 64, 128)  # lengths at which graphs are walked through


LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768)


MAX_QUADRATIC_TIME_LENGTH, MAX_QUADRATIC_MEMORY_LENGTH = (
    8192,
    4096,
)  # the longest where time grows as length^2, and where memory does


QUICK_LENGTHS = (64, 128, 256, 512)


NUM_FITTED_LENGTHS = 3  # the longest lengths make an exponent: at short ones, what does not grow weighs too much


TOLERANCE = 0.2


SMALL_MEMORY_MB = 32  # megabytes


MEASURES = ("operations", "steps", "path", "time", "memory")


Points = dict[str, dict[int, float]]


class MaterializedSelfAttention(nn.Module):
    """Self-attention whose weights somebody reads: then they have to be there, all at once."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn = SelfAttentionBlock(DIM).self_attn

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = self.self_attn(x)
        return seen.context + 0 * seen.weights.mean()


class LayerKind(NamedTuple):
    """A layer, its costs in words and as exponents of the length, and a formula for its operations."""

    build: Callable[[], nn.Module]
    costs: dict[str, str]
    growth_exponents: tuple[int, int, int, int, int]  # in the order of MEASURES
    formula: Callable[[int], float]


def _cost_formulas(operations: str, steps: str, path: str, memory: str = "n d") -> dict[str, str]:
    return {"operations": operations, "steps": steps, "path": path, "memory": memory}


LAYER_KINDS = {
    "self-attention": LayerKind(
        lambda: SelfAttentionBlock(DIM),
        _cost_formulas("n^2 d + n d^2", "1", "1"),
        (2, 0, 0, 2, 1),
        lambda n: 8 * n * DIM**2 + 4 * n**2 * DIM,
    ),
    "its weights read": LayerKind(
        MaterializedSelfAttention,
        _cost_formulas("n^2 d + n d^2", "1", "1", "n^2 + n d"),
        (2, 0, 0, 2, 2),
        lambda n: 8 * n * DIM**2 + 6 * n**2 * DIM,
    ),
    "local attention": LayerKind(
        lambda: LocalAttentionBlock(DIM, radius=RADIUS),
        _cost_formulas("r n d + n d^2", "1", "n / r"),
        (1, 0, 1, 1, 1),
        lambda n: 8 * n * DIM**2 + 4 * (2 * RADIUS + 1) * n * DIM,
    ),
    "recurrence": LayerKind(
        lambda: RNNBlock(DIM), _cost_formulas("n d^2", "n", "n"), (1, 1, 1, 1, 1), lambda n: 8 * n * DIM**2
    ),
    "convolution": LayerKind(
        lambda: ConvBlock(DIM, KERNEL),
        _cost_formulas("k n d^2", "1", "n / k"),
        (1, 0, 1, 1, 1),
        lambda n: 2 * (KERNEL + 1) * n * DIM**2,
    ),
}


def costs(out: Path, name: str, values: dict[str, Any], log: LogFn, *, quick: bool = False) -> dict[str, Any]:
    """Count and measure every kind; write the table and the picture. Nothing is trained: it takes minutes."""
    lengths = QUICK_LENGTHS if quick else LENGTHS
    found: dict[str, Points] = {}
    rows: list[Row] = []
    for kind in LAYER_KINDS:
        *_, time, memory = LAYER_KINDS[kind].growth_exponents
        most = MAX_QUADRATIC_MEMORY_LENGTH if memory == 2 else MAX_QUADRATIC_TIME_LENGTH if time == 2 else max(lengths)
        here = [length for length in lengths if length <= most]
        log(f"{kind}: {', '.join(f'{length:,}' for length in here)} positions")
        found[kind] = {**count_costs(kind, here), **measure_costs(kind, here)}
        rows.append(make_row(kind, found[kind]))
    table = format_tables(rows)
    (out / "table.md").write_text(table + "\n", encoding="utf-8")
    draw_costs(
        out / "costs.png",
        found,
        {kind: dict(zip(MEASURES, LAYER_KINDS[kind].growth_exponents, strict=True)) for kind in LAYER_KINDS},
    )
    return {"dim": DIM, "radius": RADIUS, "kernel": KERNEL, "rows": rows, "points": found, "table": table}


def count_costs(kind: str, lengths: list[int]) -> Points:
    """What needs no clock."""
    layer = LAYER_KINDS[kind].build()
    return {
        "operations": {length: count_operations(layer, length, DIM) for length in lengths},
        "steps": {length: graph_depth(layer, length, DIM) for length in GRAPH_LENGTHS},
        "path": {length: path_length(layer, length, DIM) for length in GRAPH_LENGTHS},
    }


def measure_costs(kind: str, lengths: list[int]) -> Points:
    """Processor seconds and megabytes of a step of training at each length, in a process of their own."""
    command = [sys.executable, "-m", "regard.studies.costs_measured", kind, *map(str, lengths)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise TrainingError(f"measuring {kind} failed: {done.stderr.strip() or 'it was ended from outside'}")
    told = json.loads(done.stdout)
    return {
        name: {int(length): value for length, value in told[key].items()}
        for name, key in (("time", "seconds"), ("memory", "megabytes"))
    }


def make_row(kind: str, points: Points) -> Row:
    """One line of the table: the exponents that theory gives and those found, and the costs at the longest."""
    theory = dict(zip(MEASURES, LAYER_KINDS[kind].growth_exponents, strict=True))
    found = {name: fit_exponent(points[name], NUM_FITTED_LENGTHS) for name in MEASURES}
    longest = max(points["time"])
    return {
        "layer": kind,
        "parameters": sum(p.numel() for p in LAYER_KINDS[kind].build().parameters()),
        "theory": theory,
        "found": found,
        "length": longest,
        "operations": points["operations"][longest],
        "formula": LAYER_KINDS[kind].formula(longest),
        "seconds": points["time"][longest],
        "megabytes": points["memory"][longest],
        "quadratic": quadratic_share(points["time"]),
        "apart": {
            name: explain_deviation(name, found, theory, points)
            for name in MEASURES
            if abs(found[name] - theory[name]) > TOLERANCE
        },
    }


def explain_deviation(name: str, found: Mapping[str, float], theory: Mapping[str, int], points: Points) -> str:
    """Why an exponent is not that of theory, as far as the numbers tell."""
    longest = max(points[name])
    if name == "memory" and points[name][longest] < SMALL_MEMORY_MB:
        return f"{points[name][longest]:.0f} MB are little more than what the allocator takes at once"
    if name == "operations" or (name == "time" and abs(found["operations"] - theory[name]) > TOLERANCE):
        return f"at {longest:,} positions the smaller terms still count: {found['operations']:.2f} for the operations"
    if found[name] > theory[name]:
        return "large tensors are asked of the system anew at each step, or other programs were in the way"
    return "what does not grow with the length still weighs at these lengths"


def format_tables(rows: list[Row]) -> str:
    """The tables: costs in words, exponents, and what one step of training takes at the longest length."""
    words = [{"layer": one["layer"], **LAYER_KINDS[one["layer"]].costs} for one in rows]
    shown = [
        {"layer": one["layer"]}
        | {name: f"{one['theory'][name]} / {abs(round(one['found'][name], 2)):.2f}" for name in MEASURES}
        for one in rows
    ]
    columns = {"layer": "", "parameters": ",", "length": ",", "operations": ".3e", "formula": ".3e"}
    parts = [
        "In words, for n positions, d features, kernel k, radius r:\n\n"
        + format_markdown_table(words, dict.fromkeys(("layer", "operations", "steps", "path", "memory"), "")),
        "Exponents of n, theory / found:\n\n" + format_markdown_table(shown, dict.fromkeys(("layer", *MEASURES), "")),
        "At the longest length:\n\n" + format_markdown_table(rows, {**columns, "seconds": ".3f", "megabytes": ".0f"}),
    ]
    apart = [f"- {one['layer']}, {name}: {why}." for one in rows for name, why in one["apart"].items()]
    if apart:
        parts.append(f"More than {TOLERANCE} from theory:\n\n" + "\n".join(apart))
    share = 100 * rows[0]["quadratic"]
    parts.append(f"Of self-attention's time at the longest length, a n^2 + b n gives {share:.0f} % to n^2.")
    return "\n\n".join(parts)
