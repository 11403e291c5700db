"""Attention modules of PyTorch, observed without changes to their code.

The weights of `nn.MultiheadAttention` are computed a second time from its inputs. Forward hooks are not an option: an
encoder layer with a hook leaves its fast path, and its output changes. Instead the `forward` of the instance is wrapped
and restored. On the fast path an encoder layer does not call its attention module, so the layer is wrapped as well.
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
from regard.attention.observers import WATCHERS, HeadSelection

__all__ = ["compute_weights", "hook_torch_attention", "is_torch_attention"]

_ATTENTION_FORWARD, _LAYER_FORWARD = nn.MultiheadAttention.forward, nn.TransformerEncoderLayer.forward
_SELF_ATTENTION_BLOCK = nn.TransformerEncoderLayer._sa_block
_SIGNATURES = {forward: inspect.signature(forward) for forward in (_ATTENTION_FORWARD, _LAYER_FORWARD)}
_num_watchers: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()  # active watches of a wrapped module
_hook_lock = Lock()
_call_stack: ContextVar[tuple[list[nn.Module], ...]] = ContextVar("_call_stack", default=())


def is_torch_attention(module: nn.Module) -> bool:
    """Whether a module is an attention or encoder layer of PyTorch with PyTorch's own forward.

    Args:
        module: the module
    """
    if isinstance(module, nn.TransformerEncoderLayer) and type(module)._sa_block is not _SELF_ATTENTION_BLOCK:
        return False
    is_torch_class = isinstance(module, (nn.MultiheadAttention, nn.TransformerEncoderLayer))
    return is_torch_class and type(module).forward in _SIGNATURES


@contextmanager
def hook_torch_attention(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Notify the watchers of this thread of the calls of PyTorch's attention modules.

    Args:
        modules: the modules of a model; others than PyTorch's are ignored, and several watches may share a module
    """
    hooked = [module for module in modules if is_torch_attention(module)]
    with _hook_lock:
        for module in hooked:
            _num_watchers[module] = _num_watchers.get(module, 0) + 1
            if _num_watchers[module] == 1:
                _wrap_forward(module, module.__dict__.get("forward"))
    try:
        yield
    finally:
        with _hook_lock:
            for module in hooked:
                _num_watchers[module] -= 1
                if not _num_watchers[module]:
                    _unwrap_forward(module)


