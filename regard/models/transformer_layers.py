"""The two stacks of the Transformer and their layers.

Vaswani et al. (2017), "Attention is all you need", arXiv 1706.03762, section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import AttentionOutput, KVCache, Mask, MultiHead, causal
from regard.attention.module import Device, Dtype, FactoryKwargs, ResettableModule
from regard.errors import UsageError
from regard.models.layers import FastDropout, FeedForward, MakeModule

__all__ = [
    "MakeAttention", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer",
]  # fmt: skip

MakeAttention = Callable[[], MultiHead]
MaskLike = Mask | Tensor | None
Vectors = Float[Tensor, "batch seq_len embed_dim"]
Target = Float[Tensor, "batch tgt_len embed_dim"]
Memory = Float[Tensor, "batch src_len embed_dim"]


class TransformerEncoder(ResettableModule):
    """A stack of self-attention layers.

    Args:
        embed_dim: size of the vectors
        num_heads: attention heads of each layer
        num_layers: number of layers
        ffn_dim, dropout, norm_first, make_self_attn, make_feed_forward, make_norm, device, dtype: as in
            `TransformerEncoderLayer`

    Shape: (batch, seq_len, embed_dim) -> (batch, seq_len, embed_dim)

    Example:
        >>> encoder = TransformerEncoder(16, 2, num_layers=2, ffn_dim=32)
        >>> encoder(torch.randn(2, 5, 16), padding(torch.tensor([5, 3]))).shape
        torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_layers: int = 6,
        ffn_dim: int = 2048,
        dropout: float = 0.1,
        norm_first: bool = False,
        make_self_attn: MakeAttention | None = None,
        make_feed_forward: MakeModule | None = None,
        make_norm: MakeModule | None = None,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        options = {"ffn_dim": ffn_dim, "dropout": dropout, "norm_first": norm_first, **factory}
        options |= {"make_self_attn": make_self_attn, "make_feed_forward": make_feed_forward, "make_norm": make_norm}
        self.layers = nn.ModuleList(TransformerEncoderLayer(embed_dim, num_heads, **options) for _ in range(num_layers))
        make_norm = make_norm or (lambda: nn.LayerNorm(embed_dim, **factory))
        self.norm = make_norm() if norm_first else nn.Identity()

    def forward(self, x: Vectors, mask: MaskLike = None, caches: Sequence[KVCache] | None = None) -> Vectors:
        """Encode x; with a causal mask and a cache per layer, x continues what the caches hold."""
        for index, layer in enumerate(self.layers):
            x = layer(x, mask, None if caches is None else caches[index])
        return self.norm(x)


class _ResidualLayer(ResettableModule):
    """Shared by encoder and decoder layers: a sublayer with dropout, a residual connection and layer norm."""

    repr_settings = ("norm_first",)
    dropout: FastDropout
    norm_first: bool

    def _residual(self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """norm(x + sublayer(x)), or x + sublayer(norm(x)) with `norm_first`."""
        if self.norm_first:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))


class TransformerEncoderLayer(_ResidualLayer):
    """Self-attention and a feed-forward network, each with a residual connection and layer norm.

        x = norm1(x + self_attn(x));    x = norm2(x + feed_forward(x))

    Args:
        embed_dim: size of the vectors
        num_heads: attention heads
        ffn_dim: inner size of the feed-forward network
        dropout: probability of dropout on the output of each sublayer
        norm_first: normalize before each sublayer, not after it
        make_self_attn: returns the self-attention; `MultiHead(embed_dim, num_heads)` if None
        make_feed_forward: returns the feed-forward network; `FeedForward(embed_dim, ffn_dim)` if None
        make_norm: returns a normalization; `nn.LayerNorm(embed_dim)` if None
        device, dtype: of the parameters, as in PyTorch

    Shape: (batch, seq_len, embed_dim) -> (batch, seq_len, embed_dim)

    Example:
        >>> TransformerEncoderLayer(16, 2, ffn_dim=32)(torch.randn(2, 5, 16)).shape
        torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        ffn_dim: int = 2048,
        dropout: float = 0.1,
        norm_first: bool = False,
        make_self_attn: MakeAttention | None = None,
        make_feed_forward: MakeModule | None = None,
        make_norm: MakeModule | None = None,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        make = make_self_attn or (lambda: MultiHead(embed_dim, num_heads, **factory))
        self.self_attn = make()
        make_feed_forward = make_feed_forward or (lambda: FeedForward(embed_dim, ffn_dim, **factory))
        self.feed_forward = make_feed_forward()
        make_norm = make_norm or (lambda: nn.LayerNorm(embed_dim, **factory))
        self.norm1, self.norm2 = make_norm(), make_norm()
        self.dropout, self.norm_first = FastDropout(dropout), norm_first

    def forward(self, x: Tensor, mask: MaskLike = None, cache: KVCache | None = None) -> Tensor:
        x = self._residual(x, self.norm1, lambda x: self.self_attn(x, mask=mask, cache=cache).context)
        return self._residual(x, self.norm2, self.feed_forward)


class TransformerDecoder(ResettableModule):
    """A stack of layers with causal self-attention and cross-attention to encoder output.

    Args:
        embed_dim: size of the vectors
        num_heads: attention heads of each layer
        num_layers: number of layers
        ffn_dim, dropout, norm_first, make_self_attn, make_cross_attn, make_feed_forward, make_norm, device, dtype: as
            in `TransformerDecoderLayer`

    Shape: x (batch, tgt_len, embed_dim), memory (batch, src_len, embed_dim) -> (batch, tgt_len, embed_dim) and one
        `AttentionOutput` per layer

    Example:
        >>> decoder = TransformerDecoder(16, 2, num_layers=2, ffn_dim=32)
        >>> hidden, outputs = decoder(torch.randn(2, 7, 16), torch.randn(2, 5, 16))
        >>> hidden.shape, outputs[0].weights.shape
        (torch.Size([2, 7, 16]), torch.Size([2, 2, 7, 5]))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_layers: int = 6,
        ffn_dim: int = 2048,
        dropout: float = 0.1,
        norm_first: bool = False,
        make_self_attn: MakeAttention | None = None,
        make_cross_attn: MakeAttention | None = None,
        make_feed_forward: MakeModule | None = None,
        make_norm: MakeModule | None = None,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        options = {"ffn_dim": ffn_dim, "dropout": dropout, "norm_first": norm_first, **factory}
        options |= {"make_self_attn": make_self_attn, "make_cross_attn": make_cross_attn}
        options |= {"make_feed_forward": make_feed_forward, "make_norm": make_norm}
        self.layers = nn.ModuleList(TransformerDecoderLayer(embed_dim, num_heads, **options) for _ in range(num_layers))
        make_norm = make_norm or (lambda: nn.LayerNorm(embed_dim, **factory))
        self.norm = make_norm() if norm_first else nn.Identity()

    def forward(self, x: Target, memory: Memory, mask: MaskLike = None) -> tuple[Target, list[AttentionOutput]]:
        """Hidden states, and the cross-attention of each layer; `mask` is for the memory."""
        outputs = []
        for layer in self.layers:
            x, output = layer(x, lambda x, layer=layer: layer.cross_attn(x, memory, mask=mask))
            outputs.append(output)
        return self.norm(x), outputs


