"""The product with all words of the vocabulary, the largest there is, laid out once for all steps.

What was made of a model's weights, kept with the model for as long as they are the same.

Rows that share something: it is computed once for all of them.

Where each sentence of a batch is kept, when those that leave are replaced by the last ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

LOG2E = 1 / math.log(2)


LinearVersion = tuple[int, int, int, float]


class OutputProjection:
    """x W^T, with W^T in the order in which it is read: for a handful of rows half the time."""

    def __init__(self, weight: Tensor):
        self.weight = weight.detach()

    def __call__(self, x: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows words"]:
        return torch.mm(x, self.weight_t)

    @cached_property
    def weight_t(self) -> Float[Tensor, "dim words"]:
        return self.weight.t().contiguous()

    @cached_property
    def weight_t_base2(self) -> Float[Tensor, "dim words"]:
        """The same divided by ln 2: what it gives are powers of two."""
        return self.weight.t().mul(LOG2E).contiguous()


def base2_logits(
    projection: Callable[[Tensor], Tensor],
    x: Float[Tensor, "rows dim"],
    block_size: int,
    buffer: Float[Tensor, "room padded"] | None,
) -> Float[Tensor, "rows padded"]:
    """What `output` gives, divided by ln 2, in whole blocks: behind the last word stands -inf.

    It is written into `room`, or into new room where there is too little.
    """
    if isinstance(projection, OutputProjection) and x.dtype == torch.float32:
        vocab = projection.weight_t_base2.shape[1]
        buffer = _buffer(buffer, x, vocab, block_size)
        torch.mm(x, projection.weight_t_base2, out=buffer[:, :vocab])
    else:
        scores = projection(x).float()
        buffer = _buffer(buffer, x, scores.shape[1], block_size)
        torch.mul(scores, LOG2E, out=buffer[:, : scores.shape[1]])
    return buffer


def _buffer(buffer: Tensor | None, x: Tensor, vocab_size: int, block_size: int) -> Tensor:
    if buffer is None or len(buffer) < len(x):
        return x.new_full((len(x), -(-vocab_size // block_size) * block_size), -math.inf, dtype=torch.float32)
    return buffer[: len(x)]


OUTPUT_PROJECTIONS: WeakKeyDictionary[nn.Module, tuple[LinearVersion, OutputProjection]] = WeakKeyDictionary()


def cached_output_projection(lm_head: nn.Linear) -> Callable[[Tensor], Tensor]:
    """The same as the last layer, to be asked again and again; the layer itself where it must be called."""
    weight = lm_head.weight
    plain = has_no_hooks(lm_head) and lm_head._parameters["bias"] is None
    if not (plain and is_plain_inference(weight)) or weight.is_inference():
        return lm_head
    version, kept = (
        (id(weight), weight._version, weight.data_ptr(), fingerprint(weight)),
        OUTPUT_PROJECTIONS.get(lm_head),
    )
    if kept is None or kept[0] != version:
        kept = OUTPUT_PROJECTIONS[lm_head] = version, OutputProjection(weight)
    return kept[1]


def fingerprint(weight: Tensor) -> float:
    """A number that tells whether weights have changed: a fused optimizer changes them without counting a version.

    Each weight counts by its place, so that it also tells if they were only moved.
    """
    left = weight.detach()
    while left.dim():
        left = left @ torch.linspace(1, 2, left.shape[-1], dtype=left.dtype, device=left.device)
    return float(left)


def is_plain_inference(weight: Tensor) -> bool:
    """Whether nobody records what is computed now, or computes in another precision than the weights'."""
    return not (
        torch.is_grad_enabled()
        or torch.compiler.is_compiling()
        or torch.jit.is_tracing()  # type: ignore[attr-defined]
        or torch.is_autocast_enabled(weight.device.type)
    )


def has_no_hooks(module: nn.Module) -> bool:
    """Whether a part does what its class says: no hooks, no class or function made for it."""
    known = type(module).__module__.startswith(("regard.", "torch.nn.modules."))
    return (
        known and "forward" not in vars(module) and not (module._forward_hooks or module._forward_pre_hooks)
    )


CachedValue = TypeVar("CachedValue")


class WeightsVersion(NamedTuple):
    """Which weights were used: the same tensors, unchanged since."""

    parameter_ids: tuple[int, ...]
    versions: tuple[int, ...]
    data_pointers: tuple[int, ...]
    fingerprints: tuple[float, ...]


WeightCache = WeakKeyDictionary[nn.Module, tuple[WeightsVersion, CachedValue]]


