"""Dot products under softmax go to PyTorch's fused kernel; an average needs no matrix at all."""

from __future__ import annotations

import math
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention._call import Call, batch_shape
from regard.attention.masks.base import Dense
from regard.attention.masks.kinds import Window
from regard.attention.normalizers import Temperature, softmax
from regard.attention.scores.base import Features, autocasting, precise
from regard.attention.scores.dot import Constant

SHORT = 32
MANY = 2**16
"""Up to so many keys, and from so many numbers in the query on, the definition trains faster on a CPU."""

LARGE_MASK = 2**25
"""Above so many entries a mask is asked block by block instead of being written out."""


def mean(call: Call) -> Tensor | None:
    """Constant scores under softmax: the mean of the values that may be looked at.

    context = sum_j visible_j v_j / sum_j visible_j
    """
    if not isinstance(call.score, Constant) or call.normalize is not softmax or call.dropping:
        return None
    if call.mask is not None and not call.mask.every_query_alike:
        return None
    value = precise(call.value)
    if call.mask is None:
        context = value.mean(-2, keepdim=True)
    else:
        seen = call.mask.rule(call.grid()).to(value.dtype)
        seen = seen.expand(*seen.shape[:-1], call.keys)
        context = (seen @ value) / seen.sum(-1, keepdim=True).clamp(min=1)
    batch = batch_shape(call.query, call.key, context)
    return context.expand(*batch, call.queries, -1).to(call.value.dtype)


def fused(call: Call) -> Tensor | None:
    """Scores that are dot products of features, under softmax."""
    temperature = _temperature(call.normalize)
    if temperature is None or (call.dropping and call.query.device.type == "cpu") or _too_large(call):
        return None  # on a CPU the kernel's own dropout costs more than the definition's
    if _many_small(call):
        return None
    query, missing = call.query, call.batch + 2 - call.query.dim()
    if missing > 0:  # values or mask have more batch axes, and lengths go by the leading ones
        query = query[(None,) * missing]
    found = call.score.features(query, call.key, call.mask)
    if found is None or found.query is None or found.key is None:
        return None
    if isinstance(temperature, Tensor):
        if found.bias is not None:
            return None
        query = precise(found.query)
        found = found._replace(query=query / temperature.to(query))
        temperature = 1.0
    mask, causal = _attn_mask(call, found)
    if mask is not None and call.query.device.type == "mps":
        return None  # its kernel is not known to give zeros where all is hidden
    drop = call.drop.p if call.dropping and call.drop is not None else 0.0
    if mask is not None and mask.dtype != torch.bool and temperature != 1.0:
        mask = mask / temperature
    return _sdpa(found, call.value, mask, causal, found.scale / temperature, drop)


def _many_small(call: Call) -> bool:
    """Many short sequences to be trained on a CPU: sentences, say.

    The fused kernel's backward gains nothing from a second thread there, and the definition, which is two batched
    products, takes half of its time.
    """
    if (
        call.query.device.type != "cpu"
        or max(call.queries, call.keys) > SHORT
        or torch.compiler.is_compiling()
    ):
        return False
    learning = any(part.requires_grad for part in (call.query, call.key, call.value))
    return torch.is_grad_enabled() and learning and call.query.numel() > MANY


def _temperature(normalize: object) -> float | Tensor | None:
    if normalize is softmax:
        return 1.0
    return normalize.t if isinstance(normalize, Temperature) else None


def _too_large(call: Call) -> bool:
    """Whether the mask or a positional bias would have to be written out and is too large for it."""
    positional = call.score.positional
    if not positional and isinstance(call.mask, Dense):
        return False  # it is written out already
    if not positional and (call.mask is None or call.mask.every_query_alike or _band_only(call) is not None):
        return False
    shape = batch_shape(call.query, call.key)
    axes = shape if positional else shape[: call.mask.axes() if call.mask is not None else 0]
    return math.prod(axes) * call.queries * call.keys > LARGE_MASK


