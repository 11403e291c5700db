"""PyTorch's own attention, watched from outside: what a module is called with is enough to compute its weights again.

Hooks are no way to do it: an encoder layer that finds one leaves its fast path, and its output changes. So the
instance's `forward` is wrapped and put back. On the fast path a layer never calls its attention, and is told of by
itself.

Hugging Face's models, by their own extension point: `attn_implementation="regard"`.
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

_ATTENTION_FORWARD, _LAYER_FORWARD = nn.MultiheadAttention.forward, nn.TransformerEncoderLayer.forward


_SELF_ATTENTION_BLOCK = nn.TransformerEncoderLayer._sa_block


_SIGNATURES = {forward: inspect.signature(forward) for forward in (_ATTENTION_FORWARD, _LAYER_FORWARD)}


_num_watchers: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()  # how many watches hear a module


_hook_lock = Lock()


_call_stack: ContextVar[tuple[list[nn.Module], ...]] = ContextVar("_called", default=())


def is_torch_attention(module: nn.Module) -> bool:
    """Whether it is PyTorch's own; a forward that somebody else wrote is not known to look as theirs does."""
    if isinstance(module, nn.TransformerEncoderLayer) and type(module)._sa_block is not _SELF_ATTENTION_BLOCK:
        return False
    known = isinstance(module, (nn.MultiheadAttention, nn.TransformerEncoderLayer))
    return known and type(module).forward in _SIGNATURES


