"""Words read by a stack of layers of any kinds: self-attention, recurrence and convolution, in any order.

Layers of nothing but self-attention are the encoder of a Transformer by itself (Devlin et al. 2019, "BERT", arXiv
1810.04805); a convolution below and a recurrence above it see the order of words, which attention does not.
"""

from __future__ import annotations

from collections.abc import Iterable

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import MultiHead, padding
from regard.models.encoders import Convolution, Recurrence
from regard.models.transformer import Embedding, EncoderLayer, Residual

Lengths = Int[Tensor, " rows"]
States = Float[Tensor, "rows length dim"]


class Mixed(nn.Module):
    """Vectors of words, and layers over them; each adds to what came from below.

        x_0 = embedding of the words, with their positions
        x_i = x_(i-1) + layer_i(norm(x_(i-1)))

    >>> model = Mixed(words=20, dim=12, layers=[Convolving(12), Attending(12, heads=2), Recurring(12)])
    >>> model(torch.randint(4, 20, (2, 5)), torch.tensor([5, 3])).shape
    torch.Size([2, 5, 12])
    """

    def __init__(self, words: int, dim: int, layers: Iterable[nn.Module], dropout: float = 0.0):
        super().__init__()
        self.embed = Embedding(words, dim, dropout)
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(dim)

    def forward(self, words: Int[Tensor, "rows length"], lengths: Lengths) -> States:
        x = self.embed(words)
        for layer in self.layers:
            x = layer(x, lengths)
        return self.norm(x)


class Attending(nn.Module):
    """A layer of self-attention and the small network that goes with it: that of the Transformer's encoder."""

    def __init__(self, dim: int, *, heads: int = 4, hidden_dim: int | None = None, dropout: float = 0.0):
        super().__init__()
        make = lambda: MultiHead(dim, heads)  # noqa: E731
        self.layer = EncoderLayer(dim, hidden_dim or 4 * dim, dropout, "pre", make)

    def forward(self, x: States, lengths: Lengths) -> States:
        return self.layer(x, padding(lengths))


class Convolving(nn.Module):
    """A layer of convolution."""

    def __init__(self, dim: int, *, kernel: int = 3, dropout: float = 0.0):
        super().__init__()
        self.layer, self.add = Convolution(dim, kernel), Residual(dim, dropout, "pre")

    def forward(self, x: States, lengths: Lengths) -> States:
        return self.add(x, lambda x: self.layer(x, lengths))


class Recurring(nn.Module):
    """A recurrent layer that reads in both directions."""

    def __init__(self, dim: int, *, cell: type[nn.Module] = nn.GRU, dropout: float = 0.0):
        super().__init__()
        self.layer = Recurrence(dim, dim // 2, both=True, cell=cell)
        self.add = Residual(dim, dropout, "pre")

    def forward(self, x: States, lengths: Lengths) -> States:
        return self.add(x, lambda x: self.layer(x, lengths))
