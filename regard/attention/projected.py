"""Attention as a module, and keys that are projected once and used for many queries, as in a decoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from regard.attention._common import is_autocast_enabled, is_transformed, part_name
from regard.attention.equation import (
    NormalizerLike,
    ScoreLike,
    attend_unwatched,
    check_shapes,
    choose_paths,
    find_context,
    instantiate,
    is_large,
    make_output,
    run_paths,
    validate,
)
from regard.attention.fast.blocked import blocked_attention
from regard.attention.masks import Mask, PositionGrid, as_mask
from regard.attention.module import ResettableModule
from regard.attention.observers import WATCHERS, notify_watchers
from regard.attention.output import AttentionInputs, AttentionOutput
from regard.attention.scores.base import Score
from regard.attention.scores.dot import ScaledDot
from regard.errors import ShapeError, StaleStateError

__all__ = [
    "Attention", "FixedKeys", "KeyProjectedScore", "PreparedCall", "ProjectedKV", "TensorVersions",
    "attend_fixed_keys", "count_optimizer_step", "project_keys", "reorder_projected",
]  # fmt: skip

Self = TypeVar("Self", bound="FixedKeys")


class KeyProjectedScore(Score):
    """A score whose keys are projected already, so that only the query's projection is left.

    Args:
        score: the score that projected the keys
        key_shape: the shape of the keys before their projection, for the check of sizes

    Shape: query (*batch, queries, query_dim), projected key (*batch, keys, dim) -> (*batch, queries, keys)

    Example:
        >>> score, key = project_keys(Additive(4, 6, 8), torch.randn(5, 6))
        >>> type(score).__name__, key.shape, score(torch.randn(3, 4), key).shape
        ('KeyProjectedScore', torch.Size([5, 8]), torch.Size([3, 5]))
    """

    def __init__(self, score: Score, key_shape: torch.Size):
        super().__init__()
        self.score, self.key_shape = score, key_shape
        self._pairwise = score.pairwise
        self.output_kind, self.is_positional = score.output_kind, score.is_positional
        self.is_random = score.is_random

    @property
    def pairwise(self) -> Score:
        return self._pairwise

    def project_query(self, query: Tensor, num_keys: int) -> Tensor:
        return self.score.project_query(query, num_keys)

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        self.score.check_dims(query, torch.empty(self.key_shape, device="meta"))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self._pairwise(self.project_query(query, key.shape[-2]), key)

    def forward_grouped(self, query: Tensor, key: Tensor, num_groups: int) -> Tensor:
        return self._pairwise.forward_grouped(self.project_query(query, key.shape[-2]), key, num_groups)

    def restrict(self, grid: PositionGrid) -> Score | None:
        return None if self._pairwise.restrict(grid) is None else self


def project_keys(score: Any, key: Tensor) -> tuple[Any, Tensor]:
    """The score without its projection of the keys, and the projected keys.

    Args:
        score: a score; one that does not project keys is returned as it is
        key: (*batch, keys, key_dim)

    Shape: key (*batch, keys, key_dim) -> (*batch, keys, dim)

    Returns: the score and the projected keys, (*batch, keys, dim)

    Example:
        >>> project_keys(Additive(4, 6, 8), torch.randn(5, 6))[1].shape
        torch.Size([5, 8])
    """
    if not isinstance(score, Score) or score.pairwise is score:
        return score, key
    try:
        return KeyProjectedScore(score, key.shape), score.project_key(key)
    except RuntimeError as error:
        raise ShapeError(f"{part_name(score)} does not accept key {tuple(key.shape)}") from error


def reorder_projected(score: Any, key: Tensor, rows: Tensor) -> tuple[Any, Tensor]:
    """The result of `project_keys` for other rows of the first batch axis.

    Args:
        score, key: as `project_keys` returns them
        rows: the selected rows

    Shape: key (batch, *, keys, dim), rows (new,) -> (new, *, keys, dim)

    Returns: the score and the keys of these rows

    Example:
        >>> score, key = project_keys(Additive(4, 6, 8), torch.randn(2, 5, 6))
        >>> reorder_projected(score, key, torch.tensor([1, 1, 0]))[1].shape
        torch.Size([3, 5, 8])
    """
    if isinstance(score, KeyProjectedScore):
        score = KeyProjectedScore(score.score, torch.Size([len(rows), *score.key_shape[1:]]))
    return score, key.index_select(0, rows)


def count_optimizer_step(optimizer: Optimizer, *_: object) -> None:
    """Increment the version of each parameter that an optimizer has changed, which fused optimizers do not.

    Args:
        optimizer: the optimizer, after a step
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    torch.autograd.graph.increment_version(parameters)