@contextmanager
def hook_torch_attention(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Let those of these modules that are PyTorch's say what they are called with; several watches may share one."""
    heard = [module for module in modules if is_torch_attention(module)]
    with _hook_lock:
        for module in heard:
            _num_watchers[module] = _num_watchers.get(module, 0) + 1
            if _num_watchers[module] == 1:
                _wrap_forward(module, module.__dict__.get("forward"))
    try:
        yield
    finally:
        with _hook_lock:
            for module in heard:
                _num_watchers[module] -= 1
                if not _num_watchers[module]:
                    _unwrap_forward(module)


def _wrap_forward(module: nn.Module, before: Any) -> None:
    def forward(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        own = partial(type(module).forward, module) if before is None else before
        if torch.compiler.is_compiling() or not WATCHERS.get():
            return own(*args, **kwargs)
        hear: Any = _run_layer if isinstance(module, nn.TransformerEncoderLayer) else _run_attention
        return hear(module, own, args, kwargs)

    # A bound method, so that a copy of the module gets a copy that belongs to it.
    module.__dict__["forward"] = MethodType(forward, module)
    forward.__dict__["before"] = before


def _unwrap_forward(module: nn.Module) -> None:
    wrapper: Any = getattr(module.__dict__.get("forward"), "__func__", None)
    if not hasattr(wrapper, "before"):
        return  # somebody else has put another one there meanwhile
    del module.__dict__["forward"]
    if wrapper.before is not None:
        module.__dict__["forward"] = wrapper.before


def _run_attention(module: nn.MultiheadAttention, forward: Any, args: Any, kwargs: Any) -> Any:
    answer = forward(*args, **kwargs)
    for called in _call_stack.get():
        called.append(module)
    _emit(module, _bind_arguments(_ATTENTION_FORWARD, module, args, kwargs))
    return answer


def _run_layer(layer: nn.TransformerEncoderLayer, forward: Any, args: Any, kwargs: Any) -> Any:
    """A layer, which on its fast path does not call its attention."""
    called: list[nn.Module] = []
    mark = _call_stack.set((*_call_stack.get(), called))
    try:
        answer = forward(*args, **kwargs)
    finally:
        _call_stack.reset(mark)
    if is_torch_attention(layer.self_attn) and not any(module is layer.self_attn for module in called):
        given = _bind_arguments(_LAYER_FORWARD, layer, args, kwargs)
        x = given["src"]
        masks = {"attn_mask": given.get("src_mask"), "key_padding_mask": given.get("src_key_padding_mask")}
        _emit(
            layer.self_attn, {"query": x, "key": x, "value": x, **masks}, layer if layer.norm_first else None
        )
    return answer


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
    """What the module makes of what it was given, (batch, heads, queries, keys), before anything is dropped.

    `layer` is one that normalizes first. A query that may look nowhere has weights of 0, where PyTorch has NaN or 0,
    as its path happens to be.
    """
    query, hidden = _to_batch_first(module, inputs["query"])
    key = query if inputs["key"] is inputs["query"] else _to_batch_first(module, inputs["key"])[0]
    if pre_norm_layer is not None:
        query = key = F.layer_norm(
            query,
            query.shape[-1:],
            pre_norm_layer.norm1.weight,
            pre_norm_layer.norm1.bias,
            pre_norm_layer.norm1.eps,
        )
    which = list(range(module.num_heads)) if heads is None else list(heads)
    q, k = _project_heads(module, query, key, which)
    k = _append_extra_keys(module, k, which)
    scores = (q * module.head_dim**-0.5) @ k.mT
    scores = _apply_torch_mask(scores, _split_mask_heads(module, inputs.get("attn_mask"), len(q), which))
    scores = _apply_torch_mask(scores, _expand_padding_mask(inputs.get("key_padding_mask")))
    found = softmax(_apply_torch_mask(scores, hidden))
    return found if hidden is None else found.masked_fill(hidden.mT, 0.0)


def _to_batch_first(module: nn.MultiheadAttention, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """(batch, positions, dim); of a nested tensor also which positions are only there to fill it up."""
    if x.is_nested:
        lengths = torch.tensor([len(row) for row in x.unbind()], device=x.device)
        x = x.to_padded_tensor(0.0)
        return x, (torch.arange(x.shape[1], device=x.device) >= lengths[:, None])[:, None, None]
    if x.dim() == 2:
        return x[None], None
    return (x if module.batch_first else x.transpose(0, 1)), None


def _project_heads(
    module: nn.MultiheadAttention, query: Tensor, key: Tensor, heads: list[int]
) -> list[Tensor]:
    """Queries and keys of these heads."""
    dim = module.embed_dim
    joined: Tensor | None = module.in_proj_weight
    maps = (module.q_proj_weight, module.k_proj_weight) if joined is None else joined[: 2 * dim].split(dim)
    biases = (None, None) if module.in_proj_bias is None else module.in_proj_bias[: 2 * dim].split(dim)
    split = []
    for x, weight, bias in zip((query, key), maps, biases, strict=True):
        if heads != list(range(module.num_heads)):
            weight = _select_head_rows(weight, module, heads).flatten(0, 1)
            bias = None if bias is None else _select_head_rows(bias, module, heads).flatten()
        split.append(F.linear(x, weight, bias).unflatten(-1, (len(heads), -1)).transpose(1, 2))
    return split


def _select_head_rows(tensor: Tensor, module: nn.MultiheadAttention, heads: list[int]) -> Tensor:
    return tensor.unflatten(0, (module.num_heads, -1))[heads]


def _append_extra_keys(module: nn.MultiheadAttention, key: Tensor, heads: list[int]) -> Tensor:
    """The keys, with the learned one of add_bias_kv and the zero of add_zero_attn behind them."""
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
    """(queries, keys), or (batch, heads, queries, keys) of a mask that is one matrix a head."""
    if mask is None or mask.dim() == 2:
        return mask
    return mask.unflatten(0, (batch, module.num_heads))[:, heads]


def _expand_padding_mask(mask: Tensor | None) -> Tensor | None:
    if mask is None:
        return None
    return (mask if mask.dim() == 2 else mask[None])[:, None, None]


def _apply_torch_mask(scores: Tensor, mask: Tensor | None) -> Tensor:
    """PyTorch's masks: True hides, numbers are added; what came behind the keys is always visible."""
    if mask is None:
        return scores
    mask = F.pad(mask, (0, scores.shape[-1] - mask.shape[-1]))
    return scores.masked_fill(mask, float("-inf")) if mask.dtype == torch.bool else scores + mask


ATTN_IMPLEMENTATION = "regard"


def register_huggingface() -> None:
    """Make `attn_implementation="regard"` known to transformers, whose models can then be watched.

    `watch` does it by itself if transformers is imported; a model that is to be loaded with it needs it earlier.
    """
    models = require_extra("transformers.modeling_utils", extra="hugging")
    masking = require_extra("transformers.masking_utils", extra="hugging")
    models.AttentionInterface.register(ATTN_IMPLEMENTATION, huggingface_attention)
    masking.AttentionMaskInterface.register(
        ATTN_IMPLEMENTATION, masking.sdpa_mask
    )  # bool, True where a query may look


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
    """What transformers asks of an attention: (batch, heads, queries, dim) -> (batch, queries, heads, dim)."""
    for unknown in ("s_aux", "cache"):
        if others.get(unknown) is not None:
            raise UnsupportedError(
                f'{type(module).__name__} asks for {unknown}, which attn_implementation="regard" does not know; '
                'use "eager" for this model'
            )
    mask, bias = _convert_mask(module, query, key, attention_mask, is_causal)
    biases = [part for part in (bias, position_bias) if part is not None]
    factor = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    score = BiasedDot(factor, sum(biases[1:], biases[0]) if biases else None, softcap)
    normalize: Any = Dropout(softmax, dropout).train() if dropout else softmax
    key, value = _repeat_kv(key, query), _repeat_kv(value, query)
    seen = notify_watchers(module, attend_unwatched(query, key, value, mask, score, normalize))
    return seen.context.transpose(1, 2).contiguous(), None  # weights go to who watches, not to who calls


class BiasedDot(Dot):
    """The dot product as a model of theirs wants it.

    score(q, k) = cap(factor q . k) + bias          cap(s) = c tanh(s / c), if there is one
    """

    is_positional = True  # the bias goes by places

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

    def dot_product_features(
        self, query: Tensor, key: Tensor, mask: Mask | None
    ) -> DotProductFeatures | None:
        found = super().dot_product_features(query, key, mask) if self.softcap is None else None
        return found if found is None or self.bias is None else found._replace(bias=self.bias)

    def restrict(self, grid: Any) -> Score | None:
        return self if self.bias is None else None


def _convert_mask(
    module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool | None
) -> tuple[Mask | None, Tensor | None]:
    """Who may be looked at, and what is added to the scores: theirs is either, or the word causal."""
    if mask is not None:
        mask = mask[..., : key.shape[-2]]
        return (dense(mask), None) if mask.dtype == torch.bool else _split_additive_mask(mask)
    wanted = getattr(module, "is_causal", True) if is_causal is None else is_causal
    queries, keys = query.shape[-2], key.shape[-2]
    if not wanted or queries == 1:
        return None, None
    if keys == queries:
        return causal(), None
    return dense(torch.ones(queries, keys, dtype=torch.bool, device=key.device).tril()), None


def _split_additive_mask(mask: Tensor) -> tuple[Mask | None, Tensor | None]:
    """A mask that is added, in two: what it hides by its lowest numbers, and what it adds elsewhere."""
    visible = mask > torch.finfo(mask.dtype).min
    return dense(visible), torch.where(visible, mask, 0.0)


def _repeat_kv(grouped: Tensor, query: Tensor) -> Tensor:
    """Each group of query heads reads one head of keys."""
    groups = query.shape[1] // grouped.shape[1]
    return grouped if groups == 1 else grouped.repeat_interleave(groups, 1)


def check_attn_implementation(model: nn.Module) -> None:
    """Say what to do, if a model of theirs computes its attention where nobody can watch."""
    models = sys.modules.get("transformers.modeling_utils")
    for part in model.modules() if models is not None else ():
        if (
            isinstance(part, models.PreTrainedModel)  # type: ignore[union-attr]
            and part.config._attn_implementation != ATTN_IMPLEMENTATION
        ):
            raise UnsupportedError(
                f"{type(part).__name__} computes attention by {part.config._attn_implementation!r}, which nobody can "
                'watch; call model.set_attn_implementation("regard") first, or load it with '
                'attn_implementation="regard"'
            )


def huggingface_attention_modules(model: nn.Module) -> set[nn.Module]:
    """The modules of theirs that call an attention: named so, and without another one inside."""

    def named(part: nn.Module) -> bool:
        return type(part).__module__.startswith("transformers.models.") and "Attention" in type(part).__name__

    found = {part for part in model.modules() if named(part)}
    return {part for part in found if not any(inner in found for inner in list(part.modules())[1:])}


def is_huggingface_imported() -> bool:
    return "transformers.modeling_utils" in sys.modules
