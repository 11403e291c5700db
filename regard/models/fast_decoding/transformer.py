"""A Transformer's decoder laid out for steps: what `PackedSteps` needs of it, made once and kept with the model.

What a Transformer's steps look back at: the keys and values of the source, of all layers in one tensor.

Writing word by word, by an exact shortcut: the Transformer's steps with every layer's weights laid out for them.

The definition is `Steps` in transformer.py. Here query, key and value are one product, and the beams of a sentence ask
together: for what was read they share its keys, and for what was written each sees, of all words that any of them
wrote, its own past. So a beam that moves copies nothing but a table of who sees what.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Dropout, MultiHead, ScaledDot, softmax
from regard.attention.observers import WATCHERS
from regard.models.fast_decoding.shared import (
    RowSlots,
    WeightCache,
    base2_logits,
    cached_output_projection,
    get_or_build,
    is_inlineable,
    is_plain_inference,
)


class FusedLinear(NamedTuple):
    """A linear layer without the module around it, its weights in the order in which a product reads them."""

    weight_t: Float[Tensor, "input output"]
    bias: Float[Tensor, " output"] | None

    def __call__(self, x: Float[Tensor, "rows input"]) -> Float[Tensor, "rows output"]:
        return torch.mm(x, self.weight_t) if self.bias is None else torch.addmm(self.bias, x, self.weight_t)


class FusedLayerNorm(NamedTuple):
    """A layer norm without the module around it."""

    shape: tuple[int, ...]
    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, self.shape, self.weight, self.bias, self.eps, False)


class FusedDecoderLayer:
    """The weights of one decoder layer; those that are asked with the same vector are joined."""

    def __init__(self, layer: Any):
        look, back = layer.look, layer.cross_attn
        self.qkv_proj, self.self_out_proj = (
            _fuse_linears(look.query, look.key, look.value),
            _fuse_linears(look.output),
        )
        self.cross_q_proj, self.cross_out_proj = _fuse_linears(back.query), _fuse_linears(back.output)
        self.linear1, self.linear2 = _fuse_linears(layer.think[0]), _fuse_linears(layer.think[2])
        self.norms = [_fuse_norm(add.norm) for add in (layer.add_look, layer.add_back, layer.add_think)]


class FusedDecoder:
    """A decoder's weights as its steps want them."""

    def __init__(self, model: Any):
        layers, heads = model.decoder.layers, model.decoder.layers[0].look
        self.layers = [FusedDecoderLayer(layer) for layer in layers]
        self.memory_kv_proj = _fuse_linears(
            *(part for layer in layers for part in (layer.cross_attn.key, layer.cross_attn.value))
        )
        self.embed_dim, self.num_heads, self.norm_first = heads.dim, heads.heads, layers[0].add_look.first
        self.final_norm = _fuse_norm(model.decoder.norm) if self.norm_first else None
        self.embed_weight, self.embed_scale, self.positions = (
            model.write.words.weight,
            model.write.scale,
            model.write.positions,
        )
        self.output_projection = cached_output_projection(model.output)

    def split_heads(
        self, projected: Float[Tensor, "some positions dim"]
    ) -> Float[Tensor, "some heads positions part"]:
        return projected.view(
            *projected.shape[:2], self.num_heads, self.embed_dim // self.num_heads
        ).transpose(1, 2)

    def position_encodings(self, start: int, count: int) -> Float[Tensor, "count dim"]:
        return self.positions.encoding(
            count, start, dtype=self.embed_weight.dtype, device=self.embed_weight.device
        )


FUSED_DECODERS: WeightCache[FusedDecoder] = WeakKeyDictionary()


def fuse_decoder(model: Any) -> FusedDecoder | None:
    """The decoder of a Transformer laid out, the same as long as its weights are; None if steps must be the plain ones.

    The shortcut knows the paper's heads only. Where somebody watches, hooks a part, wants gradients, compiles or
    computes in other precisions than the weights', each part of the model must be called.
    """
    parts = [*model.decoder.modules(), *model.write.modules(), model.output]
    if not (_is_unhooked(model) and _has_standard_layers(model) and all(map(is_inlineable, parts))):
        return None
    return get_or_build(FUSED_DECODERS, model, parts, lambda: FusedDecoder(model))


def _is_unhooked(model: Any) -> bool:
    weight = model.output.weight
    return (
        is_plain_inference(weight) and not WATCHERS.get() and weight.dtype in (torch.float32, torch.float64)
    )


def _has_standard_layers(model: Any) -> bool:
    """Whether all layers of the decoder are the paper's, with as many heads in each."""
    heads = [heads for layer in model.decoder.layers for heads in (layer.look, layer.cross_attn)]
    kinds = {
        (type(part), part.num_heads, part.q_proj.bias is None)
        for part in heads
        if isinstance(part, MultiHead)
    }
    same = len(kinds) == 1 and all(type(part) is MultiHead and _is_standard_attention(part) for part in heads)
    return same and all(type(layer.think[1]) is nn.ReLU for layer in model.decoder.layers)


