"""The fused kernel for dot products under softmax, and mean pooling without any matrix."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.attention._common import (
    HALF_DTYPES,
    broadcast_shape,
    is_autocast_enabled,
    is_symbolic,
    is_transformed,
    upcast_half,
)
from regard.attention.fast.blocked import ComputeContext
from regard.attention.masks.base import DenseMask
from regard.attention.masks.kinds import WindowMask
from regard.attention.normalizers.basic import Temperature
from regard.attention.output import AttentionInputs
from regard.attention.relative_positions import RelativePositionBias
from regard.attention.scores.base import Bias, DotProductFeatures, ScaledScore, Score, SumScore
from regard.attention.scores.dot import Dot

__all__ = ["fused_attention", "keeps_keys", "mean_pooling"]

FourAxes = tuple[Tensor, Tensor, Tensor, Tensor | None, torch.Size]
SHORT_SEQUENCE = 32
LARGE_QUERY = 2**16
"""Up to SHORT_SEQUENCE keys and from LARGE_QUERY numbers in the query on, the definition trains faster on a CPU."""

VECTOR_LENGTH = 16
"""The numbers in the widest vector register of a CPU."""

NO_CONTEXT = nullcontext()
CPU_KERNEL = "ScaledDotProductFlashAttentionForCpuBackward0"

MAX_MASK_ENTRIES = 2**25
"""Masks with more entries are evaluated block by block instead of being materialized."""


def keeps_keys(score: Score) -> bool:
    """Whether the features of the keys are the keys themselves, so that heads of queries can share them without a copy.

    Args:
        score: a score

    Returns: True for dot products, possibly with a positional bias

    Example:
        >>> keeps_keys(ScaledDot() + Alibi(4)), keeps_keys(Gaussian())
        (True, False)
    """
    if isinstance(score, ScaledScore):
        return keeps_keys(score.score)
    if isinstance(score, SumScore):
        parts = (score.left, score.right)
        biases = [isinstance(part, (Bias, RelativePositionBias)) for part in parts]
        return any(biases) and all(is_bias or keeps_keys(part) for is_bias, part in zip(biases, parts, strict=True))
    return isinstance(score.pairwise, Dot)


def mean_pooling(inputs: AttentionInputs, _: ComputeContext) -> Tensor | None:
    """Constant scores under softmax: the mean of the visible values.

        context = sum_j visible_j v_j / sum_j visible_j

    Args:
        inputs: the validated arguments

    Returns: the context, or None if this path does not apply

    Example:
        >>> from regard.attention.equation import compute_context, validate
        >>> mean_pooling(validate(*torch.randn(3, 5, 4), None, Constant(), None), compute_context).shape
        torch.Size([5, 4])
    """
    if inputs.is_dropout_active or (inputs.mask is not None and not inputs.mask.is_query_independent):
        return None
    value = upcast_half(inputs.value)
    if inputs.mask is None:
        context = value.mean(-2, keepdim=True)
    else:
        visible = inputs.mask.rule(inputs.positions()).to(value.dtype)
        visible = visible.expand(*visible.shape[:-1], inputs.num_keys)
        context = (visible @ value) / visible.sum(-1, keepdim=True).clamp(min=1)
    batch = broadcast_shape(inputs.batch_shape, context.shape[:-2])
    return context.expand(*batch, inputs.num_queries, -1).to(inputs.value.dtype)


def fused_attention(inputs: AttentionInputs, _: ComputeContext) -> Tensor | None:
    """Scores that are dot products of features, under softmax with or without a temperature, by PyTorch's fused kernel.

    Args:
        inputs: the validated arguments

    Returns: the context, or None if this path does not apply

    Example:
        >>> from regard.attention.equation import compute_context, validate
        >>> fused_attention(validate(*torch.randn(3, 5, 4), None, Gaussian(0.5), None), compute_context).shape
        torch.Size([5, 4])

    Reference: Dao et al. (2022), "FlashAttention", arXiv 2205.14135.
    """
    if is_transformed() and not torch.compiler.is_compiling():
        return None  # the kernel has no forward-mode derivative
    is_dropped, on_cpu = inputs.is_dropout_active, inputs.query.is_cpu
    # On a CPU the dropout of the kernel costs more than that of the definition.
    if (is_dropped and on_cpu) or _is_mask_too_large(inputs) or (on_cpu and _is_small_training_batch(inputs)):
        return None
    query, missing = inputs.query, inputs.num_batch_axes + 2 - inputs.query.dim()
    if missing > 0:  # values or mask have more batch axes, and lengths go by the leading ones
        query = query[(None,) * missing]
    features = inputs.score.dot_product_features(query, inputs.key, inputs.mask)
    if features is None or features.query is None or features.key is None:
        return None
    temperature = inputs.normalize.temperature if isinstance(inputs.normalize, Temperature) else 1.0
    if isinstance(temperature, Tensor):
        if features.bias is not None:
            return None
        query = upcast_half(features.query)
        features = features._replace(query=query / temperature.to(query))
        temperature = 1.0
    mask, causal = _build_attn_mask(inputs, features)
    if mask is not None and inputs.query.device.type == "mps":
        return None  # it is unknown whether its kernel returns zeros for a row without visible keys
    dropout_p = inputs.dropout.p if is_dropped and inputs.dropout is not None else 0.0
    if mask is not None and mask.dtype != torch.bool and temperature != 1.0:
        mask = mask / temperature
    return _sdpa(features, inputs, mask, causal, features.scale / temperature, dropout_p)


def _is_small_training_batch(inputs: AttentionInputs) -> bool:
    """Whether this is a training step on a CPU with many short sequences, such as sentences.

    The backward pass of the fused kernel gains nothing from a second thread there, and the definition, two batched
    products, takes half of its time.
    """
    if torch.compiler.is_compiling() or max(inputs.num_queries, inputs.num_keys) > SHORT_SEQUENCE:
        return False
    query, key, value = inputs.query, inputs.key, inputs.value
    requires_grad = query.requires_grad or key.requires_grad or value.requires_grad
    return torch.is_grad_enabled() and requires_grad and query.numel() > LARGE_QUERY


def _is_mask_too_large(inputs: AttentionInputs) -> bool:
    """Whether the mask or a computed bias would have to be materialized and is too large for it."""
    has_bias = inputs.score.computes_bias
    if not has_bias and isinstance(inputs.mask, DenseMask):
        return False  # it is materialized already
    is_cheap = inputs.mask is None or inputs.mask.is_query_independent
    if not has_bias and (is_cheap or _causal_upper_bound(inputs) is not None):
        return False
    key_batch = inputs.key.shape[:-2] if inputs.num_groups == 1 else (*inputs.key.shape[:-3], 1)
    shape = broadcast_shape(inputs.query.shape[:-2], key_batch)
    axes = shape if has_bias else shape[: inputs.mask.num_batch_axes() if inputs.mask is not None else 0]
    num_entries = math.prod(axes) * inputs.num_queries * inputs.num_keys
    return not is_symbolic(num_entries) and num_entries > MAX_MASK_ENTRIES


def _causal_upper_bound(inputs: AttentionInputs) -> float | None:
    """The upper bound of a causal mask that the kernel supports: everything is visible, or all up to the diagonal."""
    mask = inputs.mask
    if not isinstance(mask, WindowMask) or mask.left != math.inf:
        return None
    high = mask.band(inputs.num_queries, inputs.num_keys)[1]
    return high if high >= inputs.num_keys - 1 or high == 0 else None


def _build_attn_mask(inputs: AttentionInputs, features: DotProductFeatures) -> tuple[Tensor | None, bool]:
    """The kernel's attn_mask from mask and bias, and whether it is causal from the first key on."""
    high = _causal_upper_bound(inputs)
    if inputs.mask is None or (high is not None and high >= inputs.num_keys - 1):
        return features.bias, False
    if high == 0 and features.bias is None:
        return None, True
    visible = inputs.mask.rule(inputs.positions())
    return (visible if features.bias is None else torch.where(visible, features.bias, -math.inf)), False


