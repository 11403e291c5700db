"""PyTorch's own attention, watched from outside: what a module is called with is enough to compute its weights again.

Hooks are no way to do it: an encoder layer that finds one leaves its fast path, and its output changes. So the
instance's `forward` is wrapped and put back. On the fast path a layer never calls its attention, and is told of by
itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from threading import Lock
from types import MethodType
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import softmax
from regard.attention._watching import WATCHING, Heads

_ATTENTION, _LAYER = nn.MultiheadAttention.forward, nn.TransformerEncoderLayer.forward
_BLOCK = nn.TransformerEncoderLayer._sa_block
_SIGNATURES = {forward: inspect.signature(forward) for forward in (_ATTENTION, _LAYER)}
_times: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()  # how many watches hear a module
_lock = Lock()
_called: ContextVar[tuple[list[nn.Module], ...]] = ContextVar("_called", default=())


def hearable(module: nn.Module) -> bool:
    """Whether it is PyTorch's own; a forward that somebody else wrote is not known to look as theirs does."""
    if isinstance(module, nn.TransformerEncoderLayer) and type(module)._sa_block is not _BLOCK:
        return False
    known = isinstance(module, (nn.MultiheadAttention, nn.TransformerEncoderLayer))
    return known and type(module).forward in _SIGNATURES


