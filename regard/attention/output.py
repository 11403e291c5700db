"""One call of attention: its inputs, the state they were used in, and its output."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from regard.attention._common import broadcast_batch_shape, is_autocast_enabled
from regard.attention.masks import Mask, PositionGrid
from regard.attention.normalizers.base import is_random
from regard.attention.normalizers.wrappers import Dropout
from regard.attention.scores.base import Score
from regard.errors import StaleStateError

__all__ = ["AttentionInputs", "AttentionOutput", "CallSnapshot", "ExportedAttentionOutput", "TensorVersions"]


@dataclass
class AttentionInputs:
    """The validated arguments of one call: query, key, value, mask, score, normalize.

    Args:
        query: (*batch, queries, query_dim)
        key: (*batch, keys, key_dim)
        value: (*batch, keys, value_dim)
        mask: the visible keys of each query, or None if all are visible
        score: from query and key to scores
        normalize: from scores to weights, without its dropout
        dropout: the dropout that is applied to the weights, or None
        num_groups: how many heads of queries share one head of keys and values (grouped-query attention)
        visible: the mask evaluated for all positions, if it is known
        num_queries: the number of queries
        num_keys: the number of keys

    Example:
        >>> inputs = AttentionInputs(*torch.randn(3, 2, 4), None, ScaledDot(), softmax)
        >>> inputs.num_queries, inputs.num_keys, inputs.is_random
        (2, 2, False)
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Mask | None
    score: Score
    normalize: Callable[[Tensor], Tensor]
    dropout: Dropout | None = None
    num_groups: int = 1
    visible: Tensor | None = None
    num_queries: int = field(init=False)
    num_keys: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_queries, self.num_keys = self.query.shape[-2], self.key.shape[-2]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes of the scores."""
        return self.query.shape[:-2] if self.num_groups > 1 else broadcast_batch_shape(self.query, self.key)

    @property
    def num_batch_axes(self) -> int:
        """The number of batch axes of the scores; the leading ones are those of lengths and centers."""
        axes = max(self.query.dim(), self.key.dim(), self.value.dim()) - 2
        return axes if self.mask is None else max(axes, self.mask.num_batch_axes())

    @property
    def is_random(self) -> bool:
        """Whether the weights contain a random choice; they are then computed once and stored."""
        return is_random(self.normalize) or self.score.is_random

    @property
    def is_dropout_active(self) -> bool:
        return self.dropout is not None and self.dropout.training and self.dropout.p > 0

    def positions(self) -> PositionGrid:
        """Every pair of a query position and a key position."""
        return PositionGrid.full(self.num_queries, self.num_keys, self.num_batch_axes, self.query.device)

    def grid(self, query_positions: Tensor, key_positions: Tensor, **layout: Any) -> PositionGrid:
        """Some of the positions; ``layout`` as in `PositionGrid`."""
        sizes = self.num_queries, self.num_keys, self.num_batch_axes
        return PositionGrid(*sizes, query_positions, key_positions, **layout)

    def replace(self, **arguments: object) -> AttentionInputs:
        """A copy with other arguments, as a fast path needs it for a part of the positions."""
        return replace(self, visible=None, **arguments)  # type: ignore[arg-type]

    def ungrouped(self) -> AttentionInputs:
        """The same call with one head of keys and values for each head of queries."""
        if self.num_groups == 1:
            return self
        key, value = (tensor.repeat_interleave(self.num_groups, -3) for tensor in (self.key, self.value))
        return self.replace(key=key, value=value, num_groups=1)


class TensorVersions:
    """The version counters of some tensors; inference tensors have none, so their changes go unnoticed.

    Args:
        tensors: the tensors whose versions are compared
    """

    def __init__(self, tensors: Iterable[Tensor]):
        tracked = () if torch.compiler.is_compiling() else tensors
        self.tensors = [tensor for tensor in tracked if not tensor.is_inference()]
        self.versions = [tensor._version for tensor in self.tensors]

    def is_unchanged(self) -> bool:
        """Whether no tensor was changed in place."""
        return [tensor._version for tensor in self.tensors] == self.versions


class CallSnapshot:
    """The state of one call: grad, autocast and training modes, hyperparameters, and versions of tensors.

    Under a compiler and for inference tensors there are no version counters, so changes of those go unnoticed.

    Args:
        inputs: the inputs of the call

    Example:
        >>> query, key, value = torch.randn(3, 2, 4)
        >>> snapshot = CallSnapshot(AttentionInputs(query, key, value, None, ScaledDot(), softmax))
        >>> snapshot.assert_unchanged()
        >>> _ = key.zero_()
        >>> snapshot.assert_unchanged()
        Traceback (most recent call last):
        regard.errors.StaleStateError: the weights can no longer be read: ...
    """

    def __init__(self, inputs: AttentionInputs):
        self.grad_enabled = torch.is_grad_enabled()
        self.autocast_state = _autocast_state(inputs.query.device.type)
        self.hyperparameters: list[tuple[nn.Module, bool, list[object]]] = []
        tensors = [inputs.query, inputs.key, *([] if inputs.mask is None else inputs.mask.tensors())]
        if not torch.compiler.is_compiling():
            parts = (inputs.score, inputs.normalize)
            modules = [module for part in parts if isinstance(part, nn.Module) for module in part.modules()]
            self.hyperparameters = [(module, module.training, _hyperparameters(module)) for module in modules]
            tensors += [v for *_, values in self.hyperparameters for v in values if isinstance(v, Tensor)]
        self.versions = TensorVersions(tensors)

    def assert_unchanged(self) -> None:
        """Raise if a tensor or hyperparameter has changed since: the weights would be those of another call."""
        settings = ((_hyperparameters(module), saved) for module, _, saved in self.hyperparameters)
        if not self.versions.is_unchanged() or not all(_is_unchanged(current, saved) for current, saved in settings):
            raise StaleStateError(
                "the weights can no longer be read: a tensor, parameter or setting of this call was changed since "
                "(by an optimizer step, perhaps); read .weights before that"
            )

    def run(self, function: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """The result of ``function`` in the modes of the snapshot."""
        changed = [(module, mode) for module, mode, _ in self.hyperparameters if module.training != mode]
        for module, mode in changed:
            module.training = mode
        try:
            device, enabled, dtype = self.autocast_state
            with torch.set_grad_enabled(self.grad_enabled):
                if self.autocast_state == _autocast_state(device):
                    return function()
                with torch.autocast(device, dtype, enabled):
                    return function()
        finally:
            for module, mode in changed:
                module.training = not mode


def _hyperparameters(module: nn.Module) -> list[object]:
    """Everything that a module computes with: its parameters, buffers, other tensors and numbers."""
    settings = [
        value
        for name, value in vars(module).items()
        if isinstance(value, (Tensor, float, int, str)) and name != "training"
    ]
    return [*module._parameters.values(), *module._buffers.values(), *settings]


def _is_unchanged(current: list[object], saved: list[object]) -> bool:
    pairs = zip(current, saved, strict=False)
    return len(current) == len(saved) and all(a is b or (not isinstance(a, Tensor) and a == b) for a, b in pairs)


def _autocast_state(device: str) -> tuple[str, bool, torch.dtype | None]:
    enabled = is_autocast_enabled(device)
    return device, enabled, torch.get_autocast_dtype(device) if enabled else None


@dataclass(init=False, repr=False, eq=False)  # DistributedDataParallel finds tensors in the fields of dataclasses
class AttentionOutput:
    """The context of one call, and on demand its weights and scores.

    ``context`` is available at once. ``weights`` and ``scores`` (the input of the normalizer, -inf for hidden keys)
    are computed when they are first read, from the tensors, parameters and modes of the call; reading them never
    changes the context. If one of those tensors has been changed in place since, reading raises a StaleStateError.

    Args:
        context: (*batch, queries, value_dim)
        inputs: the inputs of the call
        compute: from these inputs to scores and weights
        computed: the scores and weights, if they have been computed with the context

    Attributes:
        context: (*batch, queries, value_dim)
        weights: (*batch, queries, keys), in the dtype of the query
        scores: (*batch, queries, keys)
        log_prob: (*batch, queries), the log-probability of a sampled key; None for other normalizers
        entropy: (*batch, queries), the entropy of the distribution it was sampled from; None for other normalizers

    Example:
        >>> output = attend(torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6))
        >>> output.context.shape, output.weights.shape
        (torch.Size([2, 3, 6]), torch.Size([2, 3, 5]))
    """

    context: Tensor

    def __init__(
        self,
        context: Tensor,
        inputs: AttentionInputs,
        compute: Callable[[AttentionInputs], tuple[Tensor, Tensor]],
        computed: tuple[Tensor, Tensor] | None = None,
    ):
        self.context = context
        self._inputs, self._compute, self._computed = inputs, compute, computed
        self._snapshot = CallSnapshot(inputs) if computed is None else None

    def _read(self) -> tuple[Tensor, Tensor]:
        if self._computed is None:
            assert self._snapshot is not None
            self._snapshot.assert_unchanged()
            self._computed = self._snapshot.run(lambda: self._compute(self._inputs))
        return self._computed

    # Plain properties: functools.cached_property breaks fullgraph compilation before Python 3.12.
    @property
    def scores(self) -> Tensor:
        """(*batch, queries, keys), before normalizing; -inf for hidden keys."""
        return self._read()[0]

    @property
    def weights(self) -> Tensor:
        """(*batch, queries, keys), after normalizing and before dropout, in the dtype of the query."""
        return self._read()[1].to(self._inputs.query.dtype)

    @property
    def log_prob(self) -> Tensor | None:
        """(*batch, queries): the log-probability of the sampled key; None if the normalizer does not sample."""
        sampler = _find_sampler(self._inputs.normalize)
        return sampler.log_prob(*self._read()) if hasattr(sampler, "log_prob") else None

    @property
    def entropy(self) -> Tensor | None:
        """(*batch, queries): the entropy of the sampled distribution; None if the normalizer does not sample."""
        sampler = _find_sampler(self._inputs.normalize)
        return sampler.entropy(self._read()[0]) if hasattr(sampler, "entropy") else None

    def replace_context(self, context: Tensor) -> AttentionOutput:
        """A copy with another context, such as one that was projected or concatenated afterwards."""
        output = copy(self)
        output.context = context
        return output

    def __iter__(self) -> Any:
        raise TypeError("attend returns an AttentionOutput, not a pair: read its .context and its .weights")

    def __repr__(self) -> str:
        return f"AttentionOutput(context={tuple(self.context.shape)})"


def _find_sampler(normalize: Any) -> Any:
    """The normalizer that samples: the given one, or the one that it wraps."""
    return getattr(normalize, "sampler", normalize)


class ExportedAttentionOutput(AttentionOutput):
    """An AttentionOutput rebuilt from its tensors, as torch.export returns it.

    Args:
        tensors: context, weights, scores, log_prob and entropy

    Example:
        >>> ExportedAttentionOutput([torch.ones(2, 3), torch.ones(2, 4), torch.zeros(2, 4), None, None]).weights.shape
        torch.Size([2, 4])
    """

    def __init__(self, tensors: list[Any]):
        self.context, weights, scores, self._log_prob, self._entropy = tensors
        self._computed = scores, weights

    @property
    def weights(self) -> Tensor:
        return self._read()[1]

    @property
    def log_prob(self) -> Tensor | None:
        return self._log_prob

    @property
    def entropy(self) -> Tensor | None:
        return self._entropy


def _to_tensors(output: AttentionOutput) -> tuple[list[Tensor | None], None]:
    return [output.context, output.weights, output.scores, output.log_prob, output.entropy], None


for _cls in (AttentionOutput, ExportedAttentionOutput):
    pytree.register_pytree_node(
        _cls,
        _to_tensors,
        lambda tensors, _: ExportedAttentionOutput(list(tensors)),
        serialized_type_name=f"regard.{_cls.__name__}",
        to_dumpable_context=lambda _: None,
        from_dumpable_context=lambda _: None,
    )
