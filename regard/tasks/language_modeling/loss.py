"""Losses and metrics of language models: of the next token, and of masked tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.data.passages import TextBatch, mask_tokens
from regard.training import Loss, linear_cross_entropy

__all__ = [
    "MaskedTextBatch", "causal_lm_loss", "mask_batches", "masked_token_loss",
]  # fmt: skip


@dataclass(frozen=True)
class MaskedTextBatch(TextBatch):
    """Passages with the tokens to predict chosen already, for evaluations that are always the same.

    Args:
        masked_ids: the input of the model
        target_mask: whether a token is predicted

    Shape:
        masked_ids, target_mask: (batch, seq_len)
    """

    masked_ids: Int[Tensor, "batch seq_len"]
    target_mask: Bool[Tensor, "batch seq_len"]
    padded: ClassVar[Mapping[str, str]] = dict.fromkeys(("token_ids", "masked_ids", "target_mask"), "lengths")


def mask_batches(batches: Iterable[TextBatch], mask_prob: float, mask_id: int) -> Iterator[MaskedTextBatch]:
    """Choose the tokens to predict; those of batch i are a function of i alone.

    Args:
        batches: passages
        mask_prob: probability that a token is predicted
        mask_id: id of the mask
    """
    generator = torch.Generator()
    for index, batch in enumerate(batches):
        masked = mask_tokens(batch, mask_prob, mask_id, generator.manual_seed(index))
        yield MaskedTextBatch(batch.token_ids, batch.lengths, masked.token_ids, masked.target_mask)


def causal_lm_loss(model: Any, batch: TextBatch) -> Loss:
    """The cross entropy of each token given those before it, summed.

    Args:
        model: a `CausalLM`
        batch: passages
    """
    hidden, targets = (model.forward_hidden(batch.token_ids[:, :-1]).flatten(0, 1), batch.token_ids[:, 1:].flatten())
    positions = torch.arange(batch.token_ids.shape[1] - 1, device=targets.device)
    rows = (positions < (batch.lengths - 1)[:, None]).flatten().nonzero().squeeze(1)
    if len(rows) < len(targets):
        hidden, targets = hidden.index_select(0, rows), targets.index_select(0, rows)
    total, _ = linear_cross_entropy(hidden, model.lm_head.weight, None, targets)
    return Loss(total, batch.num_tokens)


def masked_token_loss(model: Any, batch: TextBatch, mask_prob: float) -> Loss:
    """The cross entropy of masked tokens, summed; of a `MaskedTextBatch` also how many are right.

    Args:
        model: a `MaskedLM`
        batch: passages; tokens of a `TextBatch` are masked at random
        mask_prob: probability that a token is predicted

    Reference: Devlin et al. (2019), "BERT", arXiv 1810.04805, section 3.1.
    """
    head = model.lm_head
    if isinstance(batch, MaskedTextBatch):
        token_ids, target_mask = batch.masked_ids, batch.target_mask
    else:
        token_ids, target_mask = mask_tokens(batch, mask_prob, len(head.weight) - 1)
    hidden = model.forward_hidden(token_ids, batch.lengths)[target_mask]
    targets = batch.token_ids[target_mask]
    total, _ = linear_cross_entropy(hidden, head.weight, head.bias, targets)
    if not isinstance(batch, MaskedTextBatch):
        return Loss(total, len(targets))
    return Loss(total, len(targets), {"accuracy": 100 * (head(hidden).argmax(-1) == targets).sum()})