def get_or_build(
    cache: WeightCache[CachedValue],
    model: nn.Module,
    modules: Iterable[nn.Module],
    build: Callable[[], CachedValue],
) -> CachedValue:
    """What `make` gives, made again only after weights of these parts have changed."""
    held = [p for part in modules for p in part._parameters.values() if p is not None]
    if any(p.is_inference() for p in held):  # it has no counter to tell whether it has changed
        return build()
    key, found = _weights_version(held), cache.get(model)
    if found is None or found[0] != key:
        found = cache[model] = key, build()
    return found[1]


def _weights_version(tensors: Sequence[Tensor]) -> WeightsVersion:
    return WeightsVersion(
        tuple(map(id, tensors)),
        tuple(p._version for p in tensors),
        tuple(p.data_ptr() for p in tensors),
        tuple(map(fingerprint, tensors)),
    )


def is_inlineable(module: nn.Module) -> bool:
    """Whether a part need not be called: it does what its class says, and forgets nothing."""
    return has_no_hooks(module) and not module.training


MIN_ROWS = 32  # rows; a product with fewer has its weights to read, and takes as long for one of them


class RowGroups:
    """Which of the distinct ones each row has; where there is no table, every row has its own.

    >>> numbers, shared = unique_rows(torch.tensor([7, 3, 7, 7, 5]), min_rows=1)
    >>> numbers.tolist(), shared.expand(numbers).tolist()
    ([3, 5, 7], [7, 3, 7, 7, 5])
    """

    def __init__(self, table: Int[Tensor, " rows"] | None = None, num_groups: int = 0):
        self.table, self.num_groups = table, num_groups

    def expand(self, values: Shaped[Tensor, "distinct *_"]) -> Shaped[Tensor, "rows *_"]:
        """To every row what it has of these."""
        return values if self.table is None else values.index_select(0, self.table)

    def pick_one(self, rows: Float[Tensor, "rows dim"]) -> Float[Tensor, "distinct dim"]:
        """Of rows that are the same where they share, one each."""
        if self.table is None:
            return rows
        one = self.table.new_empty(self.num_groups)
        one[self.table] = torch.arange(len(self.table))
        return rows.index_select(0, one)


def unique_rows(
    numbers: Int[Tensor, " rows"], min_rows: int = MIN_ROWS
) -> tuple[Int[Tensor, " distinct"], RowGroups]:
    """The numbers that occur, and which each row has; few rows, and those on a GPU, which would wait, keep theirs."""
    if len(numbers) < min_rows or numbers.device.type != "cpu":
        return numbers, RowGroups()
    found, table = numbers.unique(return_inverse=True)
    return found, RowGroups(table, len(found))


class RowSlots:
    """A sentence that leaves makes a hole, which one from the end fills: so few are moved, but the order changes.

    >>> places = RowSlots(5, torch.device("cpu"))
    >>> places.remove(torch.tensor([0, 2, 4]))  # three stay; the last one goes where the second was
    (3, tensor([1]), tensor([4]))
    >>> kept = torch.tensor([[10], [14], [12]])  # at its places
    >>> places.from_slots(kept).flatten().tolist()
    [10, 12, 14]
    """

    def __init__(self, num_rows: int, device: torch.device):
        self.slots = torch.arange(num_rows, device=device)  # of each sentence, in order
        self.order: Tensor | None = None  # which sentence is at each place; None: they are in order

    def __len__(self) -> int:
        return len(self.slots)

    def slots_of(self, sentences: Int[Tensor, " some"]) -> Int[Tensor, " some"]:
        return self.slots[sentences]

    def to_slots(self, values: Shaped[Tensor, "sentences *_"]) -> Shaped[Tensor, "sentences *_"]:
        return values if self.order is None else values.index_select(0, self.order)

    def from_slots(self, values: Shaped[Tensor, "sentences *_"]) -> Shaped[Tensor, "sentences *_"]:
        return values if self.order is None else values.index_select(0, self.slots)

    def remove(self, remaining: Int[Tensor, " left"]) -> tuple[int, Tensor, Tensor]:
        """All others leave: how many are left, the holes among their places, and which places move there."""
        left, place = len(remaining), self.slots[remaining]
        free = torch.ones(left, dtype=torch.bool, device=place.device)
        inside = place < left
        free[place[inside]] = False
        holes, movers = free.nonzero().flatten(), place[~inside]
        place[~inside] = holes
        self.slots, self.order = place, place.argsort()
        return left, holes, movers
