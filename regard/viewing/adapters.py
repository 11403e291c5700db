"""Attention modules of PyTorch and of Hugging Face transformers, observed without changes to their code.

The weights of `nn.MultiheadAttention` are computed a second time from its inputs. Forward hooks are not an option: an
encoder layer with a hook leaves its fast path, and its output changes. Instead the `forward` of the instance is wrapped
and restored. On the fast path an encoder layer does not call its attention module, so the layer is wrapped as well.

Models of transformers are observed through their attention interface: `attn_implementation="regard"`.
"""

from __future__ import annotations

import inspect
import sys
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

from regard._imports import require_extra
from regard.attention import Dot, Dropout, Mask, causal, dense, softmax
from regard.attention._common import upcast_half
from regard.attention.equation import attend_unwatched
from regard.attention.observers import WATCHERS, HeadSelection, notify_watchers
from regard.attention.scores.base import DotProductFeatures, Score
from regard.errors import UnsupportedError

__all__ = [
    "ATTN_IMPLEMENTATION",
    "BiasedDot",
    "check_attn_implementation",
    "compute_weights",
    "hook_torch_attention",
    "huggingface_attention",
    "huggingface_attention_modules",
    "is_huggingface_imported",
    "is_torch_attention",
    "register_huggingface",
]

ATTN_IMPLEMENTATION = "regard"
_ATTENTION_FORWARD, _LAYER_FORWARD = nn.MultiheadAttention.forward, nn.TransformerEncoderLayer.forward
_SELF_ATTENTION_BLOCK = nn.TransformerEncoderLayer._sa_block
_SIGNATURES = {forward: inspect.signature(forward) for forward in (_ATTENTION_FORWARD, _LAYER_FORWARD)}
_num_watchers: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()  # active watches of a wrapped module
_hook_lock = Lock()
_call_stack: ContextVar[tuple[list[nn.Module], ...]] = ContextVar("_call_stack", default=())


def is_torch_attention(module: nn.Module) -> bool:
    """Whether a module is an attention or encoder layer of PyTorch with PyTorch's own forward."""
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
        x = arguments["src"]
        inputs = {
            "query": x,
            "key": x,
            "value": x,
            "attn_mask": arguments.get("src_mask"),
            "key_padding_mask": arguments.get("src_key_padding_mask"),
        }
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
    scores = _apply_torch_mask(scores, _split_mask_heads(module, inputs.get("attn_mask"), len(q), selected))
    scores = _apply_torch_mask(scores, _expand_padding_mask(inputs.get("key_padding_mask")))
    weights = softmax(_apply_torch_mask(scores, hidden))
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
    batch, count, _, size = key.shape
    if module.bias_k is not None:
        learned = _select_head_rows(module.bias_k.flatten(), module, heads)[:, None].to(key.dtype)
        key = torch.cat([key, learned.expand(batch, count, 1, size)], 2)
    if module.add_zero_attn:
        key = F.pad(key, (0, 0, 0, 1))
    return key


def _split_mask_heads(
    module: nn.MultiheadAttention, mask: Tensor | None, batch: int, heads: list[int]
) -> Tensor | None:
    """(queries, keys), or (batch, heads, queries, keys) of a mask with a matrix per head."""
    if mask is None or mask.dim() == 2:
        return mask
    return mask.unflatten(0, (batch, module.num_heads))[:, heads]


def _expand_padding_mask(mask: Tensor | None) -> Tensor | None:
    if mask is None:
        return None
    return (mask if mask.dim() == 2 else mask[None])[:, None, None]


