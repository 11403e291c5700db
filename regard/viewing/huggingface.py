"""Models of Hugging Face transformers, observed through their attention interface: `attn_implementation="regard"`."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

from regard._imports import require_extra
from regard.attention import Dot, Dropout, Mask, causal, dense, softmax
from regard.attention.equation import attend_unwatched
from regard.attention.observers import notify_watchers
from regard.attention.scores.base import DotProductFeatures, Score
from regard.errors import UnsupportedError

__all__ = ["ATTN_IMPLEMENTATION", "BiasedDot", "huggingface_attention", "register_huggingface"]

ATTN_IMPLEMENTATION = "regard"


def register_huggingface() -> None:
    """Register `attn_implementation="regard"` with transformers, so that its models can be watched.

    `watch` calls it if transformers is imported. Call it before loading a model with
    `from_pretrained(..., attn_implementation="regard")`.

    Example:
        model = AutoModel.from_pretrained(name, attn_implementation="regard")  # after register_huggingface()
        with regard.watch(model) as records:
            model(**inputs)
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

    Example:
        >>> query, key = torch.randn(2, 5, 4), torch.randn(2, 3, 4)
        >>> bool(BiasedDot(0.5, None, softcap=1.0)(query, key).abs().max() <= 1)
        True
    """

    def __init__(self, scaling: float, bias: Tensor | None, softcap: float | None):
        super().__init__()
        self.scaling, self.bias, self.softcap = scaling, bias, softcap
        self.is_positional = bias is not None  # the bias depends on positions

    def extra_repr(self) -> str:
        return f"scaling={self.scaling}, softcap={self.softcap}"

    def scale(self, dim: int) -> float:
        return self.scaling

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        scores = super().forward(query, key)
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        if self.bias is None:
            return scores
        return scores + self.bias.to(torch.promote_types(self.bias.dtype, torch.float32))

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
    """Raise UnsupportedError if a model of transformers uses an attention function that cannot be watched.

    Args:
        model: any model

    Raises:
        UnsupportedError: its message says how to change the attention function
    """
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
    """Find the innermost modules of transformers with "Attention" in their class names.

    Args:
        model: any model
    """

    def is_attention(part: nn.Module) -> bool:
        return type(part).__module__.startswith("transformers.models.") and "Attention" in type(part).__name__

    candidates = {part for part in model.modules() if is_attention(part)}
    return {part for part in candidates if not any(inner in candidates for inner in list(part.modules())[1:])}


def is_huggingface_imported() -> bool:
    """Whether transformers is imported, so that a model may be one of its models."""
    return "transformers.modeling_utils" in sys.modules
