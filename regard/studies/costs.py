"""The costs of layers over a sequence, counted and measured: table 1 of Vaswani et al. (2017), arXiv 1706.03762.

Operations, the depth of the graph and the path between distant positions are counted; time and memory are measured.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import linear_regression
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from regard._imports import require_extra
from regard.errors import TrainingError
from regard.models.hybrid_encoder import ConvBlock, LocalAttentionBlock, RNNBlock, SelfAttentionBlock
from regard.studies.runner import Row, format_markdown_table
from regard.training.logging import LogFn

__all__ = [
    "DIM", "LAYER_KINDS", "LayerKind", "MaterializedSelfAttention", "costs", "count_operations", "fit_exponent",
    "graph_depth", "measure_costs", "path_length", "quadratic_share",
]  # fmt: skip

DIM, RADIUS, KERNEL_SIZE = 96, 16, 3
GRAPH_LENGTHS = (16, 32, 64, 128)  # for measures that traverse the graph of backward
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
QUICK_LENGTHS = (64, 128, 256, 512)
MAX_QUADRATIC_TIME_LENGTH = 8192  # the longest for layers whose time grows as length^2
MAX_QUADRATIC_MEMORY_LENGTH = 4096  # the longest for layers whose memory does
NUM_FITTED_LENGTHS = 3  # the longest ones: at short lengths, constant costs are too large a share
TOLERANCE = 0.2  # of an exponent
SMALL_MEMORY_MB = 32
MEASURES = ("operations", "steps", "path", "time", "memory")
Points = dict[str, dict[int, float]]  # of each measure: values by length


def count_operations(layer: nn.Module, length: int, dim: int) -> int:
    """Multiplications and additions of a forward pass, as PyTorch counts them, without exp and other functions.

    Args:
        layer: a layer over (1, length, dim)
        length: number of positions
        dim: size of the vectors

    Example:
        >>> from regard.models.hybrid_encoder import RNNBlock
        >>> count_operations(RNNBlock(48), length=10, dim=48) == 8 * 10 * 48**2
        True
    """
    with torch.no_grad(), _OperationCounter() as counter:
        layer(torch.zeros(1, length, dim))
    return counter.total


class _OperationCounter(TorchDispatchMode):
    """Counts the operations of each product.

    PyTorch's own FlopCounterMode reads the outputs of modules, which makes lazy attention weights materialize.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._overloadpacket
        if name == torch.ops.aten._scaled_dot_product_flash_attention_for_cpu:  # is not in the registry
            query, key, value = args[:3]
            self.total += 2 * query[..., 0].numel() * key.shape[-2] * (query.shape[-1] + value.shape[-1])
        elif name in flop_registry:
            self.total += flop_registry[name](*args, **(kwargs or {}), out_val=out)
        return out


def graph_depth(layer: nn.Module, length: int, dim: int) -> int:
    """Number of sequential operations: the longest chain in the graph that PyTorch records for backward.

    Args:
        layer, length, dim: as in `count_operations`

    Example:
        >>> from regard.models.hybrid_encoder import ConvBlock
        >>> graph_depth(ConvBlock(12), 8, 12) == graph_depth(ConvBlock(12), 80, 12)
        True
    """
    root = layer(torch.zeros(1, length, dim, requires_grad=True)).grad_fn
    heights: dict[Any, int] = {None: 0}
    stack = [root]
    while stack:
        children = [child for child, _ in stack[-1].next_functions]
        if pending := [child for child in children if child not in heights]:
            stack += pending
        else:
            heights[stack.pop()] = 1 + max((heights[child] for child in children), default=0)
    return heights[root]