def _is_standard_attention(attention: MultiHead) -> bool:
    normalize = attention.normalize
    inner = normalize.normalize if isinstance(normalize, Dropout) else normalize
    return (
        type(attention.score) is ScaledDot
        and attention.num_kv_heads == attention.num_heads
        and inner in (None, softmax)
    )


def _fuse_linears(*layers: nn.Linear) -> FusedLinear:
    biases: list[Tensor] = [layer.bias for layer in layers if layer._parameters["bias"] is not None]
    weights: list[Tensor] = [layer.weight for layer in layers]
    return FusedLinear(torch.cat(weights).t().contiguous(), torch.cat(biases) if biases else None)


def _fuse_norm(norm: nn.LayerNorm) -> FusedLayerNorm:
    return FusedLayerNorm(tuple(norm.normalized_shape), norm.weight, norm.bias, norm.eps)


VECTOR_SIZE = 16  # keys; PyTorch's fused attention takes half the time for whole vectors of them


def round_up_to_vector(num_keys: int) -> int:
    """So many keys in whole vectors, the last of which nobody sees.

    >>> round_up_to_vector(16), round_up_to_vector(17)
    (16, 32)
    """
    return -(-num_keys // VECTOR_SIZE) * VECTOR_SIZE


class SourceKV:
    """Keys and values as they were read, and a mask: -inf where a sentence has no more words."""

    def __init__(
        self, decoder: FusedDecoder, memory: Float[Tensor, "rows source dim"], lengths: Int[Tensor, " rows"]
    ):
        sentences, self.src_len, dim = memory.shape
        upto = round_up_to_vector(self.src_len)
        memory = F.pad(memory, (0, 0, 0, upto - self.src_len))
        both = decoder.memory_kv_proj(memory.flatten(0, 1)).view(sentences, upto, -1, 2 * dim)
        real = torch.arange(upto, device=lengths.device) < lengths[:, None]
        mask = memory.new_zeros(sentences, 1, 1, upto).masked_fill_(~real[:, None, None], -math.inf)
        self.decoder = decoder
        self.queries: list[Tensor] = []  # the queries of each layer in the last step
        self._store(both.transpose(1, 2).contiguous(), mask)

    def _store(self, kv: Float[Tensor, "sentences layers source joined"], mask: Tensor) -> None:
        self.kv, self.mask = kv, mask
        parts = [kv[:, number].split(self.decoder.embed_dim, -1) for number in range(kv.shape[1])]
        self.layers = [
            (self.decoder.split_heads(key), self.decoder.split_heads(value)) for key, value in parts
        ]

    def reorder(self, sentences: Int[Tensor, " new"]) -> None:
        self._store(self.kv.index_select(0, sentences), self.mask.index_select(0, sentences))

    def compact(self, num_left: int, holes: Tensor, movers: Tensor) -> None:
        """See `closed`."""
        self._store(*(compact_rows(part, num_left, holes, movers) for part in (self.kv, self.mask)))

    def attend(self, x: Float[Tensor, "rows dim"], index: int, beam_width: int) -> Float[Tensor, "rows dim"]:
        """What a layer sees; the `width` rows of a sentence ask together."""
        layer, dim = self.decoder.layers[index], self.decoder.embed_dim
        query = self.decoder.split_heads(layer.cross_q_proj(x).view(-1, beam_width, dim))
        self.queries.append(query)
        seen = F.scaled_dot_product_attention(query, *self.layers[index], self.mask)
        return layer.cross_out_proj(seen.transpose(1, 2).reshape(-1, dim))

    def weights(self) -> Float[Tensor, "sentences width source"]:
        """Where the last words looked, on average over layers and heads."""
        seen = []
        for query, (key, _) in zip(self.queries, self.layers, strict=True):
            scores = query @ key.mT / math.sqrt(query.shape[-1]) + self.mask
            seen.append(scores[..., : self.src_len].softmax(-1).mean(1))
        return torch.stack(seen).mean(0)


def compact_rows(tensor: Tensor, num_left: int, holes: Tensor, movers: Tensor) -> Tensor:
    """Those that stay are moved to the front, into the places of those that left; nobody else moves."""
    tensor.index_copy_(0, holes, tensor.index_select(0, movers))
    return tensor[:num_left]


BUFFER_STEPS = 16  # words a beam that a cache has room for at first


class FusedDecoderState:
    """`Steps` of a Transformer, whose rows are sentences x width: those that translate one sentence stand together."""

    def __init__(
        self, decoder: FusedDecoder, memory: Float[Tensor, "rows source dim"], lengths: Int[Tensor, " rows"]
    ):
        self.decoder, self.beam_width, self.length = decoder, 1, 0
        self.source_kv = SourceKV(decoder, memory, lengths)
        self.slots = RowSlots(len(memory), memory.device)
        self.num_cached = 0  # words of each sentence, of all its rows, in the cache
        self.cache = memory.new_zeros(len(memory), len(decoder.layers), 0, 2 * decoder.embed_dim)
        self.visibility = memory.new_zeros(len(memory), 1, 0)  # 0 where a row sees a word, else -inf
        self.position_encodings = decoder.position_encodings(0, BUFFER_STEPS)
        self.buffer: Tensor | None = None

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows words"]:
        """The scores of the next word of each row, given the word before it."""
        return self.decoder.output_projection(self._hidden_after(tokens))

    def base2_logits(self, tokens: Int[Tensor, " rows"], block_size: int) -> Float[Tensor, "rows padded"]:
        """The same as powers of two."""
        self.buffer = base2_logits(
            self.decoder.output_projection, self._hidden_after(tokens), block_size, self.buffer
        )
        return self.buffer

    def _hidden_after(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows dim"]:
        packed, width = self.decoder, self.beam_width
        tokens = self.slots.to_slots(tokens.view(-1, width)).flatten()
        if self.length == len(self.position_encodings):
            self.position_encodings = packed.position_encodings(0, 2 * self.length)
        x = torch.add(
            self.position_encodings[self.length],
            F.embedding(tokens, packed.embed_weight),
            alpha=packed.embed_scale,
        )
        self._append_new_tokens()
        self.source_kv.queries.clear()
        for number, layer in enumerate(packed.layers):
            x = self._run_layer(x, layer, number)
        x = self.slots.from_slots(x.view(-1, width, packed.embed_dim)).flatten(0, 1)
        self.length += 1
        return x if packed.final_norm is None else packed.final_norm(x)

    def _run_layer(
        self, x: Float[Tensor, "rows dim"], layer: FusedDecoderLayer, index: int
    ) -> Float[Tensor, "rows dim"]:
        first, (look, back, think) = self.decoder.norm_first, layer.norms
        new = layer.qkv_proj(look(x) if first else x)
        x = layer.self_out_proj(self._attend_to_target(new, index)).add_(x)
        x = x if first else look(x)

        x = self.source_kv.attend(back(x) if first else x, index, self.beam_width).add_(x)
        x = x if first else back(x)

        wide = layer.linear1(think(x) if first else x).relu_()
        x = layer.linear2(wide).add_(x)
        return x if first else think(x)

    def _attend_to_target(self, qkv: Float[Tensor, "rows joined"], index: int) -> Float[Tensor, "rows dim"]:
        """At what was written: the new words' keys and values go to the end."""
        dim, upto = self.decoder.embed_dim, round_up_to_vector(self.num_cached)
        each = qkv.view(-1, self.beam_width, 3 * dim)
        cache = self.cache[:, index, :upto]
        cache[:, self.num_cached - self.beam_width : self.num_cached] = each[..., dim:]
        query, key, value = (
            self.decoder.split_heads(part) for part in (each[..., :dim], cache[..., :dim], cache[..., dim:])
        )
        mask = self.visibility[:, None, :, :upto]
        return F.scaled_dot_product_attention(query, key, value, mask).transpose(1, 2).reshape(-1, dim)

    def _append_new_tokens(self) -> None:
        """Each row sees its own new word, and there is room for all of them."""
        before, room = self.num_cached, self.visibility.shape[2]
        self.num_cached += self.beam_width
        if self.num_cached > room:
            more = round_up_to_vector(max(2 * before, BUFFER_STEPS * self.beam_width)) - room
            grown = self.cache.new_empty(*self.cache.shape[:2], room + more, self.cache.shape[3])
            grown[:, :, :before] = self.cache[:, :, :before]
            self.cache, self.visibility = grown, F.pad(self.visibility, (0, more), value=-math.inf)
        if round_up_to_vector(self.num_cached) > round_up_to_vector(before):
            self.cache[:, :, round_up_to_vector(before) : round_up_to_vector(self.num_cached)] = (
                0  # what nobody sees must still be a number
            )
        self.visibility[:, :, before : self.num_cached].diagonal(dim1=1, dim2=2).zero_()

    def weights(self) -> Float[Tensor, "rows source"]:
        """Where the last word looked, on average over layers and heads."""
        return self.slots.from_slots(self.source_kv.weights()).flatten(0, 1)

    def reorder(self, rows: Int[Tensor, " new"]) -> None:
        """Go on with these rows; one may be taken several times."""
        sentences = self.slots.slots_of(rows // self.beam_width)
        self.visibility = self.visibility[sentences, rows % self.beam_width][:, None]
        self.cache = self.cache.index_select(0, sentences)
        self.source_kv.reorder(sentences)
        self.slots, self.beam_width = RowSlots(len(rows), rows.device), 1

    def reorder_beams(self, rows: Int[Tensor, "sentences width"]) -> None:
        """The same where each line of rows is the beam of one sentence, and sentences only leave."""
        if len(rows) < len(self.slots):
            gone = self.slots.remove(rows[:, 0] // self.beam_width)
            compact_rows(self.cache[:, :, : self.num_cached], *gone)
            self.cache, self.visibility = self.cache[: len(rows)], compact_rows(self.visibility, *gone)
            self.source_kv.compact(*gone)
        parents = self.slots.to_slots(rows % self.beam_width)
        self.visibility = self.visibility.gather(
            1, parents[:, :, None].expand(-1, -1, self.visibility.shape[2])
        )
        self.beam_width = rows.shape[1]