def _sdpa(
    features: DotProductFeatures, inputs: AttentionInputs, mask: Tensor | None, causal: bool, scale: float, p: float
) -> Tensor | None:
    """The fused kernel, which requires four axes, equal sizes of vectors, one batch shape and one dtype."""
    query, key, value, num_groups = features.query, features.key, inputs.value, inputs.num_groups
    assert query is not None
    assert key is not None
    dtype, device = value.dtype, query.device.type
    cast = is_autocast_enabled(device)
    if cast or query.dtype != dtype or key.dtype != dtype:
        wide = torch.promote_types(torch.promote_types(query.dtype, key.dtype), dtype)
        if cast and not features.full_precision and wide == torch.float32:
            wide = torch.get_autocast_dtype(device)
        query, key, value = query.to(wide), key.to(wide), value.to(wide)
    is_compiling = torch.compiler.is_compiling()
    # The maximum of the CPU kernel ignores NaN where the keys fill no register, and in half precision inf - inf is 0.
    is_fragile = query.dtype in HALF_DTYPES or (not is_compiling and inputs.num_keys < VECTOR_LENGTH and mask is None)
    if is_fragile and device == "cpu" and not is_compiling and not _are_finite(query, key):
        return None
    if mask is not None and mask.dtype != torch.bool:  # a bias keeps its precision
        mask = mask.to(torch.float64 if query.dtype == torch.float64 else torch.float32)
    size = value.shape[-1]
    query, key, value = _pad_to_equal_dims(query, key, value)
    if num_groups > 1:
        query, key, value, mask, shape = _to_grouped_axes(query, key, value, mask)
    else:
        query, key, value, mask, shape = _to_four_axes(query, key, value, mask, causal)
    # Autocast is applied above; the kernel's own would also round the bias.
    with torch.autocast(device, enabled=False) if cast else NO_CONTEXT:
        out = F.scaled_dot_product_attention(query, key, value, mask, p, causal, scale=scale, enable_gqa=num_groups > 1)
    if is_compiling:
        out = _restore_nan(out, query, key, mask, num_groups) if device == "cpu" else out
    elif (node := out.grad_fn) is not None and node.name() == CPU_KERNEL:
        node.register_hook(_differentiate_definition)
    out = out.reshape(shape + out.shape[-1:])
    return (out if out.shape[-1] == size else out[..., :size]).to(dtype)


