"""What a call of the equation returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from regard.attention._common import is_autocast_enabled
from regard.attention.masks import Mask, PositionGrid
from regard.attention.normalizers import Dropout
from regard.attention.normalizers.base import is_random
from regard.attention.scores.base import Score
from regard.errors import StaleStateError


@dataclass
class AttentionInputs:
    """The letters of one call: query, key, value, mask, score, normalize, and what is dropped afterwards."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Mask | None
    score: Score
    normalize: Callable[[Tensor], Tensor]
    dropout: Dropout | None = None

    @property
    def num_queries(self) -> int:
        return self.query.shape[-2]

    @property
    def num_keys(self) -> int:
        return self.key.shape[-2]

    @property
    def num_batch_axes(self) -> int:
        """How many batch axes the scores have; the leading ones are those of lengths and centres."""
        own = max(self.query.dim(), self.key.dim(), self.value.dim()) - 2
        return own if self.mask is None else max(own, self.mask.num_batch_axes())

    @property
    def is_random(self) -> bool:
        """Whether a random choice is part of the weights, which are then computed once and kept."""
        return is_random(self.normalize) or self.score.is_random

    @property
    def is_dropout_active(self) -> bool:
        return self.dropout is not None and self.dropout.training and self.dropout.p > 0

    def positions(self) -> PositionGrid:
        return PositionGrid.full(self.num_queries, self.num_keys, self.num_batch_axes, self.query.device)

    def replace(self, **letters: object) -> AttentionInputs:
        """The same call with other letters: what a fast path asks of a part of the positions."""
        return replace(self, **letters)  # type: ignore[arg-type]


class StateSnapshot:
    """What a call saw of the world: its modes (grad, autocast, training), settings, and versions of tensors.

    A compiler and inference tensors keep no versions, so there the promise to notice changes is not made.
    """

    def __init__(self, inputs: AttentionInputs):
        self.grad_enabled = torch.is_grad_enabled()
        self.autocast_state = _autocast_state(inputs.query.device.type)
        self.training_modes: list[tuple[nn.Module, bool]] = []
        self.hyperparameters: list[tuple[nn.Module, list[object]]] = []
        self.tensor_versions: list[tuple[Tensor, int]] = []
        if not torch.compiler.is_compiling():
            modules = _list_modules(inputs)
            self.training_modes = [(module, module.training) for module in modules]
            self.hyperparameters = [(module, _hyperparameters(module)) for module in modules]
            tensors = [inputs.query, inputs.key, *([] if inputs.mask is None else inputs.mask.tensors())]
            tensors += [
                held for _, all_held in self.hyperparameters for held in all_held if isinstance(held, Tensor)
            ]
            self.tensor_versions = [
                (tensor, tensor._version) for tensor in tensors if not tensor.is_inference()
            ]

    def assert_unchanged(self) -> None:
        """Raise if something of the call was changed since: the weights would be those of another call."""
        written = any(tensor._version != version for tensor, version in self.tensor_versions)
        if written or not all(
            _is_unchanged(_hyperparameters(module), then) for module, then in self.hyperparameters
        ):
            raise StaleStateError(
                "the weights can no longer be read: a tensor, parameter or setting of this call was changed since "
                "(by an optimizer step, perhaps); read .weights before that"
            )

    def run(self, function: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """What ``look`` finds in the same modes as then."""
        changed = [
            (module, module.training) for module, mode in self.training_modes if module.training != mode
        ]
        for module, mode in changed:
            module.training = not mode
        try:
            device, enabled, dtype = self.autocast_state
            with torch.set_grad_enabled(self.grad_enabled):
                if self.autocast_state == _autocast_state(device):
                    return function()
                with torch.autocast(device, dtype, enabled):
                    return function()
        finally:
            for module, mode in changed:
                module.training = mode


def _list_modules(inputs: AttentionInputs) -> list[nn.Module]:
    parts = [part for part in (inputs.score, inputs.normalize) if isinstance(part, nn.Module)]
    return [module for part in parts for module in part.modules()]


def _hyperparameters(module: nn.Module) -> list[object]:
    """What a module computes with: its parameters, buffers, other tensors and numbers."""
    held = (value for word, value in vars(module).items() if word != "training")
    own = (value for value in held if isinstance(value, (Tensor, float, int, str)))
    return [*module._parameters.values(), *module._buffers.values(), *own]


def _is_unchanged(current: list[object], saved: list[object]) -> bool:
    pairs = zip(current, saved, strict=False)
    return len(current) == len(saved) and all(
        a is b or (not isinstance(a, Tensor) and a == b) for a, b in pairs
    )


def _autocast_state(device: str) -> tuple[str, bool, torch.dtype | None]:
    enabled = is_autocast_enabled(device)
    return device, enabled, torch.get_autocast_dtype(device) if enabled else None


@dataclass(
    init=False, repr=False, eq=False
)  # DistributedDataParallel looks for tensors in the fields of those
class AttentionOutput:
    """What was seen, and on demand how regard was shared out.

    ``context`` is there at once. ``weights`` and ``scores`` (what the normalizer saw, -inf where hidden)
    are computed when they are read, from the very tensors, parameters and modes of the call. Where a key
    was chosen at random, ``log_prob`` is the logarithm of the choice's probability and ``entropy`` that of
    the distribution it came from; otherwise both are None.
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
        self._snapshot = StateSnapshot(inputs) if computed is None else None

    def _read(self) -> tuple[Tensor, Tensor]:
        if self._computed is None:
            assert self._snapshot is not None
            self._snapshot.assert_unchanged()
            self._computed = self._snapshot.run(lambda: self._compute(self._inputs))
        return self._computed

    # Plain properties: functools.cached_property breaks fullgraph compilation before Python 3.12.
    @property
    def scores(self) -> Tensor:
        """(*batch, queries, keys), before normalizing."""
        return self._read()[0]

    @property
    def weights(self) -> Tensor:
        """(*batch, queries, keys), after normalizing, in the dtype of the query."""
        return self._read()[1].to(self._inputs.query.dtype)

    @property
    def log_prob(self) -> Tensor | None:
        """(*batch, queries): log-probability of the key that was chosen; None unless one was."""
        chooser = _find_sampler(self._inputs.normalize)
        return chooser.log_prob(*self._read()) if hasattr(chooser, "log_prob") else None

    @property
    def entropy(self) -> Tensor | None:
        """(*batch, queries): entropy of the distribution the key was chosen from; None unless one was."""
        chooser = _find_sampler(self._inputs.normalize)
        return chooser.entropy(self._read()[0]) if hasattr(chooser, "entropy") else None

    def replace_context(self, context: Tensor) -> AttentionOutput:
        """The same look with a context that was projected or joined afterwards."""
        self.context = context
        return self

    def __iter__(self) -> Any:
        raise TypeError(
            "what attend returns is not a pair: read its .context and, if you want them, its .weights"
        )

    def __repr__(self) -> str:
        return f"Attended(context={tuple(self.context.shape)})"


def _find_sampler(normalize: Any) -> Any:
    """What chooses: a normalizer itself, or the one inside that it changes the weights of."""
    return getattr(normalize, "sampler", normalize)


class ExportedAttentionOutput(AttentionOutput):
    """An Attended put together from its tensors, as torch.export hands it back."""

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
