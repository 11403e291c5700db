"""The Transformer: attention instead of recurrence.

Vaswani et al. (2017), "Attention is all you need", arXiv 1706.03762. Read top to bottom: the model (3), its two
stacks (3.1), the sublayers (3.1, 3.3); attention itself (3.2) is `regard.attention.MultiHead`, positions (3.5)
are `regard.attention.Sinusoidal`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attended, Cache, Mask, MultiHead, Sinusoidal, causal, padding
from regard.attention.positions.relative import by_distance
from regard.errors import UsageError
from regard.models._dropout import Dropout
from regard.models._packed import packed
from regard.models._packed_steps import PackedSteps

Norm = Literal["post", "pre"]
Tied = Literal["none", "output", "all"]
Heads = Callable[[], MultiHead]


class Transformer(nn.Module):
    """A stack that reads the source, and one that writes the target and looks at what was read.

    The defaults are the paper's base model. `norm="pre"` normalizes before each sublayer instead of after it
    (Xiong et al. 2020, arXiv 2002.04745), which trains more calmly. `tied` shares embeddings: "output" those of
    the target with the last layer (Press and Wolf 2017), "all" those of the source too, as published; both
    languages then need one vocabulary. `attention` makes the heads of a layer, if they are to be other ones, and
    `across` those that look from the target at the source, which know no distances.

    >>> model = Transformer(source_words=11, target_words=13, dim=16, heads=2, layers=2, hidden_dim=32)
    >>> source, target = torch.randint(4, 11, (2, 5)), torch.randint(4, 13, (2, 7))
    >>> model.output(model(source, torch.tensor([5, 3]), target)).shape
    torch.Size([2, 7, 13])
    """

    def __init__(
        self,
        source_words: int,
        target_words: int,
        *,
        dim: int = 512,
        heads: int = 8,
        layers: int = 6,
        decoder_layers: int | None = None,
        hidden_dim: int = 2048,
        dropout: float = 0.1,
        norm: Norm = "post",
        tied: Tied = "none",
        attention: Heads | None = None,
        across: Heads | None = None,
    ):
        super().__init__()
        if tied == "all" and source_words != target_words:
            raise UsageError(
                f"tied='all' needs one vocabulary for both languages, got {source_words} and {target_words} words"
            )
        make = attention or (lambda: MultiHead(dim, heads))
        self.encoder = Encoder(layers, dim, hidden_dim, dropout, norm, make)
        self.decoder = Decoder(decoder_layers or layers, dim, hidden_dim, dropout, norm, make, across or make)
        self.read = Embedding(source_words, dim, dropout)
        self.write = self.read if tied == "all" else Embedding(target_words, dim, dropout)
        self.output = nn.Linear(dim, target_words, bias=False)
        if tied == "none":
            nn.init.xavier_uniform_(self.output.weight)
        else:
            self.output.weight = self.write.words.weight

    def forward(
        self,
        source: Int[Tensor, "rows source"],
        source_lengths: Int[Tensor, " rows"],
        target: Int[Tensor, "rows target"],
    ) -> Float[Tensor, "rows target dim"]:
        """What `output` turns into the scores of the next word, after each word of the target."""
        return self._decode(source, source_lengths, target)[0]

    def looks(
        self,
        source: Int[Tensor, "rows source"],
        source_lengths: Int[Tensor, " rows"],
        target: Int[Tensor, "rows target"],
    ) -> list[Float[Tensor, "rows heads target-1 source"]]:
        """Where each word of the target looked in the source, a layer each: weights from `target[:, 1:]` on."""
        return [seen.weights for seen in self._decode(source, source_lengths, target[:, :-1])[1]]

    def begin(
        self, source: Int[Tensor, "rows source"], source_lengths: Int[Tensor, " rows"]
    ) -> Steps | PackedSteps:
        """Read the source once, then write word by word: by `Steps`, or by the same in fewer operations."""
        memory, fast = self.encode(source, source_lengths), packed(self)
        if fast is None:
            return Steps(self, memory, source_lengths)
        return PackedSteps(fast, memory, source_lengths)

    def encode(
        self, source: Int[Tensor, "rows source"], source_lengths: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows source dim"]:
        return self.encoder(self.read(source), padding(source_lengths))

    def _decode(self, source: Tensor, lengths: Tensor, target: Tensor) -> tuple[Tensor, list[Attended]]:
        # What fills up a target comes after its words, so they cannot see it: causal() is mask enough.
        memory = self.encode(source, lengths)
        return self.decoder(self.write(target), memory, padding(lengths))


class Encoder(nn.Module):
    """Layers of self-attention and a small network."""

    def __init__(self, layers: int, dim: int, hidden_dim: int, dropout: float, norm: Norm, make: Heads):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(dim, hidden_dim, dropout, norm, make) for _ in range(layers))
        self.norm = nn.LayerNorm(dim) if norm == "pre" else nn.Identity()

    def forward(
        self, x: Float[Tensor, "rows source dim"], mask: Mask, caches: Sequence[Cache] | None = None
    ) -> Float[Tensor, "rows source dim"]:
        """`caches`, one a layer, are what was read before; under causal() these layers are a decoder's."""
        for place, layer in enumerate(self.layers):
            x = layer(x, mask, None if caches is None else caches[place])
        return self.norm(x)


