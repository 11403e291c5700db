"""Fast decoding: exact shortcuts for the decoder states of the models.

The definitions are `RNNDecoderState` and `TransformerDecoderState`; `start_decoding` of the models chooses. Here is
what `rnn_fast` and `transformer_fast` share: states, output projection, weight cache, and rows with the same token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from regard.attention import Dropout, softmax
from regard.attention.observers import WATCHERS
from regard.errors import UnsupportedError

__all__ = [
    "OutputProjection", "ProjectedState", "RecurrentState", "RowGroups", "WeightCache", "applies_softmax",
    "cached_output_projection", "can_fuse", "fingerprint", "get_or_build", "has_no_hooks", "is_plain_inference",
    "unique_rows",
]  # fmt: skip

LOG2E = 1 / math.log(2)
MIN_ROWS = 32  # a product with fewer rows is bound by reading its weights and takes as long for one row

CachedValue = TypeVar("CachedValue")


class OutputProjection:
    """x W^T + b with W^T stored contiguously: for a few rows twice as fast as `nn.Linear`.

    Args:
        weight: W, (vocab, dim)
        bias: b, (vocab,), if there is one

    Example:
        >>> OutputProjection(torch.randn(13, 8))(torch.randn(2, 8)).shape
        torch.Size([2, 13])
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()

    def __call__(self, x: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows vocab"]:
        return torch.mm(x, self.weight_t) if self.bias is None else torch.addmm(self.bias, x, self.weight_t)

    def write_base2(self, x: Float[Tensor, "rows dim"], out: Float[Tensor, "rows vocab"]) -> None:
        """Write the logits to base 2 into a tensor."""
        if self.bias is None:
            torch.mm(x, self.weight_t_base2, out=out)
        else:
            torch.addmm(self.bias_base2, x, self.weight_t_base2, out=out)

    @cached_property
    def weight_t(self) -> Float[Tensor, "dim vocab"]:
        """W^T."""
        return self.weight.t().contiguous()

    @cached_property
    def weight_t_base2(self) -> Float[Tensor, "dim vocab"]:
        """W^T divided by ln 2: its products are logits to base 2."""
        return self.weight.t().mul(LOG2E).contiguous()

    @cached_property
    def bias_base2(self) -> Float[Tensor, " vocab"]:
        """b divided by ln 2."""
        assert self.bias is not None
        return self.bias * LOG2E


class ProjectedState:
    """A decoder state that projects hidden states to logits; a subclass implements `advance`.

    Args:
        output_projection: from hidden states to logits

    Example:
        >>> class Constant(ProjectedState):
        ...     def advance(self, tokens):
        ...         return torch.ones(len(tokens), 8)
        >>> Constant(OutputProjection(torch.randn(13, 8))).base2_logits(torch.tensor([1, 2]), 16).shape
        torch.Size([2, 16])
    """

    def __init__(self, output_projection: Callable[[Tensor], Tensor]):
        self.output_projection, self.buffer = output_projection, torch.empty(0, 0)

    def advance(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows dim"]:
        """The hidden state of each row after its next token."""
        raise NotImplementedError(f"{type(self).__name__} must implement advance(tokens)")

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocab"]:
        """Logits of the next token of each row, given the token before it."""
        return self.output_projection(self.advance(tokens))

    def base2_logits(self, tokens: Int[Tensor, " rows"], block_size: int) -> Float[Tensor, "rows padded"]:
        """The logits of `step` divided by ln 2, in float32, padded with -inf to a multiple of `block_size`.

        The next call overwrites the result.
        """
        x, project = self.advance(tokens), self.output_projection
        if isinstance(project, OutputProjection) and x.dtype == torch.float32:
            project.write_base2(x, self._reserve(x, project.weight_t_base2.shape[1], block_size))
        else:
            logits = project(x).float()
            torch.mul(logits, LOG2E, out=self._reserve(x, logits.shape[1], block_size))
        return self.buffer

    def _reserve(self, x: Tensor, vocab_size: int, block_size: int) -> Float[Tensor, "rows vocab"]:
        """The buffer without its padding, cut to the rows of x or allocated for them."""
        if len(self.buffer) < len(x) or not self.buffer.numel():
            padded = -(-vocab_size // block_size) * block_size
            self.buffer = x.new_full((len(x), padded), -math.inf, dtype=torch.float32)
        self.buffer = self.buffer[: len(x)]
        return self.buffer[:, :vocab_size]


class RecurrentState(ProjectedState):
    """A state of a recurrent decoder and the memory that it attends to; neighboring rows share a sentence.

    Args:
        output_projection: from hidden states to logits
        memory: an `EncoderMemory` or a `FactoredAdditive`
    """

    def __init__(self, output_projection: Callable[[Tensor], Tensor], memory: Any):
        super().__init__(output_projection)
        self.memory, self.t = memory, 0
        self.attention: Any = None  # of the last step; with `weights`

    def weights(self) -> Float[Tensor, "rows src_len"]:
        """Attention weights of the last step."""
        if self.attention is None:
            raise UnsupportedError(f"{type(self).__name__}: a model without attention has no weights")
        return self.attention.weights.flatten(0, 1)

    def reorder(self, rows: Int[Tensor, " new_rows"]) -> None:
        """Continue with these rows; a row may be repeated or left out."""
        self.memory = replace(self.memory.reorder(rows // self.memory.beam_width), beam_width=1)
        self.reorder_states(rows)

    def reorder_beams(self, rows: Int[Tensor, "sentences width"]) -> None:
        """`reorder` where each line of `rows` is the beam of one sentence, and sentences keep their order."""
        if len(rows) < len(self.memory):
            self.memory = self.memory.reorder(rows[:, 0] // self.memory.beam_width)
        self.memory = replace(self.memory, beam_width=rows.shape[1])
        self.reorder_states(rows.flatten())

    def reorder_states(self, rows: Int[Tensor, " new_rows"]) -> None:
        """Continue with the recurrent states of these rows."""
        raise NotImplementedError(f"{type(self).__name__} must implement reorder_states(rows)")


WeightCache = WeakKeyDictionary[nn.Module, tuple[tuple[object, ...], CachedValue]]
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
    if not (is_known and is_plain_inference(weight)) or weight.is_inference():
        return lm_head
    return get_or_build(OUTPUT_PROJECTIONS, lm_head, [lm_head], lambda: OutputProjection(weight, lm_head.bias))


def get_or_build(
    cache: WeightCache[CachedValue], model: nn.Module, modules: Iterable[nn.Module], build: Callable[[], CachedValue]
) -> CachedValue:
    """The cached value of a model, built again after a parameter of these modules has changed.

    Args:
        cache: values by model; a value is dropped with its model
        model: the model
        modules: the modules whose parameters the value depends on
        build: returns a new value

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
    # The identity of each tensor, its version and the address of its data, and a sample of all their contents.
    versions = ((id(tensor), tensor._version, tensor.data_ptr()) for tensor in tensors)
    version, entry = (*versions, fingerprint(tensors)), cache.get(model)
    if entry is None or entry[0] != version:
        entry = cache[model] = version, build()
    return entry[1]


def fingerprint(weights: Sequence[Tensor]) -> float:
    """A number from elements of every row and every column of all weights, for writes that count no version.

    Version counters miss writes through `.data` only (steps of fused optimizers are counted, see
    `regard.attention.projected`). Such a write to a vector, to rows, columns or blocks of a matrix or to all of it
    changes the number; one to a few single elements of a matrix may not. Each element is weighted by its place, so a
    permutation changes the number too.

    Args:
        weights: parameters on one device

    Shape: weights (*) each

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
        or module._modules.get("parametrizations")  # as `is_parametrized`, which is slower
    )


def can_fuse(weight: Tensor, modules: Iterable[nn.Module], known: Iterable[type[nn.Module]]) -> bool:
    """Whether none of these modules need be called: see `is_plain_inference` and `has_no_hooks`; nobody watches.

    They must be in eval mode and compute what one of the known classes defines.

    Args:
        weight: a parameter
        modules: parts of a model
        known: classes of which a subclass counts too, unless it has a `forward` of its own

    Shape: weight (*)

    Example:
        >>> layer = nn.Linear(2, 3).eval()
        >>> can_fuse(layer.weight, [layer], [nn.Linear])  # gradients are enabled
        False
        >>> with torch.no_grad():
        ...     can_fuse(layer.weight, [layer], [nn.Linear]), can_fuse(layer.weight, [layer.train()], [nn.Linear])
        (True, False)
    """
    if not is_plain_inference(weight) or WATCHERS.get() or weight.dtype not in (torch.float32, torch.float64):
        return False
    forwards = {cls.forward for cls in known}
    return all(not m.training and type(m).forward in forwards and has_no_hooks(m) for m in modules)


def applies_softmax(attention: Any) -> bool:
    """Whether an attention in eval mode normalizes its scores by softmax.

    Args:
        attention: a module with `normalize`, such as `Attention`

    Example:
        >>> applies_softmax(Attention(Additive(4, 6, 8))), applies_softmax(Attention(Additive(4, 6, 8), sparsemax))
        (True, False)
    """
    normalize = attention.normalize
    return (normalize.normalize if isinstance(normalize, Dropout) else normalize) in (None, softmax)


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