def _apply_torch_mask(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Apply a mask of PyTorch: True hides, numbers are added; appended keys are visible."""
    if mask is None:
        return scores
    mask = F.pad(mask, (0, scores.shape[-1] - mask.shape[-1]))
    return scores.masked_fill(mask, float("-inf")) if mask.dtype == torch.bool else scores + mask


def register_huggingface() -> None:
    """Register `attn_implementation="regard"` with transformers, so that its models can be watched.

    `watch` calls it if transformers is imported. Call it before loading a model with
    `from_pretrained(..., attn_implementation="regard")`.
    """
    models = require_extra("transformers.modeling_utils", extra="hugging")
    masking = require_extra("transformers.masking_utils", extra="hugging")
    models.AttentionInterface.register(ATTN_IMPLEMENTATION, huggingface_attention)
    masking.AttentionMaskInterface.register(ATTN_IMPLEMENTATION, masking.sdpa_mask)  # True = visible


def huggingface_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention function of regard with the signature of transformers' attention interface.

    Args:
        module: the attention module of the model
        query, key, value: projected inputs
        attention_mask: boolean (True = visible) or additive; None: causal or no mask, by `is_causal`
        dropout: probability
        scaling: factor of the dot products; None: 1 / sqrt(dim)
        is_causal: None: the attribute of the module
        position_bias: added to the scores
        softcap: c of c tanh(s / c)
        others: arguments of the model that are not supported if they are not None

    Shape:
        (batch, heads, queries, dim) -> (batch, queries, heads, dim)

    Returns:
        The context, and None in place of the weights, which go to the watchers.
    """
    for name in ("s_aux", "cache"):
        if others.get(name) is not None:
            raise UnsupportedError(
                f'{type(module).__name__} needs {name}, which attn_implementation="regard" does not support; '
                'use "eager" for this model'
            )
    mask, bias = _convert_mask(module, query, key, attention_mask, is_causal)
    biases = [term for term in (bias, position_bias) if term is not None]
    scaling = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    score = BiasedDot(scaling, sum(biases[1:], biases[0]) if biases else None, softcap)
    normalize: Any = Dropout(softmax, dropout).train() if dropout else softmax
    key, value = _repeat_kv(key, query), _repeat_kv(value, query)
    output = notify_watchers(module, attend_unwatched(query, key, value, mask, score, normalize))
    return output.context.transpose(1, 2).contiguous(), None


class BiasedDot(Dot):
    """Scaled dot product with an optional soft cap and bias, as models of transformers use it.

        score(q, k) = cap(scaling q . k) + bias          cap(s) = softcap tanh(s / softcap)

    Args:
        scaling: factor of the dot products
        bias: added to the scores, (batch, heads, queries, keys), or None
        softcap: limit of the scores, or None

    Shape:
        query (*batch, queries, dim), key (*batch, keys, dim) -> (*batch, queries, keys)
    """

    is_positional = True  # the bias depends on positions

    def __init__(self, scaling: float, bias: Tensor | None, softcap: float | None):
        super().__init__()
        self.scaling, self.bias, self.softcap = scaling, bias, softcap
        if bias is None:
            self.is_positional = False

    def scale(self, dim: int) -> float:
        return self.scaling

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        scores = super().forward(query, key)
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        return scores if self.bias is None else scores + upcast_half(self.bias)

    def dot_product_features(self, query: Tensor, key: Tensor, mask: Mask | None) -> DotProductFeatures | None:
        features = super().dot_product_features(query, key, mask) if self.softcap is None else None
        return features if features is None or self.bias is None else features._replace(bias=self.bias)

    def restrict(self, grid: Any) -> Score | None:
        return self if self.bias is None else None


def _convert_mask(
    module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool | None
) -> tuple[Mask | None, Tensor | None]:
    """Split the mask of a model into a mask and a bias of the scores."""
    if mask is not None:
        mask = mask[..., : key.shape[-2]]
        return (dense(mask), None) if mask.dtype == torch.bool else _split_additive_mask(mask)
    needs_mask = getattr(module, "is_causal", True) if is_causal is None else is_causal
    queries, keys = query.shape[-2], key.shape[-2]
    if not needs_mask or queries == 1:
        return None, None
    if keys == queries:
        return causal(), None
    return dense(torch.ones(queries, keys, dtype=torch.bool, device=key.device).tril()), None


def _split_additive_mask(mask: Tensor) -> tuple[Mask | None, Tensor | None]:
    """Split an additive mask: the lowest number of the dtype hides, other numbers are a bias."""
    visible = mask > torch.finfo(mask.dtype).min
    return dense(visible), torch.where(visible, mask, 0.0)


def _repeat_kv(grouped: Tensor, query: Tensor) -> Tensor:
    """Repeat keys or values for each query head of a group (grouped-query attention)."""
    groups = query.shape[1] // grouped.shape[1]
    return grouped if groups == 1 else grouped.repeat_interleave(groups, 1)


def check_attn_implementation(model: nn.Module) -> None:
    """Raise UnsupportedError if a model of transformers uses an attention function that cannot be watched."""
    models = sys.modules.get("transformers.modeling_utils")
    if models is None:
        return
    for part in model.modules():
        if not isinstance(part, models.PreTrainedModel):
            continue
        implementation = part.config._attn_implementation
        if implementation != ATTN_IMPLEMENTATION:
            raise UnsupportedError(
                f"{type(part).__name__} uses attn_implementation={implementation!r}, which cannot be watched; "
                'call model.set_attn_implementation("regard") first, or load it with attn_implementation="regard"'
            )


def huggingface_attention_modules(model: nn.Module) -> set[nn.Module]:
    """The innermost modules of transformers with "Attention" in their class names."""

    def is_attention(part: nn.Module) -> bool:
        return type(part).__module__.startswith("transformers.models.") and "Attention" in type(part).__name__

    candidates = {part for part in model.modules() if is_attention(part)}
    return {part for part in candidates if not any(inner in candidates for inner in list(part.modules())[1:])}


def is_huggingface_imported() -> bool:
    return "transformers.modeling_utils" in sys.modules