register_optimizer_step_post_hook(count_optimizer_step)  # once for the process, for every optimizer


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


class PreparedCall(NamedTuple):
    """A call that was validated once for all queries of one shape.

    Args:
        signature: what the validation depends on, except for the keys
        inputs: the validated arguments
        paths: the fast paths that may apply, in order; None: they are chosen in each call
        mask_versions: versions of the tensors of the mask
    """

    signature: tuple[object, ...]
    inputs: AttentionInputs
    paths: tuple[Callable[..., Tensor | None], ...] | None
    mask_versions: TensorVersions


class FixedKeys:
    """Projected keys, their values and their mask, which are validated once and used for many queries.

    Args:
        score: from query and key to scores; if it has projections of the keys, they are applied now
        key: (*batch, keys, key_dim)
        value: (*batch, keys, value_dim)
        mask: the visible keys
        modules: what the keys and values depend on; its parameters must not change
        num_groups: how many heads of queries share one head of keys
    """

    def __init__(
        self,
        score: Any,
        key: Tensor,
        value: Tensor,
        mask: Mask | Tensor | None,
        modules: Iterable[object],
        num_groups: int = 1,
    ):
        check_shapes(None, key, value)
        self.score, self.key = project_keys(score, key)
        self.value, self.num_groups = value, num_groups
        self.mask = mask if mask is None or isinstance(mask, Mask) else as_mask(mask)
        parameters = [p for module in modules if isinstance(module, nn.Module) for p in module.parameters()]
        self.parameter_versions = TensorVersions(parameters)
        self.prepared: PreparedCall | None = None

    def assert_unchanged(self) -> None:
        """Raise if a parameter has changed since it projected the keys."""
        if not self.parameter_versions.is_unchanged():
            raise StaleStateError(
                "the parameters that projected the keys have changed since precompute() (by an optimizer step, "
                "perhaps); call precompute() again"
            )

    def reorder(self: Self, rows: Int[Tensor, " new"], mask: Mask | Tensor | None = None) -> Self:
        """A copy for other rows of the first batch axis, as beam search selects them; ``mask`` is that of the copy."""
        reordered = copy(self)
        reordered.score, reordered.key = reorder_projected(self.score, self.key, rows)
        reordered.value = self.value.index_select(0, rows)
        reordered.mask = None if mask is None else as_mask(mask)
        reordered.prepared = None
        return reordered


class ProjectedKV(FixedKeys):
    """An attention with fixed keys and values: ``attention.precompute(key, value, mask)(query)``.

    The keys are projected and validated once, so that a decoding step costs one query.

    Args:
        attention: an Attention, LocalM or LocalP
        key: (*batch, keys, key_dim)
        value: (*batch, keys, value_dim)
        mask: the visible keys

    Example:
        >>> memory = Attention(Additive(4, 6, 8)).precompute(torch.randn(2, 5, 6), torch.randn(2, 5, 3))
        >>> memory(torch.randn(2, 1, 4)).context.shape
        torch.Size([2, 1, 3])
    """

    def __init__(self, attention: Any, key: Tensor, value: Tensor, mask: Mask | Tensor | None = None):
        super().__init__(attention.score, key, value, mask, [attention.score])
        self.attention = attention

    def __call__(self, query: Tensor, **arguments: Any) -> AttentionOutput:
        """Attend with (*batch, queries, query_dim); LocalM and LocalP also take ``query_positions``."""
        self.assert_unchanged()
        return self.attention.attend_projected(query, self, **arguments)


