"""Small models, and the comparison of a call with and without a watch."""

import torch
from torch import nn

from regard.attention import Additive, Attention, attend, causal
from regard.models import RNNSeq2Seq, Transformer
from regard.viewing import watch

SOURCE, TARGET = torch.randint(4, 11, (3, 6)), torch.randint(4, 13, (3, 5))
LENGTHS = torch.tensor([6, 4, 2])


def transformer(dropout=0.1, **options):
    return Transformer(11, 13, embed_dim=16, num_heads=4, num_encoder_layers=2, ffn_dim=32, dropout=dropout, **options)


def recurrent(attention=None, **options):
    attention = attention or Attention(Additive(16, 16, 8))
    return RNNSeq2Seq(11, 13, attention, embed_dim=8, hidden_dim=16, **options)


def compare_watched(model, call, **options):
    """Check that a call has equal outputs with and without a watch from one random state; return the records."""
    torch.manual_seed(3)
    plain, after = call(model), torch.get_rng_state()
    torch.manual_seed(3)
    with watch(model, **options) as records:
        watched = call(model)
    assert torch.equal(after, torch.get_rng_state())
    assert torch.equal(plain, watched)
    return records


class Pooled(nn.Module):
    """A user's module that calls attend."""

    def __init__(self, **arguments):
        super().__init__()
        self.line, self.arguments = nn.Linear(8, 8), arguments

    def forward(self, x):
        outputs = [attend(self.line(x), x, x, causal(), **self.arguments) for _ in range(1)]
        return outputs[0].context
