"""The Transformer.

Vaswani et al. (2017), "Attention is all you need", arXiv 1706.03762. Top to bottom: the model (section 3), decoding
step by step. The stacks (3.1) are in `regard.models.transformer_layers`, feed-forward networks and embeddings (3.3,
3.4) in `regard.models.layers`; attention (3.2) is `regard.attention.MultiHead`, positions (3.5) are `Sinusoidal`.
"""

from __future__ import annotations

from typing import Literal, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import AttentionOutput, KVCache, MultiHead, padding
from regard.attention.module import Device, Dtype, FactoryKwargs, ResettableModule
from regard.errors import UsageError
from regard.models.layers import (
    Lengths,
    Logits,
    MakeModule,
    MakePositions,
    SourceTokens,
    TargetTokens,
    TokenEmbedding,
    untie,
)
from regard.models.transformer_fast import FusedDecoderState, fuse_decoder
from regard.models.transformer_layers import MakeAttention, TransformerDecoder, TransformerEncoder

__all__ = ["TieEmbeddings", "Transformer", "TransformerDecoderState"]

TieEmbeddings = Literal["none", "output", "inputs", "all"]
Hidden = Float[Tensor, "batch tgt_len embed_dim"]
Weights = list[Float[Tensor, "batch heads tgt_len-1 src_len"]]


class Transformer(ResettableModule):
    """Encoder-decoder Transformer. The defaults are the paper's base model.

    Args:
        src_vocab_size: number of source tokens
        tgt_vocab_size: number of target tokens
        embed_dim: size of a token's vector and of all hidden states
        num_heads: attention heads of each layer
        num_encoder_layers: layers of the encoder
        num_decoder_layers: layers of the decoder; `num_encoder_layers` if None
        ffn_dim: inner size of the feed-forward networks
        dropout: probability of dropout on embeddings and on the output of each sublayer
        norm_first: normalize before each sublayer, not after it (Xiong et al. 2020, arXiv 2002.04745)
        tie_embeddings: "output" shares the target embeddings with `lm_head` (Press and Wolf 2017), "inputs" with the
            source embeddings, "all" with both, as published; the last two need one vocabulary for both languages
        make_self_attn: returns the self-attention of a layer; `MultiHead(embed_dim, num_heads)` if None
        make_decoder_self_attn: returns that of a decoder layer; `make_self_attn` if None
        make_cross_attn: returns the cross-attention of a decoder layer; as its self-attention if None. Its score must
            not depend on distances, because there are none between positions of two texts
        make_positions: returns the module that adds positions to embeddings, such as `Learned(512, embed_dim)`, or
            None for no positions, as with a score that depends on distances; `Sinusoidal(embed_dim)` if None
        make_feed_forward: returns the feed-forward network of a layer; `FeedForward(embed_dim, ffn_dim)` if None
        make_norm: returns a normalization; `nn.LayerNorm(embed_dim)` if None
        make_embed_norm: returns the normalization of embeddings, as in BART; without it, there is none. With it, both
            languages have positions and norms of their own, also if their embeddings are shared
        embed_scale: factor of the embeddings before positions are added; sqrt(embed_dim) if None
        output_bias: whether `lm_head` has a bias
        device, dtype: of the parameters, as in PyTorch; what the functions `make_*` return has its own

    Shape: source (batch, src_len), source_lengths (batch,), target (batch, tgt_len) -> (batch, tgt_len, tgt_vocab)

    Example:
        >>> model = Transformer(11, 13, embed_dim=16, num_heads=2, num_encoder_layers=2, ffn_dim=32)
        >>> source, target = torch.randint(4, 11, (2, 5)), torch.randint(4, 13, (2, 7))
        >>> model(source, torch.tensor([5, 3]), target).shape
        torch.Size([2, 7, 13])
    """

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        *,
        embed_dim: int = 512,
        num_heads: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int | None = None,
        ffn_dim: int = 2048,
        dropout: float = 0.1,
        norm_first: bool = False,
        tie_embeddings: TieEmbeddings = "none",
        make_self_attn: MakeAttention | None = None,
        make_decoder_self_attn: MakeAttention | None = None,
        make_cross_attn: MakeAttention | None = None,
        make_positions: MakePositions | None = None,
        make_feed_forward: MakeModule | None = None,
        make_norm: MakeModule | None = None,
        make_embed_norm: MakeModule | None = None,
        embed_scale: float | None = None,
        output_bias: bool = False,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        if tie_embeddings in ("inputs", "all") and src_vocab_size != tgt_vocab_size:
            raise UsageError(
                f"Transformer: tie_embeddings={tie_embeddings!r} needs one vocabulary for both languages, got sizes"
                f" {src_vocab_size} and {tgt_vocab_size}"
            )
        self.tie_embeddings = tie_embeddings
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        options = {"ffn_dim": ffn_dim, "dropout": dropout, "norm_first": norm_first, **factory}
        options |= {"make_self_attn": make_self_attn, "make_feed_forward": make_feed_forward, "make_norm": make_norm}
        num_decoder_layers = num_decoder_layers or num_encoder_layers
        self.encoder = TransformerEncoder(embed_dim, num_heads, num_layers=num_encoder_layers, **options)
        options |= {"make_self_attn": make_decoder_self_attn or make_self_attn, "make_cross_attn": make_cross_attn}
        self.decoder = TransformerDecoder(embed_dim, num_heads, num_layers=num_decoder_layers, **options)
        embed_options = {"make_positions": make_positions, "make_norm": make_embed_norm, **factory}
        embed_options |= {"scale": embed_scale}
        self.src_embed = self.tgt_embed = TokenEmbedding(src_vocab_size, embed_dim, dropout, **embed_options)
        if tie_embeddings not in ("inputs", "all") or make_embed_norm is not None:
            self.tgt_embed = TokenEmbedding(tgt_vocab_size, embed_dim, dropout, **embed_options)
        self.lm_head = nn.Linear(embed_dim, tgt_vocab_size, bias=output_bias, **factory)
        self._init_parameters()

    def reset_parameters(self) -> None:
        untie(self.lm_head, self.tgt_embed)
        super().reset_parameters()

    def _init_parameters(self) -> None:
        if self.lm_head.bias is not None:
            nn.init.zeros_(self.lm_head.bias)
        if self.tie_embeddings in ("none", "inputs"):
            nn.init.xavier_uniform_(self.lm_head.weight)
        else:
            self.lm_head.weight = self.tgt_embed.weight
        if self.tie_embeddings in ("inputs", "all"):
            self.src_embed.weight = self.tgt_embed.weight

    def forward(self, source: SourceTokens, source_lengths: Lengths, target: TargetTokens) -> Logits:
        """Logits of the next token after each target token."""
        return self.lm_head(self.forward_hidden(source, source_lengths, target))

    def forward_hidden(self, source: SourceTokens, source_lengths: Lengths, target: TargetTokens) -> Hidden:
        """The input of `lm_head`, for losses that compute logits in chunks."""
        return self._decode(source, source_lengths, target)[0]

    def attention_weights(self, source: SourceTokens, source_lengths: Lengths, target: TargetTokens) -> Weights:
        """Cross-attention weights of `target[:, 1:]` over the source, one tensor per decoder layer."""
        return [output.weights for output in self._decode(source, source_lengths, target[:, :-1])[1]]

    def forward_with_weights(
        self, source: SourceTokens, source_lengths: Lengths, target: TargetTokens
    ) -> tuple[Logits, list[Float[Tensor, "batch heads tgt_len src_len"]]]:
        """Logits, and the cross-attention weights of each decoder layer, from one pass."""
        hidden, outputs = self._decode(source, source_lengths, target)
        return self.lm_head(hidden), [output.weights for output in outputs]

    def start_decoding(
        self, source: SourceTokens, source_lengths: Lengths
    ) -> TransformerDecoderState | FusedDecoderState:
        """Encode the source once and return the state of a decoder that takes one token per step.

        Without gradients, hooks and watchers it is a `FusedDecoderState`, which computes the same faster.
        """
        memory, fused = self.encode(source, source_lengths), fuse_decoder(self)
        if fused is None:
            return TransformerDecoderState(self, memory, source_lengths)
        return FusedDecoderState(fused, memory, source_lengths)

    def encode(self, source: SourceTokens, source_lengths: Lengths) -> Float[Tensor, "batch src_len embed_dim"]:
        """Encoder output."""
        return self.encoder(self.src_embed(source), padding(source_lengths))

    def _decode(self, source: Tensor, source_lengths: Tensor, target: Tensor) -> tuple[Tensor, list[AttentionOutput]]:
        # Target padding comes after the tokens, so a causal mask already hides it from them.
        memory = self.encode(source, source_lengths)
        return self.decoder(self.tgt_embed(target), memory, padding(source_lengths))