def _are_finite(*tensors: Tensor) -> bool:
    return all(math.isfinite(tensor.detach().sum(dtype=torch.float32).item()) for tensor in tensors)


def _restore_nan(out: Tensor, query: Tensor, key: Tensor, mask: Tensor | None, num_groups: int) -> Tensor:
    """The output with NaN where the kernel may ignore it, for a compiler, which cannot choose a path by a value."""
    if mask is not None:
        return out
    first = key[..., :1, :].isnan().any(-1, keepdim=True)
    first = first if num_groups == 1 else first.repeat_interleave(num_groups, -3)
    return torch.where(query.isnan().any(-1, keepdim=True) | first, torch.nan, out)


def _differentiate_definition(gradients: tuple[Tensor | None, ...], out_gradients: tuple[Tensor | None, ...]) -> Any:
    """A hook on the kernel's backward, which has no derivative: where one is required, the gradients by definition."""
    if not torch.is_grad_enabled() or out_gradients[0] is None:
        return None
    node: Any = torch._C._current_autograd_node()
    saved = [tensor.view_as(tensor) for tensor in (node._saved_query, node._saved_key, node._saved_value)]
    options = {"attn_mask": node._saved_attn_mask, "is_causal": node._saved_is_causal, "scale": node._saved_scale}
    options["enable_gqa"] = saved[0].shape[-3] != saved[1].shape[-3]
    with sdpa_kernel(SDPBackend.MATH):
        out = F.scaled_dot_product_attention(*saved, **options)
    inputs = [tensor for tensor, gradient in zip(saved, gradients, strict=False) if gradient is not None]
    defined = iter(torch.autograd.grad(out, inputs, out_gradients[0], create_graph=True))
    return tuple(None if gradient is None else next(defined) for gradient in gradients)


