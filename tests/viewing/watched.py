"""Small models to be watched, and what a call gives without a watch and with it."""

import torch
from torch import nn

from regard.attention import Additive, Attention, attend, causal
from regard.models import RNNSeq2Seq, Transformer
from regard.viewing import watch

SOURCE, TARGET = torch.randint(4, 11, (3, 6)), torch.randint(4, 13, (3, 5))
LENGTHS = torch.tensor([6, 4, 2])


def transformer(dropout=0.1, **options):
    return Transformer(
        11, 13, embed_dim=16, num_heads=4, num_encoder_layers=2, ffn_dim=32, dropout=dropout, **options
    )


def recurrent(attention=None, **options):
    attention = attention or Attention(Additive(16, 16, 8))
    return RNNSeq2Seq(11, 13, attention, embed_dim=8, hidden_dim=16, **options)


def twice(model, call, **options):
    """What the call gives without and with a watch, from the same state of chance; and what was seen."""
    torch.manual_seed(3)
    plain, after = call(model), torch.get_rng_state()
    torch.manual_seed(3)
    with watch(model, **options) as seen:
        watched = call(model)
    assert torch.equal(after, torch.get_rng_state())
    assert torch.equal(plain, watched)
    return seen


class Pooled(nn.Module):
    """A module of somebody's own, which calls attend itself."""

    def __init__(self, **letters):
        super().__init__()
        self.line, self.letters = nn.Linear(8, 8), letters

    def forward(self, x):
        found = [attend(self.line(x), x, x, causal(), **self.letters) for _ in range(1)]
        return found[0].context
