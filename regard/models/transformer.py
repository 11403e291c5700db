"""The Transformer: attention instead of recurrence.

Vaswani et al. (2017), "Attention is all you need", arXiv 1706.03762. Read top to bottom: the model (3), its two
stacks (3.1), the sublayers (3.1, 3.3); attention itself (3.2) is `regard.attention.MultiHead`, positions (3.5)
are `regard.attention.Sinusoidal`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import AttentionOutput, KVCache, Mask, MultiHead, causal, padding
from regard.attention.positions import uses_relative_positions
from regard.errors import UsageError
from regard.models.fast_decoding.transformer import FusedDecoderState, fuse_decoder
from regard.models.layers import FastDropout, FeedForward, TokenEmbedding

Norm = Literal["post", "pre"]


TieEmbeddings = Literal["none", "output", "all"]


MakeAttention = Callable[[], MultiHead]


class Transformer(nn.Module):
    """A stack that reads the source, and one that writes the target and looks at what was read.

    The defaults are the paper's base model. `norm="pre"` normalizes before each sublayer instead of after it
    (Xiong et al. 2020, arXiv 2002.04745), which trains more calmly. `tied` shares embeddings: "output" those of
    the target with the last layer (Press and Wolf 2017), "all" those of the source too, as published; both
    languages then need one vocabulary. `attention` makes the heads of a layer, if they are to be other ones, and
    `across` those that look from the target at the source, which know no distances.

    >>> model = Transformer(src_vocab_size=11, tgt_vocab_size=13, embed_dim=16, num_heads=2, num_encoder_layers=2, ffn_dim=32)
    >>> source, target = torch.randint(4, 11, (2, 5)), torch.randint(4, 13, (2, 7))
    >>> model.lm_head(model(source, torch.tensor([5, 3]), target)).shape
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
        norm: Norm = "post",
        tie_embeddings: TieEmbeddings = "none",
        make_self_attn: MakeAttention | None = None,
        make_cross_attn: MakeAttention | None = None,
    ):
        super().__init__()
        if tie_embeddings == "all" and src_vocab_size != tgt_vocab_size:
            raise UsageError(
                f"tied='all' needs one vocabulary for both languages, got {src_vocab_size} and {tgt_vocab_size} words"
            )
        make = make_self_attn or (lambda: MultiHead(embed_dim, num_heads))
        self.encoder = TransformerEncoder(num_encoder_layers, embed_dim, ffn_dim, dropout, norm, make)
        self.decoder = TransformerDecoder(
            num_decoder_layers or num_encoder_layers,
            embed_dim,
            ffn_dim,
            dropout,
            norm,
            make,
            make_cross_attn or make,
        )
        self.src_embed = TokenEmbedding(src_vocab_size, embed_dim, dropout)
        self.tgt_embed = (
            self.src_embed if tie_embeddings == "all" else TokenEmbedding(tgt_vocab_size, embed_dim, dropout)
        )
        self.lm_head = nn.Linear(embed_dim, tgt_vocab_size, bias=False)
        if tie_embeddings == "none":
            nn.init.xavier_uniform_(self.lm_head.weight)
        else:
            self.lm_head.weight = self.tgt_embed.words.weight

    def forward(
        self,
        source: Int[Tensor, "rows source"],
        source_lengths: Int[Tensor, " rows"],
        target: Int[Tensor, "rows target"],
    ) -> Float[Tensor, "rows target dim"]:
        """What `output` turns into the scores of the next word, after each word of the target."""
        return self._decode(source, source_lengths, target)[0]

    def attention_weights(
        self,
        source: Int[Tensor, "rows source"],
        source_lengths: Int[Tensor, " rows"],
        target: Int[Tensor, "rows target"],
    ) -> list[Float[Tensor, "rows heads target-1 source"]]:
        """Where each word of the target looked in the source, a layer each: weights from `target[:, 1:]` on."""
        return [seen.weights for seen in self._decode(source, source_lengths, target[:, :-1])[1]]

    def start_decoding(
        self, source: Int[Tensor, "rows source"], source_lengths: Int[Tensor, " rows"]
    ) -> TransformerDecoderState | FusedDecoderState:
        """Read the source once, then write word by word: by `Steps`, or by the same in fewer operations."""
        memory, fast = self.encode(source, source_lengths), fuse_decoder(self)
        if fast is None:
            return TransformerDecoderState(self, memory, source_lengths)
        return FusedDecoderState(fast, memory, source_lengths)

    def encode(
        self, source: Int[Tensor, "rows source"], source_lengths: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows source dim"]:
        return self.encoder(self.src_embed(source), padding(source_lengths))

    def _decode(
        self, source: Tensor, source_lengths: Tensor, target: Tensor
    ) -> tuple[Tensor, list[AttentionOutput]]:
        # What fills up a target comes after its words, so they cannot see it: causal() is mask enough.
        memory = self.encode(source, source_lengths)
        return self.decoder(self.tgt_embed(target), memory, padding(source_lengths))


class TransformerEncoder(nn.Module):
    """Layers of self-attention and a small network."""

    def __init__(
        self,
        num_layers: int,
        embed_dim: int,
        ffn_dim: int,
        dropout: float,
        norm: Norm,
        make_self_attn: MakeAttention,
    ):
        super().__init__()
        self.layers = nn.ModuleList(
            TransformerEncoderLayer(embed_dim, ffn_dim, dropout, norm, make_self_attn)
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(embed_dim) if norm == "pre" else nn.Identity()

    def forward(
        self, x: Float[Tensor, "rows source dim"], mask: Mask, caches: Sequence[KVCache] | None = None
    ) -> Float[Tensor, "rows source dim"]:
        """`caches`, one a layer, are what was read before; under causal() these layers are a decoder's."""
        for place, layer in enumerate(self.layers):
            x = layer(x, mask, None if caches is None else caches[place])
        return self.norm(x)


class TransformerEncoderLayer(nn.Module):
    def __init__(
        self, embed_dim: int, ffn_dim: int, dropout: float, norm: Norm, make_self_attn: MakeAttention
    ):
        super().__init__()
        self.self_attn = make_self_attn()
        self.feed_forward = FeedForward(embed_dim, ffn_dim)
        self.add_look, self.add_think = (Residual(embed_dim, dropout, norm) for _ in range(2))

    def forward(self, x: Tensor, mask: Mask, cache: KVCache | None = None) -> Tensor:
        x = self.add_look(x, lambda x: self.self_attn(x, mask=mask, cache=cache).context)
        return self.add_think(x, self.feed_forward)


class TransformerDecoder(nn.Module):
    """Layers that look at what was written, then at what was read."""

    def __init__(
        self,
        num_layers: int,
        embed_dim: int,
        ffn_dim: int,
        dropout: float,
        norm: Norm,
        make_self_attn: MakeAttention,
        make_cross_attn: MakeAttention,
    ):
        super().__init__()
        self.layers = nn.ModuleList(
            TransformerDecoderLayer(embed_dim, ffn_dim, dropout, norm, make_self_attn, make_cross_attn)
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(embed_dim) if norm == "pre" else nn.Identity()

    def forward(
        self, x: Float[Tensor, "rows target dim"], memory: Float[Tensor, "rows source dim"], mask: Mask
    ) -> tuple[Float[Tensor, "rows target dim"], list[AttentionOutput]]:
        """The last layer's answer, and what each layer saw in the source."""
        seen = []
        for layer in self.layers:
            x, looked = layer(x, lambda x, layer=layer: layer.cross_attn(x, memory, mask=mask))
            seen.append(looked)
        return self.norm(x), seen


class TransformerDecoderLayer(nn.Module):
    def __init__(
        self,
        embed_dim: int,
        ffn_dim: int,
        dropout: float,
        norm: Norm,
        make_self_attn: MakeAttention,
        make_cross_attn: MakeAttention,
    ):
        super().__init__()
        self.self_attn, self.cross_attn = make_self_attn(), make_cross_attn()
        if uses_relative_positions(self.cross_attn):
            raise UsageError(
                "Rotary, Alibi and RelativeBias go by the distance from a query to a key, and between words of two"
                " texts there is none; let other heads look at the source: across=lambda: MultiHead(dim, heads)"
            )
        self.feed_forward = FeedForward(embed_dim, ffn_dim)
        self.add_look, self.add_back, self.add_think = (Residual(embed_dim, dropout, norm) for _ in range(3))

    def forward(
        self, x: Tensor, cross_attend: Callable[[Tensor], AttentionOutput], cache: KVCache | None = None
    ) -> tuple[Tensor, AttentionOutput]:
        """`look_back` asks the source: keys as they come, or projected once before the first word."""
        seen: list[AttentionOutput] = []

        def back(x: Tensor) -> Tensor:
            seen.append(cross_attend(x))
            return seen[0].context

        x = self.add_look(x, lambda x: self.self_attn(x, mask=causal(), cache=cache).context)
        x = self.add_back(x, back)
        return self.add_think(x, self.feed_forward), seen[0]


class Residual(nn.Module):
    """What a sublayer adds: norm(x + sublayer(x)), or x + sublayer(norm(x)) with `norm="pre"`."""

    def __init__(self, embed_dim: int, dropout: float, norm: Norm):
        super().__init__()
        self.norm, self.dropout, self.norm_first = (
            nn.LayerNorm(embed_dim),
            FastDropout(dropout),
            norm == "pre",
        )

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.norm_first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class TransformerDecoderState:
    """A translation being written, one word of each row at a time; a word costs one query a layer."""

    def __init__(self, model: Transformer, memory: Tensor, lengths: Tensor):
        self.model, self.lengths = model, lengths
        self.source_rows = torch.arange(
            len(lengths), device=lengths.device
        )  # which source each row translates
        looks = [cast(MultiHead, layer.cross_attn) for layer in model.decoder.layers]
        self.caches = [KVCache() for _ in looks]
        self.projected_memory = [look.precompute(memory, mask=padding(lengths)) for look in looks]
        self.attention: list[AttentionOutput] = []

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows words"]:
        """The scores of the next word of each row, given the word before it."""
        model = self.model
        x = model.tgt_embed(tokens[:, None], offset=len(self.caches[0]))
        self.attention = []
        for layer, memory, cache in zip(
            model.decoder.layers, self.projected_memory, self.caches, strict=True
        ):
            x, seen = layer(x, memory, cache)
            self.attention.append(seen)
        return model.lm_head(model.decoder.norm(x)).squeeze(1)

    def weights(self) -> Float[Tensor, "rows source"]:
        """Where the last word looked, on average over layers and heads."""
        return torch.stack([seen.weights.mean(1).squeeze(1) for seen in self.attention]).mean(0)

    def reorder(self, rows: Int[Tensor, " new"]) -> None:
        """Go on with these rows; one may be taken several times."""
        for cache in self.caches:
            cache.reorder(rows)
        before, self.source_rows = self.source_rows, self.source_rows[rows]
        if torch.equal(before, self.source_rows):  # a beam mostly moves within its sentence: the source stays
            return
        self.lengths = self.lengths[rows]
        self.projected_memory = [
            memory.reorder(rows, padding(self.lengths)) for memory in self.projected_memory
        ]
