"""Four layers of one size that turn a sequence into another: by convolution, by recurrence, by attention, all or near.

They are the rows of the table by which Vaswani et al. (2017), arXiv 1706.03762, table 1, compare what such layers cost.
With the usual sizes each has about 4 dim^2 weights, so that nothing but the way they look at a sequence differs:

    Convolution      3 dim^2 for three neighbors, dim^2 for what is made of them
    Recurrence       a GRU of 2/3 dim has 10/3 dim^2, its output 2/3 dim^2
    SelfAttention    query, key, value and output, dim^2 each
    LocalAttention   the same

Words read by a stack of layers of any kinds: self-attention, recurrence and convolution, in any order.

Layers of nothing but self-attention are the encoder of a Transformer by itself (Devlin et al. 2019, "BERT", arXiv
1810.04805); a convolution below and a recurrence above it see the order of words, which attention does not.

The halves of the Transformer by themselves: one that fills in hidden words, and one that goes on writing.

Devlin et al. (2019), "BERT", arXiv 1810.04805: the encoder, which sees both sides of a word. Radford et al. (2018),
"Improving language understanding by generative pre-training": the decoder without a source, which sees what is before.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.attention import KVCache, MultiHead, causal, padding, window
from regard.errors import UsageError
from regard.models.layers import TokenEmbedding
from regard.models.transformer import Norm, Residual, TransformerEncoder, TransformerEncoderLayer

Vectors = Float[Tensor, "rows length dim"]


Lengths = Int[Tensor, " rows"]


class ConvBlock(nn.Module):
    """Each position from its neighbors.

        y_t = W relu(sum_j K_j x_(t+j) + b) + c          j from -(kernel - 1) / 2 to (kernel - 1) / 2

    >>> ConvBlock(embed_dim=12)(torch.randn(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(self, embed_dim: int, kernel_size: int = 3):
        super().__init__()
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise UsageError(
                f"Convolution: kernel must be odd, so that it has a middle, but it is {kernel_size}"
            )
        self.conv = nn.Conv1d(embed_dim, embed_dim, kernel_size, padding=kernel_size // 2)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Vectors, lengths: Lengths | None = None) -> Vectors:
        if lengths is not None:  # what fills up a row is a neighbor of its last vector, and must be nothing
            x = x * _length_mask(x, lengths)
        return self.out_proj(torch.relu(self.conv(x.transpose(1, 2))).transpose(1, 2))


class RNNBlock(nn.Module):
    """Each position from all before it, one after the other: a GRU, read in one direction or in both.

        h_t = GRU(x_t, h_(t-1)),    y_t = W h_t + c

    >>> RNNBlock(embed_dim=12)(torch.randn(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int | None = None,
        *,
        bidirectional: bool = False,
        rnn_type: type = nn.GRU,
    ):
        super().__init__()
        hidden_dim = hidden_dim or 2 * embed_dim // 3
        self.rnn = rnn_type(embed_dim, hidden_dim, batch_first=True, bidirectional=bidirectional)
        self.out_proj = nn.Linear(hidden_dim * (1 + bidirectional), embed_dim)

    def forward(self, x: Vectors, lengths: Lengths | None = None) -> Vectors:
        if lengths is None:
            return self.out_proj(self.rnn(x)[0])
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x.shape[1])[0]
        return self.out_proj(states)


class SelfAttentionBlock(nn.Module):
    """Each position from all positions at once.

    >>> SelfAttentionBlock(embed_dim=12, num_heads=4)(torch.randn(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(self, embed_dim: int, num_heads: int = 4):
        super().__init__()
        self.self_attn = MultiHead(embed_dim, num_heads)

    def forward(self, x: Vectors, lengths: Lengths | None = None) -> Vectors:
        return self.self_attn(x, mask=None if lengths is None else padding(lengths)).context


class LocalAttentionBlock(nn.Module):
    """Each position from those within a radius: the restricted attention of the table.

    >>> LocalAttentionBlock(embed_dim=12, num_heads=4, radius=2)(torch.randn(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(self, embed_dim: int, num_heads: int = 4, radius: int = 16):
        super().__init__()
        self.self_attn, self.radius = MultiHead(embed_dim, num_heads), radius

    def forward(self, x: Vectors, lengths: Lengths | None = None) -> Vectors:
        near = window(self.radius, self.radius)
        return self.self_attn(x, mask=near if lengths is None else near & padding(lengths)).context


def _length_mask(x: Vectors, lengths: Lengths) -> Float[Tensor, "rows length 1"]:
    """1 where a row has a vector, 0 where it is filled up."""
    places = torch.arange(x.shape[1], device=x.device)
    return (places < lengths[:, None].to(x.device))[..., None].to(x.dtype)


SequenceLengths = Int[Tensor, " rows"]


HiddenStates = Float[Tensor, "rows length dim"]


class HybridEncoder(nn.Module):
    """Vectors of words, and layers over them; each adds to what came from below.

        x_0 = embedding of the words, with their positions
        x_i = x_(i-1) + layer_i(norm(x_(i-1)))

    >>> model = HybridEncoder(vocab_size=20, embed_dim=12, layers=[ConvLayer(12), SelfAttentionLayer(12, num_heads=2), RNNLayer(12)])
    >>> model(torch.randint(4, 20, (2, 5)), torch.tensor([5, 3])).shape
    torch.Size([2, 5, 12])
    """

    def __init__(self, vocab_size: int, embed_dim: int, layers: Iterable[nn.Module], dropout: float = 0.0):
        super().__init__()
        self.embed = TokenEmbedding(vocab_size, embed_dim, dropout)
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(embed_dim)

    def forward(self, tokens: Int[Tensor, "rows length"], lengths: SequenceLengths) -> HiddenStates:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, lengths)
        return self.norm(x)


class SelfAttentionLayer(nn.Module):
    """A layer of self-attention and the small network that goes with it: that of the Transformer's encoder."""

    def __init__(
        self, embed_dim: int, *, num_heads: int = 4, ffn_dim: int | None = None, dropout: float = 0.0
    ):
        super().__init__()
        make = lambda: MultiHead(embed_dim, num_heads)  # noqa: E731
        self.layer = TransformerEncoderLayer(embed_dim, ffn_dim or 4 * embed_dim, dropout, "pre", make)

    def forward(self, x: HiddenStates, lengths: SequenceLengths) -> HiddenStates:
        return self.layer(x, padding(lengths))


class ConvLayer(nn.Module):
    """A layer of convolution."""

    def __init__(self, embed_dim: int, *, kernel_size: int = 3, dropout: float = 0.0):
        super().__init__()
        self.layer, self.add = ConvBlock(embed_dim, kernel_size), Residual(embed_dim, dropout, "pre")

    def forward(self, x: HiddenStates, lengths: SequenceLengths) -> HiddenStates:
        return self.add(x, lambda x: self.layer(x, lengths))


class RNNLayer(nn.Module):
    """A recurrent layer that reads in both directions."""

    def __init__(self, embed_dim: int, *, rnn_type: type[nn.Module] = nn.GRU, dropout: float = 0.0):
        super().__init__()
        self.layer = RNNBlock(embed_dim, embed_dim // 2, bidirectional=True, rnn_type=rnn_type)
        self.add = Residual(embed_dim, dropout, "pre")

    def forward(self, x: HiddenStates, lengths: SequenceLengths) -> HiddenStates:
        return self.add(x, lambda x: self.layer(x, lengths))


class MaskedLM(nn.Module):
    """Reads words of which some are hidden, and says what they were.

        scores of word t = E x_t + b          x = reader(words), E the reader's embeddings

    The paper learns its positions and takes GELU and one more layer before the scores; these are those of the
    Transformer here. It has no second sentence to judge, which was found to help little (Liu et al. 2019, arXiv
    1907.11692).

    >>> from regard.models.language_models import SelfAttentionLayer
    >>> model = MaskedLM(HybridEncoder(vocab_size=20, embed_dim=8, layers=[SelfAttentionLayer(8, num_heads=2)]))
    >>> model.lm_head(model(torch.randint(4, 20, (2, 5)), torch.tensor([5, 3]))).shape
    torch.Size([2, 5, 20])
    """

    def __init__(self, encoder: HybridEncoder):
        super().__init__()
        words = encoder.embed.words.weight
        self.encoder = encoder
        self.lm_head = nn.Linear(words.shape[1], words.shape[0])
        self.lm_head.weight = words
        nn.init.zeros_(self.lm_head.bias)

    def forward(
        self, tokens: Int[Tensor, "rows length"], lengths: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows length dim"]:
        """What `output` turns into the scores of the word at each place."""
        return self.encoder(tokens, lengths)


class CausalLM(nn.Module):
    """Says after each word which comes next, and so writes.

    >>> model = CausalLM(vocab_size=20, embed_dim=8, num_heads=2, num_layers=1, ffn_dim=16)
    >>> model.lm_head(model(torch.randint(4, 20, (2, 5)))).shape
    torch.Size([2, 5, 20])
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        embed_dim: int = 256,
        num_heads: int = 4,
        num_layers: int = 4,
        ffn_dim: int | None = None,
        dropout: float = 0.1,
        norm: Norm = "pre",
    ):
        super().__init__()
        make = lambda: MultiHead(embed_dim, num_heads)  # noqa: E731
        self.embed = TokenEmbedding(vocab_size, embed_dim, dropout)
        self.decoder = TransformerEncoder(
            num_layers, embed_dim, ffn_dim or 4 * embed_dim, dropout, norm, make
        )
        self.lm_head = nn.Linear(embed_dim, vocab_size, bias=False)
        self.lm_head.weight = self.embed.words.weight

    def forward(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length dim"]:
        """What `output` turns into the scores of the next word; what fills up a row comes after its words."""
        return self.decoder(self.embed(tokens), causal())

    def start_decoding(
        self, source: Int[Tensor, "rows length"], source_lengths: Int[Tensor, " rows"]
    ) -> CausalDecoderState:
        """Read beginnings, all of one length, and go on word by word."""
        if bool((source_lengths != source.shape[1]).any()):
            raise UsageError(
                f"LanguageModel.begin takes beginnings of one length, got {sorted(set(source_lengths.tolist()))};"
                " go on with those of each length by themselves"
            )
        return CausalDecoderState(self, source)


class CausalDecoderState:
    """Texts being written, one word of each row at a time; a word costs one query a layer."""

    def __init__(self, model: CausalLM, prefix: Int[Tensor, "rows length"]):
        self.model, self.caches = model, [KVCache() for _ in model.decoder.layers]
        self.pending_token: Tensor | None = prefix[:, -1]
        if prefix.shape[1] > 1:
            self._run_decoder(prefix[:, :-1])

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows words"]:
        """The scores of the next word of each row; the first time after its beginning, whatever is given."""
        tokens, self.pending_token = tokens if self.pending_token is None else self.pending_token, None
        return self.model.lm_head(self._run_decoder(tokens[:, None])[:, -1])

    def reorder(self, rows: Int[Tensor, " new"]) -> None:
        """Go on with these rows; one may be taken several times."""
        self.pending_token = None if self.pending_token is None else self.pending_token[rows]
        for cache in self.caches:
            cache.reorder(rows)

    def _run_decoder(self, tokens: Int[Tensor, "rows new"]) -> Float[Tensor, "rows new dim"]:
        x = self.model.embed(tokens, offset=len(self.caches[0]))
        return self.model.decoder(x, causal(), self.caches)