def path_length(layer: nn.Module, length: int, dim: int) -> int:
    """Number of steps from the first position to the last: layers times steps within a layer.

        layers = (length - 1) / reach, rounded up

    The reach of a layer is the largest distance at which its last position depends on another, by the gradient. Within
    a layer, attention and convolution take one step, and a recurrence takes as many as its reach. (With dilated
    convolutions the number of layers would be logarithmic.)

    Args:
        layer, length, dim: as in `count_operations`

    Example:
        >>> from regard.models.hybrid_encoder import ConvBlock, SelfAttentionBlock
        >>> path_length(ConvBlock(12, kernel_size=5), 33, 12), path_length(SelfAttentionBlock(12), 33, 12)
        (16, 1)
    """
    x = torch.randn(1, length, dim, requires_grad=True)
    layer(x)[0, -1].sum().backward()
    assert x.grad is not None
    reach = length - 1 - int(x.grad[0].abs().sum(-1).nonzero()[0])
    return math.ceil((length - 1) / reach) * (reach if isinstance(layer, RNNBlock) else 1)


def fit_exponent(points: Mapping[int, float], last: int | None = None) -> float:
    """The exponent of a power law, by least squares of the logarithms.

    Args:
        points: costs by length
        last: use only this number of points, the longest ones

    Example:
        >>> round(fit_exponent({10: 3.0, 20: 12.0, 40: 48.0}), 6)
        2.0
    """
    x, y = zip(*sorted(points.items())[-(last or len(points)) :], strict=True)
    return linear_regression([math.log(value) for value in x], [math.log(value) for value in y]).slope


def quadratic_share(points: Mapping[int, float]) -> float:
    """The share of a n^2 in the cost at the longest n, where a n^2 + b n is fitted to relative errors.

    Args:
        points: costs by length

    Example:
        >>> round(quadratic_share({n: 2.0 * n**2 + 600.0 * n for n in (100, 200, 300)}), 6)
        0.5
    """
    n, y = torch.tensor(sorted(points.items()), dtype=torch.float64).T
    solution = torch.linalg.lstsq(torch.stack([n**2, n], 1) / y[:, None], torch.ones_like(y)[:, None]).solution
    (a, b), longest = solution.flatten().tolist(), float(n[-1])
    return min(max(a * longest / (a * longest + b), 0.0), 1.0)


class MaterializedSelfAttention(nn.Module):
    """Self-attention whose weights are read, so that all of them are computed and stored.

    Shape: (batch, length, DIM) -> (batch, length, DIM)

    Example:
        >>> MaterializedSelfAttention()(torch.zeros(1, 5, DIM)).shape
        torch.Size([1, 5, 96])
    """

    def __init__(self) -> None:
        super().__init__()
        self.self_attn = SelfAttentionBlock(DIM).self_attn

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output = self.self_attn(x)
        return output.context + 0 * output.weights.mean()


class LayerKind(NamedTuple):
    """A layer and its costs in theory, for n positions, d features, kernel size k and radius r.

    Args:
        build: returns the layer
        costs: operations, steps, path and memory as formulas
        growth_exponents: exponents of the length, in the order of `MEASURES`
        formula: the number of operations by length

    Example:
        >>> LAYER_KINDS["recurrence"].costs[0], LAYER_KINDS["recurrence"].growth_exponents
        ('n d^2', (1, 1, 1, 1, 1))
    """

    build: Callable[[], nn.Module]
    costs: tuple[str, str, str, str]
    growth_exponents: tuple[int, int, int, int, int]
    formula: Callable[[int], float]


LAYER_KINDS = {
    "self-attention": LayerKind(
        lambda: SelfAttentionBlock(DIM),
        ("n^2 d + n d^2", "1", "1", "n d"),
        (2, 0, 0, 2, 1),
        lambda n: 8 * n * DIM**2 + 4 * n**2 * DIM,
    ),
    "self-attention, weights read": LayerKind(
        MaterializedSelfAttention,
        ("n^2 d + n d^2", "1", "1", "n^2 + n d"),
        (2, 0, 0, 2, 2),
        lambda n: 8 * n * DIM**2 + 6 * n**2 * DIM,
    ),
    "local attention": LayerKind(
        lambda: LocalAttentionBlock(DIM, radius=RADIUS),
        ("r n d + n d^2", "1", "n / r", "n d"),
        (1, 0, 1, 1, 1),
        lambda n: 8 * n * DIM**2 + 4 * (2 * RADIUS + 1) * n * DIM,
    ),
    "recurrence": LayerKind(
        lambda: RNNBlock(DIM), ("n d^2", "n", "n", "n d"), (1, 1, 1, 1, 1), lambda n: 8 * n * DIM**2
    ),
    "convolution": LayerKind(
        lambda: ConvBlock(DIM, KERNEL_SIZE),
        ("k n d^2", "1", "n / k", "n d"),
        (1, 0, 1, 1, 1),
        lambda n: 2 * (KERNEL_SIZE + 1) * n * DIM**2,
    ),
}