class TransformerDecoderLayer(_ResidualLayer):
    """Causal self-attention, cross-attention and a feed-forward network, each with residual connection and layer norm.

        x = norm1(x + self_attn(x));    x = norm2(x + cross_attn(x, memory));    x = norm3(x + feed_forward(x))

    Args:
        embed_dim: size of the vectors
        num_heads: attention heads
        ffn_dim: inner size of the feed-forward network
        dropout: probability of dropout on the output of each sublayer
        norm_first: normalize before each sublayer, not after it
        make_self_attn: returns the self-attention; `MultiHead(embed_dim, num_heads)` if None
        make_cross_attn: returns the cross-attention; `make_self_attn` if None
        make_feed_forward: returns the feed-forward network; `FeedForward(embed_dim, ffn_dim)` if None
        make_norm: returns a normalization; `nn.LayerNorm(embed_dim)` if None
        device, dtype: of the parameters, as in PyTorch

    Shape: (batch, tgt_len, embed_dim) -> (batch, tgt_len, embed_dim)

    Example:
        >>> layer, memory = TransformerDecoderLayer(16, 2, ffn_dim=32), torch.randn(2, 5, 16)
        >>> x, output = layer(torch.randn(2, 7, 16), lambda x: layer.cross_attn(x, memory))
        >>> x.shape
        torch.Size([2, 7, 16])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        ffn_dim: int = 2048,
        dropout: float = 0.1,
        norm_first: bool = False,
        make_self_attn: MakeAttention | None = None,
        make_cross_attn: MakeAttention | None = None,
        make_feed_forward: MakeModule | None = None,
        make_norm: MakeModule | None = None,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        make = make_self_attn or (lambda: MultiHead(embed_dim, num_heads, **factory))
        self.self_attn, self.cross_attn = make(), (make_cross_attn or make)()
        if any(getattr(part, "is_relative", False) for part in self.cross_attn.modules()):
            raise UsageError(
                "TransformerDecoderLayer: the score of cross-attention must not depend on distances (Rotary, Alibi,"
                " RelativeBias), because there are none between positions of two texts; pass"
                " make_cross_attn=lambda: MultiHead(embed_dim, num_heads)"
            )
        make_feed_forward = make_feed_forward or (lambda: FeedForward(embed_dim, ffn_dim, **factory))
        self.feed_forward = make_feed_forward()
        make_norm = make_norm or (lambda: nn.LayerNorm(embed_dim, **factory))
        self.norm1, self.norm2, self.norm3 = make_norm(), make_norm(), make_norm()
        self.dropout, self.norm_first = FastDropout(dropout), norm_first

    def forward(
        self, x: Tensor, cross_attend: Callable[[Tensor], AttentionOutput], cache: KVCache | None = None
    ) -> tuple[Tensor, AttentionOutput]:
        """`cross_attend` maps queries to attention over the memory, whose keys may be projected once for all steps."""
        outputs: list[AttentionOutput] = []

        def attend_to_memory(x: Tensor) -> Tensor:
            outputs.append(cross_attend(x))
            return outputs[0].context

        x = self._residual(x, self.norm1, lambda x: self.self_attn(x, mask=causal(), cache=cache).context)
        x = self._residual(x, self.norm2, attend_to_memory)
        return self._residual(x, self.norm3, self.feed_forward), outputs[0]
