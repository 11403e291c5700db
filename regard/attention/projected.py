"""Keys that are projected once and used for many queries, as in a decoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from regard.attention._common import part_name
from regard.attention.masks import Mask, PositionGrid, as_mask
from regard.attention.output import AttentionInputs, AttentionOutput
from regard.attention.scores.base import Score
from regard.errors import ShapeError, StaleStateError

__all__ = [
    "FixedKeys",
    "KeyProjectedScore",
    "PreparedCall",
    "ProjectedKV",
    "TensorVersions",
    "check_shapes",
    "count_optimizer_step",
    "project_keys",
    "reorder_projected",
]

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


def check_shapes(query: Tensor | None, key: Tensor, value: Tensor) -> None:
    """Raise unless all are tensors of at least two axes, with one value for each key.

    Args:
        query: the queries, or None if they are not known yet
        key: the keys
        value: the values

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim), value (*batch, keys, value_dim)
    """
    for name, tensor, axis in (("query", query, "queries"), ("key", key, "keys"), ("value", value, "keys")):
        if tensor is None and name == "query":
            continue
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
        if tensor.dim() < 2:
            raise ShapeError(f"{name} must be (*batch, {axis}, dim), got {tuple(tensor.shape)}")
    if key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"every key has one value, got {key.shape[-2]} keys and {value.shape[-2]} values: key "
            f"{tuple(key.shape)}, value {tuple(value.shape)}"
        )


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