def costs(out: Path, name: str, values: dict[str, Any], log: LogFn, *, quick: bool = False) -> dict[str, Any]:
    """Count and measure the costs of every kind of layer; nothing is trained, and it takes minutes.

    Args:
        out: the folder to write
        name, values: not used
        log: takes each line of progress
        quick: with short lengths
    """
    require_extra("matplotlib.pyplot", extra="draw")  # before minutes of measuring
    points: dict[str, Points] = {}
    for kind, layer_kind in LAYER_KINDS.items():
        time, memory = layer_kind.growth_exponents[-2:]
        limit = MAX_QUADRATIC_MEMORY_LENGTH if memory == 2 else MAX_QUADRATIC_TIME_LENGTH if time == 2 else math.inf
        lengths = [length for length in (QUICK_LENGTHS if quick else LENGTHS) if length <= limit]
        log(f"{kind}: {', '.join(f'{length:,}' for length in lengths)} positions")
        layer = layer_kind.build()
        points[kind] = {
            "operations": {length: count_operations(layer, length, DIM) for length in lengths},
            "steps": {length: graph_depth(layer, length, DIM) for length in GRAPH_LENGTHS},
            "path": {length: path_length(layer, length, DIM) for length in GRAPH_LENGTHS},
            **measure_costs(kind, lengths),
        }
    rows = [_make_row(kind, points[kind]) for kind in points]
    table = _format_tables(rows)
    _plot_costs(out / "costs.png", points)
    return {"dim": DIM, "radius": RADIUS, "kernel": KERNEL_SIZE, "rows": rows, "points": points, "table": table}


def measure_costs(kind: str, lengths: list[int]) -> Points:
    """Processor seconds and megabytes of a training step at each length, measured in a process of its own.

    Args:
        kind: a name of `LAYER_KINDS`
        lengths: numbers of positions
    """
    command = [sys.executable, "-m", "regard.studies.costs_measured", kind, *map(str, lengths)]
    process = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    if process.returncode:
        reason = process.stderr.strip().rpartition("\n")[2] or "the process was killed"
        raise TrainingError(f"measuring {kind} failed: {reason}")
    result = json.loads(process.stdout)
    return {name: {int(length): value for length, value in points.items()} for name, points in result.items()}


def _make_row(kind: str, points: Points) -> Row:
    """The exponents in theory and in practice, and the costs at the longest length."""
    layer_kind, longest = LAYER_KINDS[kind], max(points["time"])
    theory = dict(zip(MEASURES, layer_kind.growth_exponents, strict=True))
    fitted = {name: fit_exponent(points[name], NUM_FITTED_LENGTHS) for name in MEASURES}
    return {
        "layer": kind,
        "parameters": sum(p.numel() for p in layer_kind.build().parameters()),
        "theory": theory,
        "found": fitted,
        "length": longest,
        "operations": points["operations"][longest],
        "formula": layer_kind.formula(longest),
        "seconds": points["time"][longest],
        "megabytes": points["memory"][longest],
        "quadratic": quadratic_share(points["time"]),
        "apart": {
            name: _explain_deviation(name, fitted, theory, points)
            for name in MEASURES
            if abs(fitted[name] - theory[name]) > TOLERANCE
        },
    }


def _explain_deviation(name: str, fitted: Mapping[str, float], theory: Mapping[str, int], points: Points) -> str:
    """A possible reason why an exponent is not that of theory."""
    longest = max(points[name])
    if name == "memory" and points[name][longest] < SMALL_MEMORY_MB:
        return f"{points[name][longest]:.0f} MB are little more than one allocation of the allocator"
    if name == "operations" or (name == "time" and abs(fitted["operations"] - theory[name]) > TOLERANCE):
        return f"at {longest:,} positions the smaller terms still count: {fitted['operations']:.2f} for the operations"
    if fitted[name] > theory[name]:
        return "large tensors are allocated again in each step, or other programs interfered"
    return "constant costs are still a large share at these lengths"