class TransformerDecoderState:
    """State of a Transformer decoder that takes one token of each row per step; a step computes one query per layer.

    Args:
        model: the model
        memory: encoder output
        lengths: numbers of source tokens

    Example:
        >>> model = Transformer(11, 13, embed_dim=16, num_heads=2, num_encoder_layers=2, ffn_dim=32).eval()
        >>> source, lengths = torch.randint(4, 11, (2, 5)), torch.tensor([5, 3])
        >>> decoder = TransformerDecoderState(model, model.encode(source, lengths), lengths)
        >>> decoder.step(torch.tensor([1, 1])).shape, decoder.weights().shape
        (torch.Size([2, 13]), torch.Size([2, 5]))
    """

    def __init__(self, model: Transformer, memory: Tensor, lengths: Tensor):
        self.model, self.lengths = model, lengths
        self.source_rows = torch.arange(len(lengths), device=lengths.device)  # which source each row translates
        cross_attns = [cast(MultiHead, layer.cross_attn) for layer in model.decoder.layers]
        self.caches = [KVCache() for _ in cross_attns]
        self.projected_memory = [attn.precompute(memory, mask=padding(lengths)) for attn in cross_attns]
        self.attention: list[AttentionOutput] = []

    def step(self, tokens: Int[Tensor, " batch"]) -> Float[Tensor, "batch vocab"]:
        """Logits of the next token of each row, given the token before it."""
        model = self.model
        x = model.tgt_embed(tokens[:, None], offset=len(self.caches[0]))
        self.attention = []
        for layer, memory, cache in zip(model.decoder.layers, self.projected_memory, self.caches, strict=True):
            x, output = layer(x, memory, cache)
            self.attention.append(output)
        return model.lm_head(model.decoder.norm(x)).squeeze(1)

    def weights(self) -> Float[Tensor, "batch src_len"]:
        """Cross-attention weights of the last step, averaged over layers and heads."""
        return torch.stack([output.weights.mean(1).squeeze(1) for output in self.attention]).mean(0)

    def reorder(self, rows: Int[Tensor, " new_batch"]) -> None:
        """Continue with these rows; a row may be repeated or left out."""
        for cache in self.caches:
            cache.reorder(rows)
        before, self.source_rows = self.source_rows, self.source_rows[rows]
        if torch.equal(before, self.source_rows):  # hypotheses of a beam usually stay within their sentence
            return
        self.lengths = self.lengths[rows]
        self.projected_memory = [memory.reorder(rows, padding(self.lengths)) for memory in self.projected_memory]
