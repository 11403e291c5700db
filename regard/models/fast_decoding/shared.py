"""Parts shared by the fast decoders: output projection, weight cache, row groups and row slots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

__all__ = [
    "OutputProjection",
    "RowGroups",
    "RowSlots",
    "WeightCache",
    "WeightsVersion",
    "base2_logits",
    "cached_output_projection",
    "fingerprint",
    "get_or_build",
    "has_no_hooks",
    "is_inlineable",
    "is_plain_inference",
    "unique_rows",
]

LOG2E = 1 / math.log(2)
MIN_ROWS = 32  # a product with fewer rows is bound by reading its weights and takes as long for one row

CachedValue = TypeVar("CachedValue")


class OutputProjection:
    """x W^T with W^T stored contiguously: for a few rows twice as fast as `nn.Linear`.

    Args:
        weight: W, (vocab, dim)

    Example:
        >>> OutputProjection(torch.randn(13, 8))(torch.randn(2, 8)).shape
        torch.Size([2, 13])
    """

    def __init__(self, weight: Tensor):
        self.weight = weight.detach()

    def __call__(self, x: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows vocab"]:
        return torch.mm(x, self.weight_t)

    @cached_property
    def weight_t(self) -> Float[Tensor, "dim vocab"]:
        """W^T."""
        return self.weight.t().contiguous()

    @cached_property
    def weight_t_base2(self) -> Float[Tensor, "dim vocab"]:
        """W^T divided by ln 2: its products are logits to base 2."""
        return self.weight.t().mul(LOG2E).contiguous()


def base2_logits(
    projection: Callable[[Tensor], Tensor],
    x: Float[Tensor, "rows dim"],
    block_size: int,
    buffer: Float[Tensor, "buffer padded"] | None,
) -> Float[Tensor, "rows padded"]:
    """Logits divided by ln 2, in float32, padded with -inf to a multiple of `block_size`.

    Args:
        projection: from hidden states to logits
        x: hidden states
        block_size: the width of the result is a multiple of it
        buffer: the result of an earlier call, which is overwritten if it is large enough

    Shape: x (rows, dim) -> (rows, padded)

    Returns:
        the logits

    Example:
        >>> base2_logits(OutputProjection(torch.randn(13, 8)), torch.randn(2, 8), 16, None).shape
        torch.Size([2, 16])
    """
    if isinstance(projection, OutputProjection) and x.dtype == torch.float32:
        vocab_size = projection.weight_t_base2.shape[1]
        buffer = _buffer(buffer, x, vocab_size, block_size)
        torch.mm(x, projection.weight_t_base2, out=buffer[:, :vocab_size])
    else:
        logits = projection(x).float()
        buffer = _buffer(buffer, x, logits.shape[1], block_size)
        torch.mul(logits, LOG2E, out=buffer[:, : logits.shape[1]])
    return buffer


def _buffer(buffer: Tensor | None, x: Tensor, vocab_size: int, block_size: int) -> Tensor:
    if buffer is None or len(buffer) < len(x):
        width = -(-vocab_size // block_size) * block_size
        return x.new_full((len(x), width), -math.inf, dtype=torch.float32)
    return buffer[: len(x)]


class WeightsVersion(NamedTuple):
    """Identity of some parameters and a sample of their contents: equal as long as they are the same and unchanged.

    Args:
        parameter_ids: the identity of each tensor
        versions: its version counter
        data_pointers: the address of its data
        fingerprint: the `fingerprint` of all tensors

    Example:
        >>> WeightsVersion((1,), (0,), (64,), 0.5) == WeightsVersion((1,), (1,), (64,), 0.5)
        False
    """

    parameter_ids: tuple[int, ...]
    versions: tuple[int, ...]
    data_pointers: tuple[int, ...]
    fingerprint: float


WeightCache = WeakKeyDictionary[nn.Module, tuple[WeightsVersion, CachedValue]]
OUTPUT_PROJECTIONS: WeightCache[OutputProjection] = WeakKeyDictionary()


def cached_output_projection(lm_head: nn.Linear) -> Callable[[Tensor], Tensor]:
    """The output layer as an `OutputProjection`, or the layer itself where it must be called.

    Args:
        lm_head: the layer

    Returns:
        from hidden states to logits

    Example:
        >>> with torch.no_grad():
        ...     type(cached_output_projection(nn.Linear(8, 13, bias=False))).__name__
        'OutputProjection'
    """
    weight = lm_head.weight
    is_known = has_no_hooks(lm_head) and type(lm_head).forward is nn.Linear.forward
    is_known = is_known and lm_head._parameters["bias"] is None
    if not (is_known and is_plain_inference(weight)) or weight.is_inference():
        return lm_head
    return get_or_build(OUTPUT_PROJECTIONS, lm_head, [lm_head], lambda: OutputProjection(weight))


def get_or_build(
    cache: WeightCache[CachedValue], model: nn.Module, modules: Iterable[nn.Module], build: Callable[[], CachedValue]
) -> CachedValue:
    """The cached value of a model, built again after a parameter of these modules has changed.

    Args:
        cache: values by model; a value is dropped with its model
        model: the model
        modules: the modules whose parameters the value depends on
        build: returns a new value

    Returns:
        the value

    Example:
        >>> cache, model = WeakKeyDictionary(), nn.Linear(2, 3)
        >>> first = get_or_build(cache, model, [model], object)
        >>> first is get_or_build(cache, model, [model], object)
        True
        >>> model.reset_parameters()
        >>> first is get_or_build(cache, model, [model], object)
        False
    """
    tensors = [p for module in modules for p in module._parameters.values() if p is not None]
    if any(p.is_inference() for p in tensors):  # inference tensors have no version counter
        return build()
    version, entry = _weights_version(tensors), cache.get(model)
    if entry is None or entry[0] != version:
        entry = cache[model] = version, build()
    return entry[1]


def _weights_version(tensors: Sequence[Tensor]) -> WeightsVersion:
    return WeightsVersion(
        tuple(map(id, tensors)),
        tuple(p._version for p in tensors),
        tuple(p.data_ptr() for p in tensors),
        fingerprint(tensors),
    )


def fingerprint(weights: Sequence[Tensor]) -> float:
    """A number from elements of every row and every column of all weights, for writes that count no version.

    Version counters miss writes through `.data` only (steps of fused optimizers are counted, see
    `regard.attention.projected`). Such a write to a vector, to rows, columns or blocks of a matrix or to all of it
    changes the number; one to a few single elements of a matrix may not. Each element is weighted by its place, so a
    permutation changes the number too.

    Args:
        weights: parameters on one device

    Returns:
        the number

    Example:
        >>> weight = torch.rand(300, 70)
        >>> before = fingerprint([weight])
        >>> weight.data[17] = 0.0
        >>> fingerprint([weight]) == before
        False
    """
    sample = torch.cat([_sample(weight) for weight in weights]).double()
    return float(sample @ torch.linspace(1, 2, len(sample), dtype=torch.float64, device=sample.device))


def _sample(weight: Tensor) -> Tensor:
    count, step = _sample_size(weight.shape)
    weight = weight.detach()
    return weight.as_strided((count,), (step,)) if weight.is_contiguous() else weight.reshape(-1)[::step]


@cache
def _sample_size(shape: tuple[int, ...]) -> tuple[int, int]:
    """How many elements are sampled, and the largest step through a tensor that reaches all its rows and columns.

    A step below the number of columns skips no row; one below the number of rows leaves at least as many elements as
    there are columns, which are all different if the step has no divisor in common with their number.
    """
    size, columns = math.prod(shape), math.prod(shape[1:])
    step = max(min(shape[0], columns) - 1, 1) if shape else 1
    while math.gcd(step, columns) > 1:
        step -= 1
    return -(-size // step), step


def is_plain_inference(weight: Tensor) -> bool:
    """Whether no graph is recorded and no autocast changes the dtype of a product with this weight.

    Args:
        weight: a parameter

    Shape: weight (*)

    Returns:
        True in ordinary inference

    Example:
        >>> with torch.no_grad():
        ...     is_plain_inference(torch.ones(2))
        True
    """
    return not (
        torch.is_grad_enabled()
        or torch.compiler.is_compiling()
        or torch.jit.is_tracing()  # type: ignore[attr-defined]
        or torch.is_autocast_enabled(weight.device.type)
    )


def has_no_hooks(module: nn.Module) -> bool:
    """Whether calling a module calls the `forward` of its class and nothing else, with its own parameters.

    Args:
        module: the module

    Example:
        >>> layer = nn.Linear(2, 3)
        >>> has_no_hooks(layer)
        True
        >>> handle = layer.register_forward_hook(lambda module, args, output: None)
        >>> has_no_hooks(layer)
        False
    """
    return not (
        module._forward_hooks
        or module._forward_pre_hooks
        or "forward" in vars(module)
        or type(module).__call__ is not nn.Module.__call__
        or is_parametrized(module)
    )


def is_inlineable(module: nn.Module, known: Iterable[type[nn.Module]]) -> bool:
    """Whether a module need not be called, as it is in eval mode and computes what one of these classes defines.

    Args:
        module: a part of a model
        known: classes of which a subclass counts too, unless it has a `forward` of its own

    Example:
        >>> is_inlineable(nn.Linear(2, 3).eval(), [nn.Linear]), is_inlineable(nn.Linear(2, 3), [nn.Linear])
        (True, False)
    """
    forward = type(module).forward
    return not module.training and has_no_hooks(module) and any(forward is cls.forward for cls in known)


class RowGroups:
    """Groups of equal rows: what is computed once per group is expanded to all rows.

    Without a table every row is a group of its own.

    Args:
        table: the group of each row
        num_groups: number of groups

    Example:
        >>> values, groups = unique_rows(torch.tensor([7, 3, 7, 7, 5]), min_rows=1)
        >>> values.tolist(), groups.expand(values).tolist()
        ([3, 5, 7], [7, 3, 7, 7, 5])
    """

    def __init__(self, table: Int[Tensor, " rows"] | None = None, num_groups: int = 0):
        self.table, self.num_groups = table, num_groups

    def expand(self, values: Shaped[Tensor, "groups *_"]) -> Shaped[Tensor, "rows *_"]:
        """The value of its group for each row."""
        return values if self.table is None else values.index_select(0, self.table)

    def pick_one(self, rows: Float[Tensor, "rows dim"]) -> Float[Tensor, "groups dim"]:
        """One row of each group, of rows that are equal within a group."""
        if self.table is None:
            return rows
        index = self.table.new_empty(self.num_groups)
        index[self.table] = torch.arange(len(self.table))
        return rows.index_select(0, index)


def unique_rows(numbers: Int[Tensor, " rows"], min_rows: int = MIN_ROWS) -> tuple[Int[Tensor, " groups"], RowGroups]:
    """Unique numbers and the groups of rows that have them.

    Args:
        numbers: a number per row
        min_rows: fewer rows are not grouped; nor are rows on a GPU, which would have to synchronize

    Shape: numbers (rows,) -> (groups,)

    Returns:
        the numbers and the groups

    Example:
        >>> unique_rows(torch.tensor([7, 3, 7]), min_rows=1)[0].tolist()
        [3, 7]
    """
    if len(numbers) < min_rows or numbers.device.type != "cpu":
        return numbers, RowGroups()
    unique, table = numbers.unique(return_inverse=True)
    return unique, RowGroups(table, len(unique))


class RowSlots:
    """Slots in which the sentences of a batch are stored.

    A removed sentence leaves a hole, which a sentence from the end fills: few are moved, but the order changes.

    Args:
        num_rows: number of sentences
        device: device of the index tensors

    Example:
        >>> slots = RowSlots(5, torch.device("cpu"))
        >>> slots.remove(torch.tensor([0, 2, 4]))  # three remain; the last one moves to slot 1
        (3, tensor([1]), tensor([4]))
        >>> stored = torch.tensor([[10], [14], [12]])
        >>> slots.from_slots(stored).flatten().tolist()
        [10, 12, 14]
    """

    def __init__(self, num_rows: int, device: torch.device):
        self.slots = torch.arange(num_rows, device=device)  # the slot of each sentence
        self.order: Tensor | None = None  # the sentence in each slot; None if they are in order

    def __len__(self) -> int:
        return len(self.slots)

    def slots_of(self, sentences: Int[Tensor, " some"]) -> Int[Tensor, " some"]:
        """The slots of these sentences."""
        return self.slots[sentences]

    def to_slots(self, values: Shaped[Tensor, "sentences *_"]) -> Shaped[Tensor, "sentences *_"]:
        """From the order of sentences to the order of slots."""
        return values if self.order is None else values.index_select(0, self.order)

    def from_slots(self, values: Shaped[Tensor, "sentences *_"]) -> Shaped[Tensor, "sentences *_"]:
        """From the order of slots to the order of sentences."""
        return values if self.order is None else values.index_select(0, self.slots)

    def remove(self, remaining: Int[Tensor, " remaining"]) -> tuple[int, Tensor, Tensor]:
        """Remove all other sentences.

        Returns:
            how many remain, the holes among their slots, and the slots that move there
        """
        num_left, slots = len(remaining), self.slots[remaining]
        is_free = torch.ones(num_left, dtype=torch.bool, device=slots.device)
        is_low = slots < num_left
        is_free[slots[is_low]] = False
        holes, movers = is_free.nonzero().flatten(), slots[~is_low]
        slots[~is_low] = holes
        self.slots, self.order = slots, slots.argsort()
        return num_left, holes, movers
