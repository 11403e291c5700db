"""Attention in four lines.

    scores  = score(query, key)          # *batch queries keys
    scores  = mask(scores)               # -inf where the key is not visible
    weights = normalize(scores)          # *batch queries keys
    context = weights @ value            # *batch queries value_dim

Every mechanism is a value for ``score``, ``mask`` or ``normalize``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention import _common
from regard.attention._common import part_name
from regard.attention.fast import blocked
from regard.attention.fast.blocked import ComputeContext, banded_attention, blocked_attention, gathered_attention
from regard.attention.fast.fused import fused_attention, keeps_keys, mean_pooling
from regard.attention.masks import Mask, as_mask
from regard.attention.masks.nested import pad_nested_inputs, to_nested_like
from regard.attention.normalizers.base import input_kind
from regard.attention.normalizers.basic import Temperature, kernel_sum, softmax
from regard.attention.normalizers.wrappers import Dropout, as_masked_normalizer, resolve_normalizer
from regard.attention.observers import WATCHERS, notify_watchers
from regard.attention.output import AttentionInputs, AttentionOutput
from regard.attention.scores.base import FunctionScore, Score
from regard.attention.scores.dot import Constant, ScaledDot
from regard.errors import DtypeError, ShapeError, UnsupportedError, UsageError

__all__ = ["NormalizerLike", "ScoreLike", "attend", "attend_unwatched", "default_normalizer"]

ScoreLike = Callable[[Tensor, Tensor], Tensor]
NormalizerLike = Callable[[Tensor], Tensor]
FastPath = Callable[[AttentionInputs, ComputeContext], Tensor | None]
DTYPES = {torch.float32, torch.float64, *_common.HALF_DTYPES}
KIND_NAMES = {"kernel": "kernel values"}


def attend(
    query: Float[Tensor, "*q queries query_dim"] | None,
    key: Float[Tensor, "*k keys key_dim"],
    value: Float[Tensor, "*v keys value_dim"],
    mask: Mask | Bool[Tensor, "..."] | None = None,
    *,
    score: ScoreLike = ScaledDot(),
    normalize: NormalizerLike | None = None,
) -> AttentionOutput:
    """The weighted sum of the values, by how well their keys match the query.

        context = normalize(mask(score(query, key))) @ value

    The context is computed by the fastest exact path. Weights and scores are computed when they are read, and
    reading them never changes the context.

    Args:
        query: the queries, or None for a score that does not use them (pooling)
        key: the keys
        value: the values, one for each key
        mask: a named mask, or a bool tensor that broadcasts to (*batch, queries, keys), True where a key is visible
        score: from query and key to scores (*batch, queries, keys)
        normalize: from scores to weights; softmax by default, and kernel_sum for a score that returns kernel values

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim), value (*batch, keys, value_dim); the batch
        axes broadcast

    Returns: an AttentionOutput with ``context`` (*batch, queries, value_dim) and ``weights`` (*batch, queries, keys)

    Example:
        >>> output = attend(torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6))
        >>> output.context.shape, output.weights.shape
        (torch.Size([2, 3, 6]), torch.Size([2, 3, 5]))
    """
    output = attend_unwatched(query, key, value, mask, score, normalize)
    # The compiler is asked first, so that a graph does not depend on the watchers.
    is_unwatched = torch.compiler.is_compiling() or not WATCHERS.get()
    return output if is_unwatched else notify_watchers(None, output)


def attend_unwatched(
    query: Tensor | None,
    key: Tensor,
    value: Tensor,
    mask: Mask | Tensor | None,
    score: ScoreLike,
    normalize: NormalizerLike | None,
    num_groups: int = 1,
    has_heads: bool = False,
) -> AttentionOutput:
    """`attend` without notifying watchers: the caller notifies them with its own module.

    Args:
        query, key, value, mask, score, normalize: as in `attend`
        num_groups: how many heads of queries share one head of keys and values; heads are the last batch axis
        has_heads: whether the last batch axis is that of the heads, which the caller of a module does not see

    Shape: as in `attend`; with groups key and value are (*batch, heads / num_groups, keys, dim)

    Returns: the output
    """
    if isinstance(key, Tensor) and (key.is_nested or (isinstance(query, Tensor) and query.is_nested)):
        padded = pad_nested_inputs(query, key, value, mask, score)
        output = attend_unwatched(*padded, score, normalize, num_groups, has_heads)
        if query is None or not query.is_nested:
            return output
        return output.replace_context(to_nested_like(output.context, query))
    inputs = validate(query, key, value, mask, score, normalize, num_groups, has_heads)
    return make_output(inputs, None if inputs.is_random else find_context(inputs))


def make_output(inputs: AttentionInputs, context: Tensor | None) -> AttentionOutput:
    """The output of a context that a fast path computed, or of the definition."""
    if context is not None:
        return AttentionOutput(context, inputs, scores_and_weights)
    scores, weights, context = reference_attention(inputs)
    return AttentionOutput(context, inputs, scores_and_weights, (scores, weights))


def reference_attention(inputs: AttentionInputs) -> tuple[Tensor, Tensor, Tensor]:
    """The equation by definition: scores, weights, context."""
    scores, weights = scores_and_weights(inputs)
    used = weights if inputs.dropout is None else inputs.dropout.drop_weights(weights)
    return scores, weights, aggregate(used, inputs.value, inputs.num_groups)


def scores_and_weights(inputs: AttentionInputs) -> tuple[Tensor, Tensor]:
    """The first three lines of the equation: the masked scores, and the weights."""
    query, key, num_groups = inputs.query, inputs.key, inputs.num_groups
    scores = inputs.score(query, key) if num_groups == 1 else inputs.score.forward_grouped(query, key, num_groups)
    expected = (*scores.shape[:-2], inputs.num_queries, inputs.num_keys)
    _common.check_result(part_name(inputs.score), scores, expected)
    if inputs.mask is not None:
        visible = inputs.mask.rule(inputs.positions()) if inputs.visible is None else inputs.visible
        scores = torch.where(visible, scores, -math.inf)
    return scores, inputs.normalize(scores)


def aggregate(weights: Tensor, value: Tensor, num_groups: int = 1) -> Tensor:
    """The last line of the equation, summed in float32 at least."""
    weights = weights if num_groups == 1 else _common.fold_heads(weights, num_groups)
    context = (weights.to(_common.upcast_half(value).dtype) @ _common.upcast_half(value)).to(value.dtype)
    return context if num_groups == 1 else _common.unfold_heads(context, num_groups)


def compute_context(inputs: AttentionInputs) -> Tensor:
    """The context alone, by the fastest exact path; fast paths call it for parts of their work."""
    context = find_context(inputs)
    return reference_attention(inputs)[2] if context is None else context


# ---- the choice of the fast path


def find_context(inputs: AttentionInputs) -> Tensor | None:
    """The context by a path that never builds the queries x keys matrix; None if there is none."""
    paths = choose_paths(inputs)
    if inputs.num_groups > 1 and not (paths == (fused_attention,) and keeps_keys(inputs.score)):
        if not paths and not is_large(inputs):
            return None  # the definition needs no copy of the keys either
        inputs = inputs.ungrouped()  # these paths gather, unfold or slice the keys
    context = run_paths(paths, inputs)
    return blocked_attention(inputs.ungrouped(), compute_context) if context is None and is_large(inputs) else context


def run_paths(paths: tuple[FastPath, ...], inputs: AttentionInputs) -> Tensor | None:
    """The context by the first path that applies; None if each of them declines the call."""
    for path in paths:
        context = path(inputs, compute_context)
        if context is not None:
            return context
    return None


def choose_paths(inputs: AttentionInputs) -> tuple[FastPath, ...]:
    """The fast paths that may apply to this mask, score and normalizer; each may still decline the call."""
    paths: list[FastPath] = []
    score, mask, normalize = inputs.score, inputs.mask, inputs.normalize
    if inputs.num_keys == 0 or inputs.num_queries == 0 or inputs.value.shape[-1] == 0:
        return ()  # the definition returns the correct shapes, and has the weights
    if mask is not None:
        if mask.find_around() is not None:
            paths.append(gathered_attention)
        low, high = mask.band(inputs.num_queries, inputs.num_keys)
        if high - low < math.inf:
            paths.append(banded_attention)
    if isinstance(score, Constant) and normalize is softmax:
        paths.append(mean_pooling)
    elif (normalize is softmax or isinstance(normalize, Temperature)) and _may_be_dot_product(score):
        paths.append(fused_attention)
    return tuple(paths)


def is_large(inputs: AttentionInputs) -> bool:
    """Whether there are too many scores for one matrix."""
    num_scores = math.prod(inputs.batch_shape) * inputs.num_queries * inputs.num_keys
    return not _common.is_symbolic(num_scores) and num_scores > blocked.MAX_SCORES and inputs.value.shape[-1] > 0


def _may_be_dot_product(score: Score) -> bool:
    """Whether a score, or what remains of it after projections, defines `dot_product_features`."""
    default = Score.dot_product_features
    return type(score).dot_product_features is not default or type(score.pairwise).dot_product_features is not default


# ---- validation of the arguments


def validate(
    query: Tensor | None,
    key: Tensor,
    value: Tensor,
    mask: Mask | Tensor | None,
    score: Callable[[Tensor, Tensor], Tensor],
    normalize: Callable[[Tensor], Tensor] | None,
    num_groups: int = 1,
    has_heads: bool = False,
) -> AttentionInputs:
    """The validated arguments, or an error that names the argument, its shape and what is allowed."""
    if not isinstance(score, Score):
        score = _common.instantiate(score, "score")
    if normalize is not None and (isinstance(normalize, type) or not getattr(normalize, "is_masked", False)):
        normalize = resolve_normalizer(normalize)
    scorer = score if isinstance(score, Score) else FunctionScore(score)
    check_shapes(query, key, value)
    query = key.new_zeros(1, 0) if query is None else query  # a score that does not use the query: pooling
    _check_dtypes(query, key, value)
    batch = _broadcast_batch(query, key, value, num_groups)
    scorer.check_dims(query, key)
    if mask is not None:
        mask = resolve_mask(mask, batch, query.shape[-2], key.shape[-2], has_heads)
    if normalize is None:
        normalize = default_normalizer(scorer)
    elif input_kind(normalize) != scorer.output_kind:
        returned, expected = (KIND_NAMES.get(kind, kind) for kind in (scorer.output_kind, input_kind(normalize)))
        raise UsageError(
            f"{part_name(score)} returns {returned}, but {part_name(normalize)} expects {expected}; leave normalize "
            f"out to use {part_name(default_normalizer(scorer))}"
        )
    dropout = normalize if isinstance(normalize, Dropout) else None
    normalize = normalize if dropout is None else dropout.normalize
    if not getattr(normalize, "is_masked", False):
        normalize = as_masked_normalizer(normalize)
    return AttentionInputs(query, key, value, mask, scorer, normalize, dropout, num_groups)


def resolve_mask(mask: Mask | Tensor, batch: tuple[int, ...], queries: int, keys: int, has_heads: bool = False) -> Mask:
    """The mask, or an error if it does not fit scores of shape (*batch, queries, keys).

    Args:
        mask: a mask or a bool tensor
        batch: the batch axes of query, key and value
        queries: the number of queries
        keys: the number of keys
        has_heads: whether the last axis of the batch is that of the heads

    Returns: the mask
    """
    mask = as_mask(mask)
    if batch:  # inputs without a batch take that of the lengths
        mask.check_axes(len(batch) - has_heads, has_heads)
    mask.check_shape((1,) * (mask.num_batch_axes() - len(batch)) + batch, queries, keys)
    return mask


def default_normalizer(score: object) -> Callable[[Tensor], Tensor]:
    """The normalizer that goes with a score: softmax for logits, kernel_sum for kernel values.

    Args:
        score: a score or a function

    Returns: the normalizer
    """
    return kernel_sum if getattr(score, "output_kind", "logits") == "kernel" else softmax


def check_tensor(name: str, tensor: object, axes: str) -> None:
    """Raise unless an argument is a tensor of at least two axes, and not nested.

    Args:
        name: the name of the argument
        tensor: its value
        axes: the axes after those of the batch, for the message
    """
    if not isinstance(tensor, Tensor):
        raise DtypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
    if tensor.is_nested:
        raise UnsupportedError(
            f"{name} is a nested tensor, which attention does not support; pad sequences to one length, as in "
            "torch.nested.to_padded_tensor(x, 0.0), and hide the rest with mask=padding(lengths)"
        )
    if tensor.dim() < 2:
        raise ShapeError(f"{name} must be (*batch, {axes}), got {tuple(tensor.shape)}")


def check_shapes(query: Tensor | None, key: Tensor, value: Tensor) -> None:
    """Raise unless all are tensors of at least two axes, with one value for each key.

    Args:
        query: the queries, or None if they are not known yet
        key: the keys
        value: the values

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim), value (*batch, keys, value_dim)
    """
    for name, tensor, axes in (
        ("query", query, "queries, dim"),
        ("key", key, "keys, dim"),
        ("value", value, "keys, dim"),
    ):
        if tensor is not None or name != "query":
            check_tensor(name, tensor, axes)
    if key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"every key has one value, got {key.shape[-2]} keys and {value.shape[-2]} values: key "
            f"{tuple(key.shape)}, value {tuple(value.shape)}"
        )


def _check_dtypes(query: Tensor, key: Tensor, value: Tensor) -> None:
    if query.dtype == key.dtype == value.dtype and query.dtype in DTYPES:
        return
    dtypes = f"query {query.dtype}, key {key.dtype}, value {value.dtype}"
    if not {query.dtype, key.dtype, value.dtype} <= DTYPES:
        raise DtypeError(f"query, key and value must be floating point, got {dtypes}")
    if not _common.is_autocast_enabled(query.device.type):
        raise DtypeError(f"query, key and value must have one dtype outside of autocast, got {dtypes}")


def _broadcast_batch(query: Tensor, key: Tensor, value: Tensor, num_groups: int = 1) -> tuple[int, ...]:
    try:
        if num_groups == 1:
            return _common.broadcast_shape(query.shape[:-2], key.shape[:-2], value.shape[:-2])
        grouped = [(*t.shape[:-3], t.shape[-3] * num_groups) for t in (key, value)]
        return _common.broadcast_shape(query.shape[:-2], *grouped)
    except RuntimeError:
        raise ShapeError(
            f"the leading axes do not broadcast: query {tuple(query.shape)}, key {tuple(key.shape)}, value "
            f"{tuple(value.shape)}"
        ) from None
