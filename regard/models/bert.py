"""BERT.

Devlin et al. (2019), "BERT: Pre-training of deep bidirectional Transformers for language understanding", arXiv
1810.04805; RoBERTa, Liu et al. (2019), arXiv 1907.11692, has the same layers.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Learned, padding
from regard.attention.module import Device, Dtype, FactoryKwargs, ResettableModule
from regard.errors import require_choice
from regard.models.layers import ACTIVATIONS, FastDropout, FeedForward, Lengths, TokenEmbedding, untie
from regard.models.transformer_layers import TransformerEncoder

__all__ = ["Bert", "BertForMaskedLM"]

Tokens = Int[Tensor, "batch seq_len"]
Vectors = Float[Tensor, "batch seq_len embed_dim"]


class Bert(ResettableModule):
    """Transformer encoder over tokens, learned positions and segments.

        x = encoder(norm(embed(token) + position + segment))

    Args:
        vocab_size: number of tokens
        embed_dim: size of the vectors
        num_heads: attention heads of each layer
        num_layers: number of layers
        ffn_dim: inner size of the feed-forward networks; `4 * embed_dim` if None
        max_positions: the longest text
        num_segments: kinds of segments, such as the two texts of a pair
        activation: of the feed-forward networks
        norm_eps: added to the variance in layer norms
        dropout: probability of dropout on embeddings and on the output of each sublayer
        has_pooler: whether `pool` has weights
        device, dtype: of the parameters, as in PyTorch

    Shape: tokens (batch, seq_len), lengths (batch,), segments (batch, seq_len) -> (batch, seq_len, embed_dim)

    Example:
        >>> model = Bert(20, embed_dim=8, num_heads=2, num_layers=1, max_positions=10)
        >>> model(torch.randint(4, 20, (2, 5)), torch.tensor([5, 3])).shape
        torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        embed_dim: int = 768,
        num_heads: int = 12,
        num_layers: int = 12,
        ffn_dim: int | None = None,
        max_positions: int = 512,
        num_segments: int = 2,
        activation: str = "gelu",
        norm_eps: float = 1e-12,
        dropout: float = 0.1,
        has_pooler: bool = True,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        ffn_dim, self.activation, self.max_positions = ffn_dim or 4 * embed_dim, activation, max_positions
        self.embed = TokenEmbedding(
            vocab_size,
            embed_dim,
            scale=1.0,
            make_positions=lambda: Learned(max_positions, embed_dim, **factory),
            **factory,
        )
        self.segment_embed = nn.Embedding(num_segments, embed_dim, **factory)
        self.norm = nn.LayerNorm(embed_dim, norm_eps, **factory)
        self.dropout = FastDropout(dropout)
        self.encoder = TransformerEncoder(
            embed_dim,
            num_heads,
            num_layers=num_layers,
            dropout=dropout,
            make_feed_forward=lambda: FeedForward(embed_dim, ffn_dim, activation=activation, **factory),
            make_norm=lambda: nn.LayerNorm(embed_dim, norm_eps, **factory),
            **factory,
        )
        self.pooler = nn.Linear(embed_dim, embed_dim, **factory) if has_pooler else None

    def forward(self, tokens: Tokens, lengths: Lengths, segments: Tokens | None = None) -> Vectors:
        """Hidden states; all tokens are in segment 0 without `segments`."""
        segments = torch.zeros_like(tokens) if segments is None else segments
        x = self.dropout(self.norm(self.embed(tokens) + self.segment_embed(segments)))
        return self.encoder(x, padding(lengths))

    def pool(self, hidden: Vectors) -> Float[Tensor, "batch embed_dim"]:
        """One vector of each text: tanh(W x + b) of its first token, or x itself without a pooler.

        Args:
            hidden: from `forward`
        """
        return hidden[:, 0] if self.pooler is None else torch.tanh(self.pooler(hidden[:, 0]))

    @staticmethod
    def average(hidden: Vectors, lengths: Lengths) -> Float[Tensor, "batch embed_dim"]:
        """The mean of the tokens of each text, as sentence embeddings are computed.

        Args:
            hidden: from `forward`
            lengths: numbers of tokens
        """
        is_token = torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None]
        return (hidden * is_token[..., None]).sum(1) / lengths[:, None]


class BertForMaskedLM(ResettableModule):
    """A `Bert` that predicts the tokens at masked positions.

        logits of token t = E norm(activation(W x_t + b)) + c          E the encoder's embeddings

    Args:
        encoder: the encoder, whose embeddings are shared with `lm_head`
        activation: of the layer before the logits
        norm_eps: added to the variance in its layer norm
        device, dtype: of the parameters, as in PyTorch; `encoder` has its own

    Shape: tokens (batch, seq_len), lengths (batch,) -> (batch, seq_len, vocab_size)

    Example:
        >>> model = BertForMaskedLM(Bert(20, embed_dim=8, num_heads=2, num_layers=1, max_positions=10))
        >>> model(torch.randint(4, 20, (2, 5)), torch.tensor([5, 3])).shape
        torch.Size([2, 5, 20])
    """

    def __init__(
        self,
        encoder: Bert,
        *,
        activation: str = "gelu",
        norm_eps: float = 1e-12,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        require_choice("activation", activation, ACTIVATIONS, "BertForMaskedLM")
        vocab_size, embed_dim = encoder.embed.weight.shape
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        self.encoder, self.activation = encoder, activation
        self.transform = nn.Linear(embed_dim, embed_dim, **factory)
        self.norm = nn.LayerNorm(embed_dim, norm_eps, **factory)
        self.lm_head = nn.Linear(embed_dim, vocab_size, **factory)
        self._init_parameters()

    def reset_parameters(self) -> None:
        untie(self.lm_head, self.encoder.embed)
        super().reset_parameters()

    def _init_parameters(self) -> None:
        self.lm_head.weight = self.encoder.embed.weight
        nn.init.zeros_(self.lm_head.bias)

    def forward(
        self, tokens: Tokens, lengths: Lengths, segments: Tokens | None = None
    ) -> Float[Tensor, "batch seq_len vocab"]:
        """Logits of the token at each position."""
        return self.lm_head(self.forward_hidden(tokens, lengths, segments))

    def forward_hidden(self, tokens: Tokens, lengths: Lengths, segments: Tokens | None = None) -> Vectors:
        """The input of `lm_head`, for the logits of some positions only."""
        hidden = self.transform(self.encoder(tokens, lengths, segments))
        return self.norm(ACTIVATIONS[self.activation](hidden))
