"""Words hidden by chance, for a model that learns to fill them in."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.data.batch import EOS
from regard.data.passages import TextBatch

HIDDEN, OTHER = 0.8, 0.1  # of the chosen words; the rest stay as they are


class Hidden(NamedTuple):
    """What the model is shown, and which words it is asked for."""

    words: Int[Tensor, "rows length"]
    asked: Bool[Tensor, "rows length"]


def hide(batch: TextBatch, share: float, mask: int, generator: torch.Generator | None = None) -> Hidden:
    """Choose a share of the words; show a mask in place of most of them.

        of the chosen    0.8 become the mask, 0.1 any other word, 0.1 stay: what is seen may always be wrong

    Devlin et al. (2019), arXiv 1810.04805, 3.1. `mask` is the number after the last of the vocabulary. Neither BOS nor
    EOS is chosen, nor a word that has no number of its own; of a passage with others, at least one is.

    >>> batch = TextBatch(torch.tensor([[2, 7, 8, 9, 3]]), torch.tensor([5]))
    >>> hidden = hide(batch, share=1.0, mask=10)
    >>> hidden.asked.int().tolist()
    [[0, 1, 1, 1, 0]]
    """
    device = batch.words.device
    chance = torch.rand(batch.words.shape, generator=generator).to(device)
    inside = torch.arange(batch.words.shape[1], device=device) < batch.lengths[:, None]
    able = inside & (batch.words > EOS)
    first = chance == chance.masked_fill(~able, 2.0).amin(1, keepdim=True)
    asked = able & ((chance < share) | first)
    what = torch.rand(batch.words.shape, generator=generator).to(device)
    other = torch.randint(EOS + 1, mask, batch.words.shape, generator=generator).to(device)
    shown = torch.where(asked & (what < HIDDEN), mask, batch.words)
    shown = torch.where(asked & (what >= HIDDEN) & (what < HIDDEN + OTHER), other, shown)
    return Hidden(shown, asked)
