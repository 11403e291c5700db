"""Encoders of text from self-attention, convolution and recurrence in any order.

`HybridEncoder` stacks layers; the blocks are those that Vaswani et al. (2017), arXiv 1706.03762, table 1, compare, with
about 4 d^2 parameters each:

    ConvBlock             3 d^2 for a kernel of size 3, d^2 for the output
    RNNBlock              10/3 d^2 for a GRU of size 2/3 d, 2/3 d^2 for the output
    SelfAttentionBlock    d^2 each for query, key, value and output
    LocalAttentionBlock   the same
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import MultiHead, padding, window
from regard.attention.module import Device, Dtype, FactoryKwargs, ResettableModule, reset_modules
from regard.errors import UsageError
from regard.models.layers import FastDropout, Lengths, TokenEmbedding
from regard.models.rnn_seq2seq import run_rnn
from regard.models.transformer_layers import TransformerEncoderLayer, _ResidualLayer

__all__ = [
    "ConvBlock", "ConvLayer", "HybridEncoder", "LocalAttentionBlock", "RNNBlock", "RNNLayer", "SelfAttentionBlock",
    "SelfAttentionLayer",
]  # fmt: skip

Vectors = Float[Tensor, "batch seq_len embed_dim"]


class HybridEncoder(ResettableModule):
    """Token embeddings with positions, and a stack of self-attention, convolutional and recurrent layers.

        x_0 = embed(tokens)
        x_i = x_{i-1} + layer_i(norm(x_{i-1}))

    Args:
        vocab_size: number of tokens
        embed_dim: size of the vectors
        layers: modules called with (x, lengths), such as `SelfAttentionLayer`, `ConvLayer` and `RNNLayer`
        dropout: probability of dropout on the embeddings
        device, dtype: of the embeddings and the last norm, as in PyTorch; `layers` have their own

    Shape: tokens (batch, seq_len), lengths (batch,) -> (batch, seq_len, embed_dim)

    Example:
        >>> model = HybridEncoder(20, 12, [ConvLayer(12), SelfAttentionLayer(12, 2), RNNLayer(12)])
        >>> model(torch.randint(4, 20, (2, 5)), torch.tensor([5, 3])).shape
        torch.Size([2, 5, 12])
    """

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        layers: Iterable[nn.Module],
        *,
        dropout: float = 0.0,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        self.embed = TokenEmbedding(vocab_size, embed_dim, dropout, device=device, dtype=dtype)
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(embed_dim, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        reset_modules(self.layers, self.embed, self.norm)

    def forward(self, tokens: Int[Tensor, "batch seq_len"], lengths: Lengths) -> Vectors:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, lengths)
        return self.norm(x)


class SelfAttentionLayer(TransformerEncoderLayer):
    """A pre-norm Transformer encoder layer for a `HybridEncoder`.

    Args:
        embed_dim: size of the vectors
        num_heads: attention heads
        ffn_dim: inner size of the feed-forward network; `4 * embed_dim` if None
        dropout: probability of dropout on the output of each sublayer
        device, dtype: of the parameters, as in PyTorch

    Shape: x (batch, seq_len, embed_dim), lengths (batch,) -> (batch, seq_len, embed_dim)

    Example:
        >>> SelfAttentionLayer(12, 2)(torch.randn(2, 5, 12), torch.tensor([5, 3])).shape
        torch.Size([2, 5, 12])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int = 4,
        *,
        ffn_dim: int | None = None,
        dropout: float = 0.0,
        device: Device = None,
        dtype: Dtype = None,
    ):
        options: FactoryKwargs = {"dropout": dropout, "norm_first": True, "device": device, "dtype": dtype}
        super().__init__(embed_dim, num_heads, ffn_dim=ffn_dim or 4 * embed_dim, **options)

    def forward(self, x: Vectors, lengths: Lengths) -> Vectors:  # type: ignore[override]
        return super().forward(x, padding(lengths))


