"""Hugging Face's models, by their own extension point: `attn_implementation="regard"`."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

from regard._imports import require_extra
from regard.attention import Dot, Dropout, Mask, causal, dense, softmax
from regard.attention._equation import looked
from regard.attention._watching import told
from regard.attention.scores.base import Features, Score, precise
from regard.errors import UnsupportedError

NAME = "regard"


def register() -> None:
    """Make `attn_implementation="regard"` known to transformers, whose models can then be watched.

    `watch` does it by itself if transformers is imported; a model that is to be loaded with it needs it earlier.
    """
    models = require_extra("transformers.modeling_utils", extra="hugging")
    masking = require_extra("transformers.masking_utils", extra="hugging")
    models.AttentionInterface.register(NAME, attention)
    masking.AttentionMaskInterface.register(NAME, masking.sdpa_mask)  # bool, True where a query may look


def attention(
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
    mask, bias = _mask(module, query, key, attention_mask, is_causal)
    biases = [part for part in (bias, position_bias) if part is not None]
    factor = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    score = Asked(factor, sum(biases[1:], biases[0]) if biases else None, softcap)
    normalize: Any = Dropout(softmax, dropout).train() if dropout else softmax
    key, value = _shared(key, query), _shared(value, query)
    seen = told(module, looked(query, key, value, mask, score, normalize))
    return seen.context.transpose(1, 2).contiguous(), None  # weights go to who watches, not to who calls


class Asked(Dot):
    """The dot product as a model of theirs wants it.

    score(q, k) = cap(factor q . k) + bias          cap(s) = c tanh(s / c), if there is one
    """

    positional = True  # the bias goes by places

    def __init__(self, factor: float, bias: Tensor | None, cap: float | None):
        super().__init__()
        self.factor, self.bias, self.cap = factor, bias, cap
        if bias is None:
            self.positional = False

    def scale(self, dim: int) -> float:
        return self.factor

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        scores = super().forward(query, key)
        if self.cap is not None:
            scores = self.cap * torch.tanh(scores / self.cap)
        return scores if self.bias is None else scores + precise(self.bias)

    def features(self, query: Tensor, key: Tensor, mask: Mask | None) -> Features | None:
        found = super().features(query, key, mask) if self.cap is None else None
        return found if found is None or self.bias is None else found._replace(bias=self.bias)

    def at(self, grid: Any) -> Score | None:
        return self if self.bias is None else None


def _mask(
    module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool | None
) -> tuple[Mask | None, Tensor | None]:
    """Who may be looked at, and what is added to the scores: theirs is either, or the word causal."""
    if mask is not None:
        mask = mask[..., : key.shape[-2]]
        return (dense(mask), None) if mask.dtype == torch.bool else _apart(mask)
    wanted = getattr(module, "is_causal", True) if is_causal is None else is_causal
    queries, keys = query.shape[-2], key.shape[-2]
    if not wanted or queries == 1:
        return None, None
    if keys == queries:
        return causal(), None
    return dense(torch.ones(queries, keys, dtype=torch.bool, device=key.device).tril()), None


def _apart(mask: Tensor) -> tuple[Mask | None, Tensor | None]:
    """A mask that is added, in two: what it hides by its lowest numbers, and what it adds elsewhere."""
    visible = mask > torch.finfo(mask.dtype).min
    return dense(visible), torch.where(visible, mask, 0.0)


def _shared(few: Tensor, query: Tensor) -> Tensor:
    """Each group of query heads reads one head of keys."""
    groups = query.shape[1] // few.shape[1]
    return few if groups == 1 else few.repeat_interleave(groups, 1)


def refuse_others(model: nn.Module) -> None:
    """Say what to do, if a model of theirs computes its attention where nobody can watch."""
    models = sys.modules.get("transformers.modeling_utils")
    for part in model.modules() if models is not None else ():
        if isinstance(part, models.PreTrainedModel) and part.config._attn_implementation != NAME:  # type: ignore[union-attr]
            raise UnsupportedError(
                f"{type(part).__name__} computes attention by {part.config._attn_implementation!r}, which nobody can "
                'watch; call model.set_attn_implementation("regard") first, or load it with '
                'attn_implementation="regard"'
            )


def attentions(model: nn.Module) -> set[nn.Module]:
    """The modules of theirs that call an attention: named so, and without another one inside."""

    def named(part: nn.Module) -> bool:
        return type(part).__module__.startswith("transformers.models.") and "Attention" in type(part).__name__

    found = {part for part in model.modules() if named(part)}
    return {part for part in found if not any(inner in found for inner in list(part.modules())[1:])}


def imported() -> bool:
    return "transformers.modeling_utils" in sys.modules