class EncoderLayer(nn.Module):
    def __init__(self, dim: int, hidden_dim: int, dropout: float, norm: Norm, make: Heads):
        super().__init__()
        self.look = make()
        self.think = FeedForward(dim, hidden_dim)
        self.add_look, self.add_think = (Residual(dim, dropout, norm) for _ in range(2))

    def forward(self, x: Tensor, mask: Mask, cache: Cache | None = None) -> Tensor:
        x = self.add_look(x, lambda x: self.look(x, mask=mask, cache=cache).context)
        return self.add_think(x, self.think)


class Decoder(nn.Module):
    """Layers that look at what was written, then at what was read."""

    def __init__(
        self,
        layers: int,
        dim: int,
        hidden_dim: int,
        dropout: float,
        norm: Norm,
        make: Heads,
        across: Heads,
    ):
        super().__init__()
        self.layers = nn.ModuleList(
            DecoderLayer(dim, hidden_dim, dropout, norm, make, across) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(dim) if norm == "pre" else nn.Identity()

    def forward(
        self, x: Float[Tensor, "rows target dim"], memory: Float[Tensor, "rows source dim"], mask: Mask
    ) -> tuple[Float[Tensor, "rows target dim"], list[Attended]]:
        """The last layer's answer, and what each layer saw in the source."""
        seen = []
        for layer in self.layers:
            x, looked = layer(x, lambda x, layer=layer: layer.look_back(x, memory, mask=mask))
            seen.append(looked)
        return self.norm(x), seen


class DecoderLayer(nn.Module):
    def __init__(self, dim: int, hidden_dim: int, dropout: float, norm: Norm, make: Heads, across: Heads):
        super().__init__()
        self.look, self.look_back = make(), across()
        if by_distance(self.look_back):
            raise UsageError(
                "Rotary, Alibi and RelativeBias go by the distance from a query to a key, and between words of two"
                " texts there is none; let other heads look at the source: across=lambda: MultiHead(dim, heads)"
            )
        self.think = FeedForward(dim, hidden_dim)
        self.add_look, self.add_back, self.add_think = (Residual(dim, dropout, norm) for _ in range(3))

    def forward(
        self, x: Tensor, look_back: Callable[[Tensor], Attended], cache: Cache | None = None
    ) -> tuple[Tensor, Attended]:
        """`look_back` asks the source: keys as they come, or projected once before the first word."""
        seen: list[Attended] = []

        def back(x: Tensor) -> Tensor:
            seen.append(look_back(x))
            return seen[0].context

        x = self.add_look(x, lambda x: self.look(x, mask=causal(), cache=cache).context)
        x = self.add_back(x, back)
        return self.add_think(x, self.think), seen[0]


class Residual(nn.Module):
    """What a sublayer adds: norm(x + sublayer(x)), or x + sublayer(norm(x)) with `norm="pre"`."""

    def __init__(self, dim: int, dropout: float, norm: Norm):
        super().__init__()
        self.norm, self.dropout, self.first = nn.LayerNorm(dim), Dropout(dropout), norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class FeedForward(nn.Sequential):
    """W2 relu(W1 x + b1) + b2, at each position by itself."""

    def __init__(self, dim: int, hidden_dim: int):
        widen, narrow = nn.Linear(dim, hidden_dim), nn.Linear(hidden_dim, dim)
        super().__init__(widen, nn.ReLU(), narrow)
        for layer in (widen, narrow):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


class Embedding(nn.Module):
    """Words as vectors, times sqrt(dim), with their positions added (3.4, 3.5)."""

    def __init__(self, words: int, dim: int, dropout: float):
        super().__init__()
        self.words, self.scale = nn.Embedding(words, dim), math.sqrt(dim)
        nn.init.normal_(self.words.weight, std=dim**-0.5)
        self.positions, self.dropout = Sinusoidal(dim), Dropout(dropout)

    def forward(self, words: Int[Tensor, "rows length"], offset: int = 0) -> Float[Tensor, "rows length dim"]:
        return self.dropout(self.positions(self.words(words) * self.scale, offset))


class Steps:
    """A translation being written, one word of each row at a time; a word costs one query a layer."""

    def __init__(self, model: Transformer, memory: Tensor, lengths: Tensor):
        self.model, self.lengths = model, lengths
        self.rows = torch.arange(len(lengths), device=lengths.device)  # which source each row translates
        looks = [cast(MultiHead, layer.look_back) for layer in model.decoder.layers]
        self.caches = [Cache() for _ in looks]
        self.memories = [look.over(memory, mask=padding(lengths)) for look in looks]
        self.seen: list[Attended] = []

    def step(self, words: Int[Tensor, " rows"]) -> Float[Tensor, "rows words"]:
        """The scores of the next word of each row, given the word before it."""
        model = self.model
        x = model.write(words[:, None], offset=len(self.caches[0]))
        self.seen = []
        for layer, memory, cache in zip(model.decoder.layers, self.memories, self.caches, strict=True):
            x, seen = layer(x, memory, cache)
            self.seen.append(seen)
        return model.output(model.decoder.norm(x)).squeeze(1)

    def weights(self) -> Float[Tensor, "rows source"]:
        """Where the last word looked, on average over layers and heads."""
        return torch.stack([seen.weights.mean(1).squeeze(1) for seen in self.seen]).mean(0)

    def select(self, rows: Int[Tensor, " new"]) -> None:
        """Go on with these rows; one may be taken several times."""
        for cache in self.caches:
            cache.reorder(rows)
        before, self.rows = self.rows, self.rows[rows]
        if torch.equal(before, self.rows):  # a beam mostly moves within its sentence: the source stays
            return
        self.lengths = self.lengths[rows]
        self.memories = [memory.select(rows, padding(self.lengths)) for memory in self.memories]
