"""Costs that need no clock: operations, steps that wait for each other, and the path between far positions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from regard.models.encoders import Recurrence


def operations(layer: nn.Module, length: int, dim: int) -> int:
    """Multiplications and additions of one pass forwards, as PyTorch counts them; exp and the like are left out.

    >>> from regard.models.encoders import Recurrence
    >>> operations(Recurrence(48), length=10, dim=48) == 8 * 10 * 48**2
    True
    """
    with torch.no_grad(), Counting() as counter:
        layer(torch.zeros(1, length, dim))
    return counter.total


class Counting(TorchDispatchMode):
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


def depth(layer: nn.Module, length: int, dim: int) -> int:
    """Operations that wait for each other: the longest chain in the graph that PyTorch keeps for backward.

    >>> from regard.models.encoders import Convolution
    >>> depth(Convolution(12), 8, 12) == depth(Convolution(12), 80, 12)
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


def path(layer: nn.Module, length: int, dim: int) -> int:
    """Steps from the first position to the last: the layers that takes, times the steps within a layer.

        layers = (length - 1) / reach, rounded up

    The reach of a layer is how far back its last position depends on others, which the gradient tells. Attention and
    convolution take one step within a layer, a recurrence as many as it reaches. (Convolutions whose gaps widen from
    layer to layer would need only the logarithm.)

    >>> from regard.models.encoders import Convolution, SelfAttention
    >>> path(Convolution(12, kernel=5), 33, 12), path(SelfAttention(12), 33, 12)
    (16, 1)
    """
    x = torch.randn(1, length, dim, requires_grad=True)
    layer(x)[0, -1].sum().backward()
    assert x.grad is not None
    reach = length - 1 - int(x.grad[0].abs().sum(-1).nonzero()[0])
    within = reach if isinstance(layer, Recurrence) else 1
    return -(-(length - 1) // reach) * within


def slope(points: Mapping[int, float], last: int | None = None) -> float:
    """The exponent of a power law through points, by least squares of the logarithms; of the `last` ones only.

    >>> round(slope({10: 3.0, 20: 12.0, 40: 48.0}), 6)
    2.0
    """
    kept = sorted(points.items())[-(last or len(points)) :]
    x, y = ([math.log(value) for value in column] for column in zip(*kept, strict=True))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    over = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return over / sum((a - mean_x) ** 2 for a in x)


def quadratic(points: Mapping[int, float]) -> float:
    """The share of a n^2 at the longest n, where a n^2 + b n is fitted to relative errors.

    >>> round(quadratic({n: 2.0 * n**2 + 600.0 * n for n in (100, 200, 300)}), 6)
    0.5
    """
    n = torch.tensor(sorted(points), dtype=torch.float64)
    y = torch.tensor([points[int(length)] for length in n.tolist()], dtype=torch.float64)
    found = torch.linalg.lstsq(torch.stack([n**2, n], 1) / y[:, None], torch.ones_like(y)[:, None])
    a, b = found.solution.flatten().tolist()
    most = float(n[-1])
    return min(max(a * most / (a * most + b), 0.0), 1.0)
