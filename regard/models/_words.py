"""The product with all words of the vocabulary, the largest there is, laid out once for all steps."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

MANY = 2**18  # numbers in a matrix that oneDNN is asked to lay out; below, its calls cost more than they save

Version = tuple[int, int, int, float]


class Words:
    """x W^T, with W in the order in which oneDNN reads it: a fifth less time, for a handful of rows a third."""

    def __init__(self, weight: Tensor):
        self.weight, self.packed = weight, None
        plain = weight.device.type == "cpu" and weight.dtype == torch.float32
        if plain and weight.numel() >= MANY and torch.backends.mkldnn.is_available():
            self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach())

    def __call__(self, x: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows words"]:
        if self.packed is None:
            return F.linear(x, self.weight)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, None, "none", [], "")


KEPT: WeakKeyDictionary[nn.Module, tuple[Version, Words]] = WeakKeyDictionary()


def words(output: nn.Linear) -> Callable[[Tensor], Tensor]:
    """The same as the last layer, to be asked again and again; the layer itself where it must be called."""
    weight = output.weight
    plain = untouched(output) and output._parameters["bias"] is None
    if not (plain and unrecorded(weight)) or weight.is_inference():
        return output
    version, kept = (id(weight), weight._version, weight.data_ptr(), mark(weight)), KEPT.get(output)
    if kept is None or kept[0] != version:
        kept = KEPT[output] = version, Words(weight)
    return kept[1]


def mark(weight: Tensor) -> float:
    """A number that tells whether weights have changed: a fused optimizer changes them without counting a version."""
    return float(weight.detach().sum())


def unrecorded(weight: Tensor) -> bool:
    """Whether nobody records what is computed now, or computes in another precision than the weights'."""
    return not (
        torch.is_grad_enabled()
        or torch.compiler.is_compiling()
        or torch.jit.is_tracing()  # type: ignore[attr-defined]
        or torch.is_autocast_enabled(weight.device.type)
    )


def untouched(part: nn.Module) -> bool:
    """Whether a part does what its class says: no hooks, and no class made for it."""
    known = type(part).__module__.startswith(("regard.", "torch.nn.modules."))
    return known and not (part._forward_hooks or part._forward_pre_hooks)