def _wrap_forward(module: nn.Module, original: Any) -> None:
    def forward(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        unwrapped = partial(type(module).forward, module) if original is None else original
        if torch.compiler.is_compiling() or not WATCHERS.get():
            return unwrapped(*args, **kwargs)
        run: Any = _run_layer if isinstance(module, nn.TransformerEncoderLayer) else _run_attention
        return run(module, unwrapped, args, kwargs)

    # A bound method, so that a deep copy of the module is bound to the copy.
    module.__dict__["forward"] = MethodType(forward, module)
    forward.__dict__["original"] = original


def _unwrap_forward(module: nn.Module) -> None:
    wrapper: Any = getattr(module.__dict__.get("forward"), "__func__", None)
    if not hasattr(wrapper, "original"):
        return  # it was replaced meanwhile
    del module.__dict__["forward"]
    if wrapper.original is not None:
        module.__dict__["forward"] = wrapper.original


def _run_attention(module: nn.MultiheadAttention, forward: Any, args: Any, kwargs: Any) -> Any:
    result = forward(*args, **kwargs)
    for calls in _call_stack.get():
        calls.append(module)
    _emit(module, _bind_arguments(_ATTENTION_FORWARD, module, args, kwargs))
    return result


def _run_layer(layer: nn.TransformerEncoderLayer, forward: Any, args: Any, kwargs: Any) -> Any:
    """Run an encoder layer, and emit its weights if it took the fast path, which does not call its attention."""
    calls: list[nn.Module] = []
    token = _call_stack.set((*_call_stack.get(), calls))
    try:
        result = forward(*args, **kwargs)
    finally:
        _call_stack.reset(token)
    if is_torch_attention(layer.self_attn) and not any(module is layer.self_attn for module in calls):
        arguments = _bind_arguments(_LAYER_FORWARD, layer, args, kwargs)
        x, padding_mask = arguments["src"], arguments.get("src_key_padding_mask")
        inputs = {"query": x, "key": x, "attn_mask": arguments.get("src_mask"), "key_padding_mask": padding_mask}
        _emit(layer.self_attn, inputs, layer if layer.norm_first else None)
    return result


def _bind_arguments(forward: Any, module: nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
    return dict(_SIGNATURES[forward].bind(module, *args, **kwargs).arguments)


def _emit(module: nn.MultiheadAttention, inputs: dict[str, Any], pre_norm_layer: Any = None) -> None:
    for watcher in WATCHERS.get():
        watcher(module, lambda heads: compute_weights(module, inputs, heads, pre_norm_layer))


@torch.no_grad()
def compute_weights(
    module: nn.MultiheadAttention,
    inputs: dict[str, Any],
    heads: HeadSelection = None,
    pre_norm_layer: nn.TransformerEncoderLayer | None = None,
) -> Tensor:
    """Compute the weights of a PyTorch attention module, before dropout.

    A query whose keys are all masked has weights 0, where PyTorch returns NaN or 0 depending on its path.

    Args:
        module: the attention module
        inputs: the arguments of its forward by name
        heads: the heads to compute; None: all
        pre_norm_layer: the encoder layer whose norm1 is applied first, if it has norm_first=True

    Returns:
        (batch, heads, queries, keys).
    """
    query, hidden = _to_batch_first(module, inputs["query"])
    key = query if inputs["key"] is inputs["query"] else _to_batch_first(module, inputs["key"])[0]
    if pre_norm_layer is not None:
        query = key = F.layer_norm(
            query, query.shape[-1:], pre_norm_layer.norm1.weight, pre_norm_layer.norm1.bias, pre_norm_layer.norm1.eps
        )
    selected = list(range(module.num_heads)) if heads is None else list(heads)
    q, k = _project_heads(module, query, key, selected)
    k = _append_extra_keys(module, k, selected)
    scores = (q * module.head_dim**-0.5) @ k.mT
    mask, padding = inputs.get("attn_mask"), inputs.get("key_padding_mask")
    if mask is not None and mask.dim() == 3:  # a matrix for each head of each example
        mask = mask.unflatten(0, (len(q), module.num_heads))[:, selected]
    if padding is not None:
        padding = torch.atleast_2d(padding)[:, None, None]
    for part in (mask, padding, hidden):
        scores = _apply_torch_mask(scores, part)
    weights = softmax(scores)
    return weights if hidden is None else weights.masked_fill(hidden.mT, 0.0)


def _to_batch_first(module: nn.MultiheadAttention, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """(batch, positions, dim), and the padding of a nested tensor."""
    if x.is_nested:
        lengths = torch.tensor([len(row) for row in x.unbind()], device=x.device)
        x = x.to_padded_tensor(0.0)
        return x, (torch.arange(x.shape[1], device=x.device) >= lengths[:, None])[:, None, None]
    if x.dim() == 2:
        return x[None], None
    return (x if module.batch_first else x.transpose(0, 1)), None


def _project_heads(module: nn.MultiheadAttention, query: Tensor, key: Tensor, heads: list[int]) -> list[Tensor]:
    """Queries and keys of the heads."""
    dim = module.embed_dim
    packed: Tensor | None = module.in_proj_weight
    matrices = (module.q_proj_weight, module.k_proj_weight) if packed is None else packed[: 2 * dim].split(dim)
    biases = (None, None) if module.in_proj_bias is None else module.in_proj_bias[: 2 * dim].split(dim)
    projected = []
    for x, weight, bias in zip((query, key), matrices, biases, strict=True):
        if heads != list(range(module.num_heads)):
            weight = _select_head_rows(weight, module, heads).flatten(0, 1)
            bias = None if bias is None else _select_head_rows(bias, module, heads).flatten()
        projected.append(F.linear(x, weight, bias).unflatten(-1, (len(heads), -1)).transpose(1, 2))
    return projected


def _select_head_rows(tensor: Tensor, module: nn.MultiheadAttention, heads: list[int]) -> Tensor:
    return tensor.unflatten(0, (module.num_heads, -1))[heads]


def _append_extra_keys(module: nn.MultiheadAttention, key: Tensor, heads: list[int]) -> Tensor:
    """Append the learned key of add_bias_kv and the zero key of add_zero_attn."""
    if module.bias_k is not None:
        learned = _select_head_rows(module.bias_k.flatten(), module, heads)[:, None].to(key.dtype)
        key = torch.cat([key, learned.expand(len(key), -1, -1, -1)], 2)
    if module.add_zero_attn:
        key = F.pad(key, (0, 0, 0, 1))
    return key


def _apply_torch_mask(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Apply a mask of PyTorch: True hides, numbers are added; appended keys are visible."""
    if mask is None:
        return scores
    mask = F.pad(mask, (0, scores.shape[-1] - mask.shape[-1]))
    return scores.masked_fill(mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
