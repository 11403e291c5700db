"""Attention as a module, and keys that are projected once and used for many queries, as in a decoder."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from regard.attention import equation
from regard.attention._common import instantiate, is_autocast_enabled, is_transformed, part_name
from regard.attention.masks import Mask, PositionGrid, as_mask
from regard.attention.module import ResettableModule
from regard.attention.normalizers.wrappers import resolve_normalizer
from regard.attention.observers import WATCHERS, notify_watchers
from regard.attention.output import AttentionInputs, AttentionOutput, TensorVersions
from regard.attention.scores.base import Score
from regard.attention.scores.dot import ScaledDot
from regard.errors import ShapeError, StaleStateError, UnsupportedError

__all__ = ["Attention", "KeyProjectedScore", "PreparedCall", "ProjectedKV", "count_optimizer_step", "project_keys"]


class KeyProjectedScore(Score):
    """A score whose keys are projected already, so that only the query's projection is left.

    Args:
        score: the score that projected the keys
        key_dim: the size of a key before its projection, for the check of sizes

    Shape: query (*batch, queries, query_dim), projected key (*batch, keys, dim) -> (*batch, queries, keys)

    Example:
        >>> score, key = project_keys(Additive(4, 6, 8), torch.randn(5, 6))
        >>> type(score).__name__, key.shape, score(torch.randn(3, 4), key).shape
        ('KeyProjectedScore', torch.Size([5, 8]), torch.Size([3, 5]))
    """

    def __init__(self, score: Score, key_dim: int):
        super().__init__()
        self.score, self.key_dim = score, key_dim
        self._pairwise = score.pairwise
        self.output_kind, self.is_positional = score.output_kind, score.is_positional
        self.is_random, self.computes_bias = score.is_random, score.computes_bias

    @property
    def pairwise(self) -> Score:
        return self._pairwise

    def project_query(self, query: Tensor, num_keys: int) -> Tensor:
        return self.score.project_query(query, num_keys)

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        self.score.check_dims(query, key.new_empty((*key.shape[:-1], self.key_dim), device="meta"))

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
        return KeyProjectedScore(score, key.shape[-1]), score.project_key(key)
    except RuntimeError as error:
        raise ShapeError(f"{part_name(score)} does not accept key {tuple(key.shape)}") from error


def count_optimizer_step(optimizer: Optimizer, *_: object) -> None:
    """Increment the version of each parameter that an optimizer has changed, which fused optimizers do not.

    Args:
        optimizer: the optimizer, after a step
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    torch.autograd.graph.increment_version(parameters)


register_optimizer_step_post_hook(count_optimizer_step)  # once for the process, for every optimizer


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