class ConvBlock(ResettableModule):
    """Each position from its neighbors, by convolution.

        y_t = W relu(sum_j K_j x_{t+j} + b) + c          j from -(kernel_size - 1) / 2 to (kernel_size - 1) / 2

    Args:
        embed_dim: size of the vectors
        kernel_size: size of the neighborhood; odd
        device, dtype: of the parameters, as in PyTorch

    Shape: x (batch, seq_len, embed_dim), lengths (batch,) or None -> (batch, seq_len, embed_dim)

    Example:
        >>> ConvBlock(12)(torch.randn(2, 5, 12)).shape
        torch.Size([2, 5, 12])
    """

    def __init__(self, embed_dim: int, kernel_size: int = 3, *, device: Device = None, dtype: Dtype = None):
        super().__init__()
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise UsageError(f"ConvBlock: invalid value {kernel_size} for kernel_size: must be odd")
        self.conv = nn.Conv1d(embed_dim, embed_dim, kernel_size, padding=kernel_size // 2, device=device, dtype=dtype)
        self.out_proj = nn.Linear(embed_dim, embed_dim, device=device, dtype=dtype)

    def forward(self, x: Vectors, lengths: Lengths | None = None) -> Vectors:
        if lengths is not None:  # padding is a neighbor of the last position: it must be 0
            is_inside = torch.arange(x.shape[1], device=x.device) < lengths[:, None].to(x.device)
            x = x * is_inside[..., None].to(x.dtype)
        return self.out_proj(torch.relu(self.conv(x.transpose(1, 2))).transpose(1, 2))


class _PreNormLayer(_ResidualLayer):
    """Adds layer norm before a block, and dropout and a residual connection after it: x + dropout(block(norm(x)))."""

    norm: nn.LayerNorm
    norm_first = True

    def forward(self, x: Vectors, lengths: Lengths | None = None) -> Vectors:
        block = super().forward
        return self._residual(x, self.norm, lambda x: block(x, lengths))


class ConvLayer(_PreNormLayer, ConvBlock):
    """A `ConvBlock` with a residual connection and layer norm before it, for a `HybridEncoder`.

    Args:
        embed_dim: size of the vectors
        kernel_size: size of the neighborhood; odd
        dropout: probability of dropout on the output
        device, dtype: of the parameters, as in PyTorch

    Shape: x (batch, seq_len, embed_dim), lengths (batch,) -> (batch, seq_len, embed_dim)

    Example:
        >>> ConvLayer(12)(torch.randn(2, 5, 12), torch.tensor([5, 3])).shape
        torch.Size([2, 5, 12])
    """

    def __init__(
        self, embed_dim: int, kernel_size: int = 3, *, dropout: float = 0.0, device: Device = None, dtype: Dtype = None
    ):
        super().__init__(embed_dim, kernel_size, device=device, dtype=dtype)
        self.norm = nn.LayerNorm(embed_dim, device=device, dtype=dtype)
        self.dropout = FastDropout(dropout)


class RNNBlock(ResettableModule):
    """Each position from all before it, by a recurrent layer.

        h_t = rnn(x_t, h_{t-1}),    y_t = W h_t + c

    Args:
        embed_dim: size of the vectors
        hidden_dim: size of the state in each direction; two thirds of `embed_dim` if None
        bidirectional: whether to read in both directions
        rnn_type: `nn.GRU` or `nn.LSTM`
        device, dtype: of the parameters, as in PyTorch

    Shape: x (batch, seq_len, embed_dim), lengths (batch,) or None -> (batch, seq_len, embed_dim)

    Example:
        >>> RNNBlock(12)(torch.randn(2, 5, 12)).shape
        torch.Size([2, 5, 12])
    """

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int | None = None,
        *,
        bidirectional: bool = False,
        rnn_type: type[Any] = nn.GRU,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        hidden_dim = hidden_dim or 2 * embed_dim // 3
        self.rnn = rnn_type(
            embed_dim, hidden_dim, batch_first=True, bidirectional=bidirectional, device=device, dtype=dtype
        )
        self.out_proj = nn.Linear(hidden_dim * (1 + bidirectional), embed_dim, device=device, dtype=dtype)

    def forward(self, x: Vectors, lengths: Lengths | None = None) -> Vectors:
        states, _ = self.rnn(x) if lengths is None else run_rnn(self.rnn, x, lengths)
        return self.out_proj(states)


class RNNLayer(_PreNormLayer, RNNBlock):
    """A bidirectional `RNNBlock` with a residual connection and layer norm before it, for a `HybridEncoder`.

    Args:
        embed_dim: size of the vectors, half of it per direction
        rnn_type: `nn.GRU` or `nn.LSTM`
        dropout: probability of dropout on the output
        device, dtype: of the parameters, as in PyTorch

    Shape: x (batch, seq_len, embed_dim), lengths (batch,) -> (batch, seq_len, embed_dim)

    Example:
        >>> RNNLayer(12)(torch.randn(2, 5, 12), torch.tensor([5, 3])).shape
        torch.Size([2, 5, 12])
    """

    def __init__(
        self,
        embed_dim: int,
        *,
        rnn_type: type[Any] = nn.GRU,
        dropout: float = 0.0,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__(embed_dim, embed_dim // 2, bidirectional=True, rnn_type=rnn_type, device=device, dtype=dtype)
        self.norm = nn.LayerNorm(embed_dim, device=device, dtype=dtype)
        self.dropout = FastDropout(dropout)


class SelfAttentionBlock(ResettableModule):
    """Each position from all positions, by multi-head self-attention.

    Args:
        embed_dim: size of the vectors
        num_heads: attention heads
        device, dtype: of the parameters, as in PyTorch

    Shape: x (batch, seq_len, embed_dim), lengths (batch,) or None -> (batch, seq_len, embed_dim)

    Example:
        >>> SelfAttentionBlock(12, num_heads=4)(torch.randn(2, 5, 12)).shape
        torch.Size([2, 5, 12])
    """

    def __init__(self, embed_dim: int, num_heads: int = 4, *, device: Device = None, dtype: Dtype = None):
        super().__init__()
        self.self_attn = MultiHead(embed_dim, num_heads, device=device, dtype=dtype)

    def forward(self, x: Vectors, lengths: Lengths | None = None) -> Vectors:
        return self.self_attn(x, mask=None if lengths is None else padding(lengths)).context


class LocalAttentionBlock(SelfAttentionBlock):
    """Each position from those within a radius, by multi-head self-attention (restricted self-attention).

    Args:
        embed_dim: size of the vectors
        num_heads: attention heads
        radius: visible positions on each side
        device, dtype: of the parameters, as in PyTorch

    Shape: x (batch, seq_len, embed_dim), lengths (batch,) or None -> (batch, seq_len, embed_dim)

    Example:
        >>> LocalAttentionBlock(12, num_heads=4, radius=2)(torch.randn(2, 5, 12)).shape
        torch.Size([2, 5, 12])
    """

    repr_settings = ("radius",)

    def __init__(
        self, embed_dim: int, num_heads: int = 4, *, radius: int = 16, device: Device = None, dtype: Dtype = None
    ):
        super().__init__(embed_dim, num_heads, device=device, dtype=dtype)
        self.radius = radius

    def forward(self, x: Vectors, lengths: Lengths | None = None) -> Vectors:
        mask = window(self.radius, self.radius)
        return self.self_attn(x, mask=mask if lengths is None else mask & padding(lengths)).context
