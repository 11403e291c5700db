"""Dot products under softmax go to PyTorch's fused kernel; an average needs no matrix at all.

Which exact path serves a call: the first that applies; None means the definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention._common import broadcast_batch_shape, is_autocast_enabled, upcast_half
from regard.attention.fast.blocked import banded_attention, blocked_attention, gathered_attention
from regard.attention.masks.base import DenseMask
from regard.attention.masks.kinds import WindowMask
from regard.attention.normalizers import Temperature, softmax
from regard.attention.output import AttentionInputs
from regard.attention.scores.base import DotProductFeatures
from regard.attention.scores.dot import Constant

SHORT_SEQUENCE = 32


LARGE_QUERY = 2**16
"""Up to so many keys, and from so many numbers in the query on, the definition trains faster on a CPU."""


MAX_MASK_ENTRIES = 2**25
"""Above so many entries a mask is asked block by block instead of being written out."""


def mean_pooling(inputs: AttentionInputs) -> Tensor | None:
    """Constant scores under softmax: the mean of the values that may be looked at.

    context = sum_j visible_j v_j / sum_j visible_j
    """
    if not isinstance(inputs.score, Constant) or inputs.normalize is not softmax or inputs.is_dropout_active:
        return None
    if inputs.mask is not None and not inputs.mask.is_query_independent:
        return None
    value = upcast_half(inputs.value)
    if inputs.mask is None:
        context = value.mean(-2, keepdim=True)
    else:
        seen = inputs.mask.rule(inputs.positions()).to(value.dtype)
        seen = seen.expand(*seen.shape[:-1], inputs.num_keys)
        context = (seen @ value) / seen.sum(-1, keepdim=True).clamp(min=1)
    batch = broadcast_batch_shape(inputs.query, inputs.key, context)
    return context.expand(*batch, inputs.num_queries, -1).to(inputs.value.dtype)


def fused_attention(inputs: AttentionInputs) -> Tensor | None:
    """Scores that are dot products of features, under softmax."""
    temperature = _get_temperature(inputs.normalize)
    if (
        temperature is None
        or (inputs.is_dropout_active and inputs.query.device.type == "cpu")
        or _is_mask_too_large(inputs)
    ):
        return None  # on a CPU the kernel's own dropout costs more than the definition's
    if _is_small_training_batch(inputs):
        return None
    query, missing = inputs.query, inputs.num_batch_axes + 2 - inputs.query.dim()
    if missing > 0:  # values or mask have more batch axes, and lengths go by the leading ones
        query = query[(None,) * missing]
    found = inputs.score.dot_product_features(query, inputs.key, inputs.mask)
    if found is None or found.query is None or found.key is None:
        return None
    if isinstance(temperature, Tensor):
        if found.bias is not None:
            return None
        query = upcast_half(found.query)
        found = found._replace(query=query / temperature.to(query))
        temperature = 1.0
    mask, causal = _build_attn_mask(inputs, found)
    if mask is not None and inputs.query.device.type == "mps":
        return None  # its kernel is not known to give zeros where all is hidden
    drop = inputs.dropout.p if inputs.is_dropout_active and inputs.dropout is not None else 0.0
    if mask is not None and mask.dtype != torch.bool and temperature != 1.0:
        mask = mask / temperature
    return _sdpa(found, inputs.value, mask, causal, found.scale / temperature, drop)


def _is_small_training_batch(inputs: AttentionInputs) -> bool:
    """Many short sequences to be trained on a CPU: sentences, say.

    The fused kernel's backward gains nothing from a second thread there, and the definition, which is two batched
    products, takes half of its time.
    """
    if (
        inputs.query.device.type != "cpu"
        or max(inputs.num_queries, inputs.num_keys) > SHORT_SEQUENCE
        or torch.compiler.is_compiling()
    ):
        return False
    learning = any(part.requires_grad for part in (inputs.query, inputs.key, inputs.value))
    return torch.is_grad_enabled() and learning and inputs.query.numel() > LARGE_QUERY


def _get_temperature(normalize: object) -> float | Tensor | None:
    if normalize is softmax:
        return 1.0
    return normalize.temperature if isinstance(normalize, Temperature) else None


def _is_mask_too_large(inputs: AttentionInputs) -> bool:
    """Whether the mask or a positional bias would have to be written out and is too large for it."""
    positional = inputs.score.is_positional
    if not positional and isinstance(inputs.mask, DenseMask):
        return False  # it is written out already
    if not positional and (
        inputs.mask is None or inputs.mask.is_query_independent or _causal_upper_bound(inputs) is not None
    ):
        return False
    shape = broadcast_batch_shape(inputs.query, inputs.key)
    axes = shape if positional else shape[: inputs.mask.num_batch_axes() if inputs.mask is not None else 0]
    return math.prod(axes) * inputs.num_queries * inputs.num_keys > MAX_MASK_ENTRIES


def _causal_upper_bound(inputs: AttentionInputs) -> float | None:
    """The upper end of a causal mask that the kernel knows by itself: it sees all, or all up to the diagonal."""
    mask = inputs.mask
    if not isinstance(mask, WindowMask) or mask.left != math.inf:
        return None
    high = mask.band(inputs.num_queries, inputs.num_keys)[1]
    return high if high >= inputs.num_keys - 1 or high == 0 else None


def _build_attn_mask(inputs: AttentionInputs, features: DotProductFeatures) -> tuple[Tensor | None, bool]:
    """What the kernel is told of mask and bias: a tensor, or that it is causal from the first key on."""
    high = _causal_upper_bound(inputs)
    if inputs.mask is None or (high is not None and high >= inputs.num_keys - 1):
        return features.bias, False
    if high == 0 and features.bias is None:
        return None, True
    seen = inputs.mask.rule(inputs.positions())
    return (seen if features.bias is None else torch.where(seen, features.bias, -math.inf)), False


def _sdpa(
    features: DotProductFeatures,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """The kernel wants four axes, one size of vector, one batch shape and one dtype; so be it."""
    query, key = features.query, features.key
    assert query is not None
    assert key is not None
    dtype, device = value.dtype, query.device.type
    cast = is_autocast_enabled(device)
    if cast or query.dtype != dtype or key.dtype != dtype:
        wide = torch.promote_types(torch.promote_types(query.dtype, key.dtype), dtype)
        if cast and not features.full_precision and wide == torch.float32:
            wide = torch.get_autocast_dtype(device)
        query, key, value = query.to(wide), key.to(wide), value.to(wide)
    if mask is not None and mask.dtype != torch.bool:  # a bias keeps its digits
        mask = mask.to(torch.float64 if query.dtype == torch.float64 else torch.float32)
    size = value.shape[-1]
    query, key, value = _pad_to_equal_dims(query, key, value)
    query, key, value, mask, shape = _to_four_axes(query, key, value, mask, causal)
    # What autocast would do is done; it would also round the bias.
    with torch.autocast(device, enabled=False) if cast else nullcontext():
        out = F.scaled_dot_product_attention(query, key, value, mask, dropout_p, causal, scale=scale)
    out = out.reshape(shape + out.shape[-1:])
    return (out if out.shape[-1] == size else out[..., :size]).to(dtype)


def _pad_to_equal_dims(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """On a CPU the fused kernel takes vectors of one size only; zeros change no dot product."""
    sizes = query.shape[-1], value.shape[-1]
    short, long = (
        min(sizes),
        max(sizes),
    )  # not sorted(), which a compiler cannot do with sizes that may change
    if short == long or query.device.type != "cpu" or long > 4 * short + 8:
        return query, key, value
    query, key, value = (F.pad(t, (0, long - t.shape[-1])) for t in (query, key, value))
    return query, key, value


def _to_four_axes(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, torch.Size]:
    """(*batch, n, dim) as (batch, heads, n, dim), and the shape of the answer without its last axis."""
    batch = (
        broadcast_batch_shape(query, key, value)
        if mask is None
        else broadcast_batch_shape(query, key, value, mask)
    )
    shape = torch.Size((*batch, query.shape[-2]))
    if len(batch) == 2 and query.shape[:2] == key.shape[:2] == value.shape[:2] == batch:
        # As the kernel wants it already; but a mask of three axes would send it down its slow path.
        return query, key, value, mask if mask is None or mask.dim() != 3 else mask[None], shape
    if not causal and _has_shared_keys(query, key, value, mask):
        # Grouped queries: their keys are read once, not copied.
        batch = (*batch[:-1], 1)
        query = query.expand(*shape[:-1], -1, -1).flatten(-3, -2).unsqueeze(-3)
    wide = (1,) * (2 - len(batch)) + tuple(batch)
    query, key, value = (
        _merge_batch_axes(t.expand(*batch, *t.shape[-2:]), wide) for t in (query, key, value)
    )
    if mask is not None:
        lead = (1,) * (len(wide) + 2 - mask.dim()) + tuple(mask.shape[:-2])
        if len(wide) > 2 and math.prod(lead[:-1]) > 1:
            mask = mask.expand(*wide[:-1], *mask.shape[-3:])
            lead = (*wide[:-1], mask.shape[-3])
        mask = mask.reshape(math.prod(lead[:-1]), lead[-1], *mask.shape[-2:])
    return query, key, value, mask, shape


def _has_shared_keys(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    def one(tensor: Tensor) -> bool:
        return tensor.dim() < 3 or tensor.shape[-3] == 1

    alike = mask is None or (one(mask) and mask.shape[-2] == 1)
    return query.dim() > 2 and query.shape[-3] > 1 and one(key) and one(value) and alike


def _merge_batch_axes(tensor: Tensor, batch_shape: tuple[int, ...]) -> Tensor:
    return tensor.reshape(math.prod(batch_shape[:-1]), batch_shape[-1], *tensor.shape[-2:])


ComputeContext = Callable[[AttentionInputs], Tensor]


def select_fast_path(inputs: AttentionInputs, compute_context: ComputeContext) -> Tensor | None:
    """The context by a path that never makes the queries x keys matrix; None if there is none."""
    if inputs.num_keys == 0 or inputs.num_queries == 0 or inputs.value.shape[-1] == 0:
        return None  # nothing to see: the definition says so in the right shape, and has the weights
    for path in (gathered_attention, banded_attention):  # cut the work into parts, and ask ``see`` for each
        context = path(inputs, compute_context)
        if context is not None:
            return context
    for whole in (mean_pooling, fused_attention):
        context = whole(inputs)
        if context is not None:
            return context
    return blocked_attention(inputs, compute_context)