def _pad_to_equal_dims(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Zero-padded vectors, as the fused kernel on a CPU requires one size; zeros change no dot product."""
    sizes = query.shape[-1], value.shape[-1]
    short, long = min(sizes), max(sizes)  # not sorted(): a compiler cannot sort dynamic sizes
    if short == long or query.device.type != "cpu" or long > 4 * short + 8:
        return query, key, value
    query, key, value = (F.pad(t, (0, long - t.shape[-1])) for t in (query, key, value))
    return query, key, value


def _to_four_axes(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> FourAxes:
    """(*batch, n, dim) as (batch, heads, n, dim), and the shape of the result without its last axis."""
    shapes = (query.shape[:-2], key.shape[:-2], value.shape[:-2])
    batch = broadcast_shape(*shapes) if mask is None else broadcast_shape(*shapes, mask.shape[:-2])
    shape = torch.Size((*batch, query.shape[-2]))
    if len(batch) == 2 and query.shape[:2] == key.shape[:2] == value.shape[:2] == batch:
        # Already in the layout of the kernel; but with a mask of three axes it would use its slow path.
        return query, key, value, mask if mask is None or mask.dim() != 3 else mask[None], shape
    if not causal and _has_shared_keys(query, key, value, mask):
        # One head of keys for all: its keys are read once, not copied.
        batch = (*batch[:-1], 1)
        query = query.expand(*shape[:-1], -1, -1).flatten(-3, -2).unsqueeze(-3)
    wide = (1,) * (2 - len(batch)) + tuple(batch)
    query, key, value = (_merge_batch_axes(t.expand(*batch, *t.shape[-2:]), wide) for t in (query, key, value))
    if mask is not None:
        lead = (1,) * (len(wide) + 2 - mask.dim()) + tuple(mask.shape[:-2])
        if len(wide) > 2 and math.prod(lead[:-1]) > 1:
            mask = mask.expand(*wide[:-1], *mask.shape[-3:])
            lead = (*wide[:-1], mask.shape[-3])
        mask = mask.reshape(math.prod(lead[:-1]), lead[-1], *mask.shape[-2:])
    return query, key, value, mask, shape


def _has_shared_keys(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    def has_one_head(tensor: Tensor) -> bool:
        return tensor.dim() < 3 or tensor.shape[-3] == 1

    is_mask_shared = mask is None or (has_one_head(mask) and mask.shape[-2] == 1)
    has_heads = query.dim() > 2 and query.shape[-3] > 1
    return has_heads and has_one_head(key) and has_one_head(value) and is_mask_shared


def _to_grouped_axes(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> FourAxes:
    """(*batch, heads, n, dim) as (batch, heads, n, dim), where keys and values have fewer heads than queries."""
    if mask is not None:
        mask = mask.reshape((1,) * (3 - mask.dim()) + mask.shape)
    tensors: tuple[Tensor, ...] = (query, key, value) if mask is None else (query, key, value, mask)
    batch = broadcast_shape(*[tensor.shape[:-3] for tensor in tensors])
    shape = torch.Size((*batch, *query.shape[-3:-1]))
    if len(batch) != 1 or any(tensor.shape[:-3] != batch for tensor in tensors):
        tensors = tuple(t.expand(*batch, *t.shape[-3:]).reshape(math.prod(batch), *t.shape[-3:]) for t in tensors)
    query, key, value = tensors[:3]
    return query, key, value, None if mask is None else tensors[3], shape


def _merge_batch_axes(tensor: Tensor, batch_shape: tuple[int, ...]) -> Tensor:
    return tensor.reshape(math.prod(batch_shape[:-1]), batch_shape[-1], *tensor.shape[-2:])