@contextmanager
def hearing(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Let those of these modules that are PyTorch's say what they are called with; several watches may share one."""
    heard = [module for module in modules if hearable(module)]
    with _lock:
        for module in heard:
            _times[module] = _times.get(module, 0) + 1
            if _times[module] == 1:
                _wrap(module, module.__dict__.get("forward"))
    try:
        yield
    finally:
        with _lock:
            for module in heard:
                _times[module] -= 1
                if not _times[module]:
                    _unwrap(module)


def _wrap(module: nn.Module, before: Any) -> None:
    def forward(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        own = partial(type(module).forward, module) if before is None else before
        if torch.compiler.is_compiling() or not WATCHING.get():
            return own(*args, **kwargs)
        hear: Any = _layer if isinstance(module, nn.TransformerEncoderLayer) else _attention
        return hear(module, own, args, kwargs)

    # A bound method, so that a copy of the module gets a copy that belongs to it.
    module.__dict__["forward"] = MethodType(forward, module)
    forward.__dict__["before"] = before


def _unwrap(module: nn.Module) -> None:
    wrapper: Any = getattr(module.__dict__.get("forward"), "__func__", None)
    if not hasattr(wrapper, "before"):
        return  # somebody else has put another one there meanwhile
    del module.__dict__["forward"]
    if wrapper.before is not None:
        module.__dict__["forward"] = wrapper.before


def _attention(module: nn.MultiheadAttention, own: Any, args: Any, kwargs: Any) -> Any:
    answer = own(*args, **kwargs)
    for called in _called.get():
        called.append(module)
    _tell(module, _bound(_ATTENTION, module, args, kwargs))
    return answer


def _layer(layer: nn.TransformerEncoderLayer, own: Any, args: Any, kwargs: Any) -> Any:
    """A layer, which on its fast path does not call its attention."""
    called: list[nn.Module] = []
    mark = _called.set((*_called.get(), called))
    try:
        answer = own(*args, **kwargs)
    finally:
        _called.reset(mark)
    if hearable(layer.self_attn) and not any(module is layer.self_attn for module in called):
        given = _bound(_LAYER, layer, args, kwargs)
        x = given["src"]
        masks = {"attn_mask": given.get("src_mask"), "key_padding_mask": given.get("src_key_padding_mask")}
        _tell(
            layer.self_attn, {"query": x, "key": x, "value": x, **masks}, layer if layer.norm_first else None
        )
    return answer


def _bound(forward: Any, module: nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
    return dict(_SIGNATURES[forward].bind(module, *args, **kwargs).arguments)


def _tell(module: nn.MultiheadAttention, given: dict[str, Any], layer: Any = None) -> None:
    for watcher in WATCHING.get():
        watcher(module, lambda heads: weights(module, given, heads, layer))


@torch.no_grad()
def weights(
    module: nn.MultiheadAttention,
    given: dict[str, Any],
    heads: Heads = None,
    layer: nn.TransformerEncoderLayer | None = None,
) -> Tensor:
    """What the module makes of what it was given, (batch, heads, queries, keys), before anything is dropped.

    `layer` is one that normalizes first. A query that may look nowhere has weights of 0, where PyTorch has NaN or 0,
    as its path happens to be.
    """
    query, hidden = _rows(module, given["query"])
    key = query if given["key"] is given["query"] else _rows(module, given["key"])[0]
    if layer is not None:
        query = key = F.layer_norm(
            query, query.shape[-1:], layer.norm1.weight, layer.norm1.bias, layer.norm1.eps
        )
    which = list(range(module.num_heads)) if heads is None else list(heads)
    q, k = _projected(module, query, key, which)
    k = _more_keys(module, k, which)
    scores = (q * module.head_dim**-0.5) @ k.mT
    scores = _masked(scores, _attn_mask(module, given.get("attn_mask"), len(q), which))
    scores = _masked(scores, _padding(given.get("key_padding_mask")))
    found = softmax(_masked(scores, hidden))
    return found if hidden is None else found.masked_fill(hidden.mT, 0.0)


def _rows(module: nn.MultiheadAttention, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """(batch, positions, dim); of a nested tensor also which positions are only there to fill it up."""
    if x.is_nested:
        lengths = torch.tensor([len(row) for row in x.unbind()], device=x.device)
        x = x.to_padded_tensor(0.0)
        return x, (torch.arange(x.shape[1], device=x.device) >= lengths[:, None])[:, None, None]
    if x.dim() == 2:
        return x[None], None
    return (x if module.batch_first else x.transpose(0, 1)), None


def _projected(module: nn.MultiheadAttention, query: Tensor, key: Tensor, heads: list[int]) -> list[Tensor]:
    """Queries and keys of these heads."""
    dim = module.embed_dim
    joined: Tensor | None = module.in_proj_weight
    maps = (module.q_proj_weight, module.k_proj_weight) if joined is None else joined[: 2 * dim].split(dim)
    biases = (None, None) if module.in_proj_bias is None else module.in_proj_bias[: 2 * dim].split(dim)
    split = []
    for x, weight, bias in zip((query, key), maps, biases, strict=True):
        if heads != list(range(module.num_heads)):
            weight = _of_heads(weight, module, heads).flatten(0, 1)
            bias = None if bias is None else _of_heads(bias, module, heads).flatten()
        split.append(F.linear(x, weight, bias).unflatten(-1, (len(heads), -1)).transpose(1, 2))
    return split


def _of_heads(tensor: Tensor, module: nn.MultiheadAttention, heads: list[int]) -> Tensor:
    return tensor.unflatten(0, (module.num_heads, -1))[heads]


def _more_keys(module: nn.MultiheadAttention, key: Tensor, heads: list[int]) -> Tensor:
    """The keys, with the learned one of add_bias_kv and the zero of add_zero_attn behind them."""
    batch, count, _, size = key.shape
    if module.bias_k is not None:
        learned = _of_heads(module.bias_k.flatten(), module, heads)[:, None].to(key.dtype)
        key = torch.cat([key, learned.expand(batch, count, 1, size)], 2)
    if module.add_zero_attn:
        key = F.pad(key, (0, 0, 0, 1))
    return key


def _attn_mask(
    module: nn.MultiheadAttention, mask: Tensor | None, batch: int, heads: list[int]
) -> Tensor | None:
    """(queries, keys), or (batch, heads, queries, keys) of a mask that is one matrix a head."""
    if mask is None or mask.dim() == 2:
        return mask
    return mask.unflatten(0, (batch, module.num_heads))[:, heads]


def _padding(mask: Tensor | None) -> Tensor | None:
    if mask is None:
        return None
    return (mask if mask.dim() == 2 else mask[None])[:, None, None]


def _masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """PyTorch's masks: True hides, numbers are added; what came behind the keys is always visible."""
    if mask is None:
        return scores
    mask = F.pad(mask, (0, scores.shape[-1] - mask.shape[-1]))
    return scores.masked_fill(mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