def _format_tables(rows: list[Row]) -> str:
    """The tables of formulas, of exponents, and of a training step at the longest length."""
    columns = {"layer": "", "parameters": ",", "length": ",", "operations": ".3e", "formula": ".3e"}
    counted = ("operations", "steps", "path", "memory")
    formulas, exponents = [], []
    for row in rows:
        layer, theory, fitted = row["layer"], row["theory"], row["found"]
        formulas.append({"layer": layer, **dict(zip(counted, LAYER_KINDS[layer].costs, strict=True))})
        pairs = {name: f"{theory[name]} / {abs(round(fitted[name], 2)):.2f}" for name in MEASURES}
        exponents.append({"layer": layer, **pairs})
    parts = [
        "In words, for n positions, d features, kernel k, radius r:\n\n"
        + format_markdown_table(formulas, dict.fromkeys(formulas[0], "")),
        "Exponents of n, theory / found:\n\n" + format_markdown_table(exponents, dict.fromkeys(exponents[0], "")),
        "At the longest length:\n\n" + format_markdown_table(rows, {**columns, "seconds": ".3f", "megabytes": ".0f"}),
    ]
    deviations = [f"- {row['layer']}, {name}: {reason}." for row in rows for name, reason in row["apart"].items()]
    if deviations:
        parts.append(f"More than {TOLERANCE} from theory:\n\n" + "\n".join(deviations))
    share = 100 * rows[0]["quadratic"]
    parts.append(f"Of self-attention's time at the longest length, a n^2 + b n gives {share:.0f} % to n^2.")
    return "\n\n".join(parts)


STYLES = {  # color, marker and line of each kind
    "self-attention": ("#0072B2", "o", "-"),
    "self-attention, weights read": ("#56B4E9", "s", (0, (1, 1))),
    "local attention": ("#009E73", "D", "-"),
    "recurrence": ("#D55E00", "^", "-"),
    "convolution": ("#CC79A7", "v", (0, (5, 4))),
}
PANELS = {
    "operations": "operations of a forward pass",
    "path": "steps of the longest path",
    "time": "CPU seconds of a training step",
    "memory": "memory of a training step, MB",
}


def _plot_costs(path: Path, points: Mapping[str, Points]) -> None:
    """Four panels with logarithmic axes; thin lines have the theoretical slope and end in the last points."""
    plt = require_extra("matplotlib.pyplot", extra="draw")
    figure, axes = plt.subplots(2, 2, figsize=(9, 6.6), layout="constrained")
    for panel, (name, title) in zip(axes.flat, PANELS.items(), strict=True):
        lengths = sorted({length for measures in points.values() for length in measures[name]})
        for index, (kind, measures) in enumerate(points.items()):
            x, y = zip(*sorted(measures[name].items()), strict=True)
            exponent = LAYER_KINDS[kind].growth_exponents[MEASURES.index(name)]
            color, marker, line_style = STYLES[kind]
            # later markers are smaller and on top, so that both are visible where points coincide
            panel.plot(x, y, marker, color=color, markersize=9 - 1.3 * index, label=kind)
            panel.plot(x, [y[-1] * (n / x[-1]) ** exponent for n in x], zorder=1, color=color, ls=line_style, lw=1)
        panel.set(xscale="log", yscale="log", title=title)
        panel.set_xticks(lengths, [f"{length:,}" for length in lengths])
        panel.minorticks_off()
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", lw=0.4, color="#dddddd")
    for panel in axes[1]:
        panel.set_xlabel("positions")
    handles = axes.flat[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=len(points), frameon=False)
    figure.suptitle("Markers: counted or measured. Lines: theoretical growth.", fontsize=10)
    figure.savefig(path, dpi=150)
    plt.close(figure)