class ProjectedKV:
    """An attention with fixed keys and values: ``attention.precompute(key, value, mask)(query)``.

    The keys are projected and validated once, so that a decoding step costs one query.

    Args:
        attention: an Attention, LocalM, LocalP or MultiHead
        key: (*batch, keys, key_dim)
        value: (*batch, keys, value_dim)
        mask: the visible keys

    Example:
        >>> memory = Attention(Additive(4, 6, 8)).precompute(torch.randn(2, 5, 6), torch.randn(2, 5, 3))
        >>> memory(torch.randn(2, 1, 4)).context.shape
        torch.Size([2, 1, 3])
    """

    def __init__(self, attention: _AttentionModule, key: Tensor, value: Tensor, mask: Mask | Tensor | None = None):
        key, self.value, modules = attention._project_kv(key, value)
        equation.check_shapes(None, key, self.value)
        self.attention = attention
        self.score, self.key = project_keys(attention.score, key)
        self.mask = attention._resolve_mask(mask)
        parameters: list[Tensor] = [
            p for module in modules if isinstance(module, nn.Module) for p in module.parameters()
        ]
        parameters += [parameter for parameter in modules if isinstance(parameter, nn.Parameter)]
        # Buffers, such as the positions of Rotary, may also be replaced.
        parts = [part for module in modules if isinstance(module, nn.Module) for part in module.modules()]
        self.buffers = [(part._buffers, dict(part._buffers)) for part in parts if part._buffers]
        parameters += [buffer for _, saved in self.buffers for buffer in saved.values() if buffer is not None]
        tracked = () if torch.compiler.is_compiling() else parameters  # inference tensors have no version
        self.parameter_versions = [(one, one._version) for one in tracked if not one.is_inference()]
        self.prepared: PreparedCall | None = None

    def __call__(self, query: Tensor, **arguments: Any) -> AttentionOutput:
        """Attend with a query (*batch, queries, dim); LocalM and LocalP also take ``query_positions``."""
        if not torch.compiler.is_compiling() and not self._is_current():  # a compiler cannot trace version counters
            raise StaleStateError(
                "the parameters or buffers that projected the keys have changed since precompute() (by an optimizer "
                "step, perhaps); call precompute() again"
            )
        return self.attention.attend_projected(query, self, **arguments)

    def _is_current(self) -> bool:
        """Whether the parameters and buffers that projected the keys are those of the constructor, unchanged."""
        if any(one._version != version for one, version in self.parameter_versions):
            return False
        return all(now[name] is old for now, saved in self.buffers for name, old in saved.items())

    def reorder(self, rows: Int[Tensor, " new"], mask: Mask | Tensor | None = None) -> ProjectedKV:
        """A copy for other rows of the first batch axis, as beam search selects them; ``mask`` is that of the copy."""
        positions = getattr(getattr(self.score, "score", None), "positions", None)
        if positions is not None and positions.dim() > 1:
            raise UnsupportedError("reorder: the score has positions for each row; call precompute() with the new ones")
        reordered = copy(self)
        reordered.key, reordered.value = self.key.index_select(0, rows), self.value.index_select(0, rows)
        reordered.mask = self.attention._resolve_mask(mask)
        reordered.prepared = None
        return reordered

    def attend(self, query: Tensor) -> AttentionOutput:
        """`attend_unwatched` with a projected query.

        For the first query of a shape all arguments are validated, the fast paths that may apply are chosen, and the
        mask is evaluated if there are none. For later queries only the shape, dtype and device are compared.
        """
        normalize = self.attention.normalize
        if not isinstance(query, Tensor) or query.is_nested or is_transformed():  # transformed tensors must not be kept
            return equation.attend_unwatched(query, self.key, self.value, *self._arguments())
        autocast, inference = is_autocast_enabled(query.device.type), torch.is_inference_mode_enabled()
        signature = (type(query), query.shape, query.dtype, query.device, autocast, inference, normalize)
        prepared = self.prepared
        if prepared is None or prepared.signature != signature or not prepared.mask_versions.is_unchanged():
            prepared = self.prepared = self._prepare(signature, query)
        inputs = copy(prepared.inputs)
        inputs.query = query
        if inputs.is_random:
            return equation.make_output(inputs, None)
        paths = prepared.paths
        context = equation.find_context(inputs) if paths is None else equation.run_paths(paths, inputs)
        return equation.make_output(inputs, context)

    def _arguments(self) -> tuple[Any, ...]:
        attention = self.attention
        return self.mask, self.score, attention.normalize, attention.num_groups, attention.has_heads

    def _prepare(self, signature: tuple[object, ...], query: Tensor) -> PreparedCall:
        inputs, paths = equation.validate(query, self.key, self.value, *self._arguments()), None
        if inputs.num_groups == 1 and not equation.is_large(inputs):
            paths = equation.choose_paths(inputs)
            if not paths and inputs.mask is not None:
                inputs.visible = inputs.mask.rule(inputs.positions())
        mask_tensors = [] if inputs.mask is None else inputs.mask.tensors()
        return PreparedCall(signature, inputs, paths, TensorVersions(mask_tensors))


class _AttentionModule(ResettableModule):
    """What the attention modules share: a score, a normalizer, and precomputed keys."""

    score: Any
    normalize: Any
    num_groups = 1
    """How many heads of queries share one head of keys."""
    has_heads = False
    """Whether the scores have an axis for the heads."""

    def precompute(self, key: Tensor, value: Tensor, mask: Mask | Tensor | None = None) -> ProjectedKV:
        """The same attention with fixed keys and values, whose projections are computed once."""
        return ProjectedKV(self, key, value, mask)

    def attend_projected(self, query: Tensor, keys: ProjectedKV) -> AttentionOutput:
        """Attend to keys that are projected already; `ProjectedKV` calls it."""
        return self._notified(keys.attend(query))

    def _project_kv(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, list[Any]]:
        """Keys and values after the projections of the module itself, and the modules that they depend on."""
        return key, value, [self.score]

    def _resolve_mask(self, mask: Mask | Tensor | None) -> Mask | None:
        """The mask of the keys that are attended to, also of those that the module adds."""
        return mask if mask is None or isinstance(mask, Mask) else as_mask(mask)

    def _notified(self, output: AttentionOutput) -> AttentionOutput:
        is_unwatched = torch.compiler.is_compiling() or not WATCHERS.get()
        return output if is_unwatched else notify_watchers(self, output)


class Attention(_AttentionModule):
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

    def __init__(self, score: equation.ScoreLike | None = None, normalize: equation.NormalizerLike | None = None):
        super().__init__()
        score = ScaledDot() if score is None else score
        self.score = score if isinstance(score, Score) else instantiate(score, "score")
        self.normalize = None if normalize is None else resolve_normalizer(normalize)

    def forward(
        self,
        query: Float[Tensor, "*q queries query_dim"] | None,
        key: Float[Tensor, "*k keys key_dim"],
        value: Float[Tensor, "*v keys value_dim"],
        mask: Mask | Bool[Tensor, "..."] | None = None,
    ) -> AttentionOutput:
        """Attend as `attend` does, with the score and the normalizer of this module."""
        return self._notified(equation.attend_unwatched(query, key, value, mask, self.score, self.normalize))

    def extra_repr(self) -> str:
        is_function = self.normalize is not None and not isinstance(self.normalize, nn.Module)
        return f"normalize={part_name(self.normalize)}" if is_function else ""