def attend_fixed_keys(query: Tensor, keys: FixedKeys, normalize: NormalizerLike | None) -> AttentionOutput:
    """`attend_unwatched` with keys, values and a mask that stay the same over many calls.

    For the first query of a shape all arguments are validated, the fast paths that may apply are chosen, and the mask
    is evaluated if there are none. For later queries only the shape, dtype and device are compared.

    Args:
        query: (*batch, queries, query_dim)
        keys: the projected keys with their values and mask
        normalize: as in `attend`

    Shape: query (*batch, queries, query_dim) -> context (*batch, queries, value_dim)
    """
    if not isinstance(query, Tensor) or is_transformed():  # transformed tensors must not be kept
        return attend_unwatched(query, keys.key, keys.value, keys.mask, keys.score, normalize, keys.num_groups)
    autocast, inference = is_autocast_enabled(query.device.type), torch.is_inference_mode_enabled()
    signature = (type(query), query.shape, query.dtype, query.device, autocast, inference, normalize)
    prepared = keys.prepared
    if prepared is None or prepared.signature != signature or not prepared.mask_versions.is_unchanged():
        prepared = keys.prepared = _prepare(signature, query, keys, normalize)
    inputs = copy(prepared.inputs)
    inputs.query = query
    if inputs.is_random:
        return make_output(inputs, None)
    return make_output(inputs, find_context(inputs) if prepared.paths is None else run_paths(prepared.paths, inputs))


def _prepare(
    signature: tuple[object, ...], query: Tensor, keys: FixedKeys, normalize: NormalizerLike | None
) -> PreparedCall:
    inputs = validate(query, keys.key, keys.value, keys.mask, keys.score, normalize, keys.num_groups)
    paths = None
    if keys.num_groups == 1:
        paths = choose_paths(inputs)
        paths = (*paths, blocked_attention) if is_large(inputs) else paths
        if not paths and inputs.mask is not None:
            inputs.visible = inputs.mask.rule(inputs.positions())
    return PreparedCall(signature, inputs, paths, TensorVersions([] if inputs.mask is None else inputs.mask.tensors()))


class Attention(ResettableModule):
    """Attention as a module: a score and a normalizer, to be trained inside a model.

        attention(query, key, value, mask) = attend(query, key, value, mask, score=score, normalize=normalize)

    Args:
        score: from query and key to scores; ScaledDot() by default
        normalize: from scores to weights; softmax by default, and kernel_sum for a score that returns kernel values

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim), value (*batch, keys, value_dim) ->
        AttentionOutput with context (*batch, queries, value_dim)

    Example:
        >>> attention = Attention(ScaledDot())
        >>> attention(torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)).context.shape
        torch.Size([2, 3, 6])
    """

    def __init__(self, score: ScoreLike | None = None, normalize: NormalizerLike | None = None):
        super().__init__()
        self.score = ScaledDot() if score is None else instantiate(score, "score")
        self.normalize = None if normalize is None else instantiate(normalize, "normalize")

    def forward(
        self,
        query: Float[Tensor, "*q queries query_dim"] | None,
        key: Float[Tensor, "*k keys key_dim"],
        value: Float[Tensor, "*v keys value_dim"],
        mask: Mask | Bool[Tensor, "..."] | None = None,
    ) -> AttentionOutput:
        """Attend as `attend` does, with the score and the normalizer of this module."""
        return self._notified(attend_unwatched(query, key, value, mask, self.score, self.normalize))

    def attend_projected(self, query: Tensor, keys: FixedKeys) -> AttentionOutput:
        """Attend to keys that are projected already; `ProjectedKV` calls it."""
        return self._notified(attend_fixed_keys(query, keys, self.normalize))

    def _notified(self, output: AttentionOutput) -> AttentionOutput:
        is_unwatched = torch.compiler.is_compiling() or not WATCHERS.get()
        return output if is_unwatched else notify_watchers(self, output)

    def precompute(self, key: Tensor, value: Tensor, mask: Mask | Tensor | None = None) -> ProjectedKV:
        """The same attention with fixed keys and values, whose projections are computed once."""
        return ProjectedKV(self, key, value, mask)

    def extra_repr(self) -> str:
        is_function = self.normalize is not None and not isinstance(self.normalize, nn.Module)
        return f"normalize={part_name(self.normalize)}" if is_function else ""