def _band_only(call: Call) -> float | None:
    """The upper end of a causal mask that the kernel knows by itself: it sees all, or all up to the diagonal."""
    mask = call.mask
    if not isinstance(mask, Window) or mask.left != math.inf:
        return None
    high = mask.band(call.queries, call.keys)[1]
    return high if high >= call.keys - 1 or high == 0 else None


def _attn_mask(call: Call, found: Features) -> tuple[Tensor | None, bool]:
    """What the kernel is told of mask and bias: a tensor, or that it is causal from the first key on."""
    high = _band_only(call)
    if call.mask is None or (high is not None and high >= call.keys - 1):
        return found.bias, False
    if high == 0 and found.bias is None:
        return None, True
    seen = call.mask.rule(call.grid())
    return (seen if found.bias is None else torch.where(seen, found.bias, -math.inf)), False


def _sdpa(
    found: Features, value: Tensor, mask: Tensor | None, causal: bool, scale: float, drop: float
) -> Tensor:
    """The kernel wants four axes, one size of vector, one batch shape and one dtype; so be it."""
    query, key = found.query, found.key
    assert query is not None
    assert key is not None
    dtype, device = value.dtype, query.device.type
    cast = autocasting(device)
    if cast or query.dtype != dtype or key.dtype != dtype:
        wide = torch.promote_types(torch.promote_types(query.dtype, key.dtype), dtype)
        if cast and not found.exact and wide == torch.float32:
            wide = torch.get_autocast_dtype(device)
        query, key, value = query.to(wide), key.to(wide), value.to(wide)
    if mask is not None and mask.dtype != torch.bool:  # a bias keeps its digits
        mask = mask.to(torch.float64 if query.dtype == torch.float64 else torch.float32)
    size = value.shape[-1]
    query, key, value = _one_size(query, key, value)
    query, key, value, mask, shape = _four_axes(query, key, value, mask, causal)
    # What autocast would do is done; it would also round the bias.
    with torch.autocast(device, enabled=False) if cast else nullcontext():
        out = F.scaled_dot_product_attention(query, key, value, mask, drop, causal, scale=scale)
    out = out.reshape(shape + out.shape[-1:])
    return (out if out.shape[-1] == size else out[..., :size]).to(dtype)


def _one_size(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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


def _four_axes(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, torch.Size]:
    """(*batch, n, dim) as (batch, heads, n, dim), and the shape of the answer without its last axis."""
    batch = batch_shape(query, key, value) if mask is None else batch_shape(query, key, value, mask)
    shape = torch.Size((*batch, query.shape[-2]))
    if len(batch) == 2 and query.shape[:2] == key.shape[:2] == value.shape[:2] == batch:
        # As the kernel wants it already; but a mask of three axes would send it down its slow path.
        return query, key, value, mask if mask is None or mask.dim() != 3 else mask[None], shape
    if not causal and _shared_keys(query, key, value, mask):
        # Grouped queries: their keys are read once, not copied.
        batch = (*batch[:-1], 1)
        query = query.expand(*shape[:-1], -1, -1).flatten(-3, -2).unsqueeze(-3)
    wide = (1,) * (2 - len(batch)) + tuple(batch)
    query, key, value = (_flat(t.expand(*batch, *t.shape[-2:]), wide) for t in (query, key, value))
    if mask is not None:
        lead = (1,) * (len(wide) + 2 - mask.dim()) + tuple(mask.shape[:-2])
        if len(wide) > 2 and math.prod(lead[:-1]) > 1:
            mask = mask.expand(*wide[:-1], *mask.shape[-3:])
            lead = (*wide[:-1], mask.shape[-3])
        mask = mask.reshape(math.prod(lead[:-1]), lead[-1], *mask.shape[-2:])
    return query, key, value, mask, shape


def _shared_keys(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    def one(tensor: Tensor) -> bool:
        return tensor.dim() < 3 or tensor.shape[-3] == 1

    alike = mask is None or (one(mask) and mask.shape[-2] == 1)
    return query.dim() > 2 and query.shape[-3] > 1 and one(key) and one(value) and alike


def _flat(tensor: Tensor, batch: tuple[int, ...]) -> Tensor:
    return tensor.reshape(math.prod(batch[:-1]), batch[-1], *tensor.shape[-2:])
