"""Fast decoding with a Transformer: exactly `TransformerDecoderState`, in fewer operations.

Query, key and value are one product. The hypotheses of a sentence share the keys of the source, and in self-attention
each attends, among all tokens that any of them has generated, to its own prefix by a mask. So reordering a beam copies
only the mask.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, cast
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Dropout, MultiHead, ScaledDot, Sinusoidal, softmax
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
from regard.models.layers import FastDropout, FeedForward, TokenEmbedding
from regard.models.transformer_layers import TransformerDecoder, TransformerDecoderLayer

if TYPE_CHECKING:
    from regard.models.transformer import Transformer

__all__ = ["FusedDecoder", "FusedDecoderState", "fuse_decoder"]

INLINED = (
    TransformerDecoder,
    TransformerDecoderLayer,
    MultiHead,
    ScaledDot,
    Dropout,
    FeedForward,
    TokenEmbedding,
    Sinusoidal,
    FastDropout,
    nn.Linear,
    nn.LayerNorm,
    nn.ModuleList,
    nn.Identity,
)
VECTOR_SIZE = 16  # keys; PyTorch's fused attention needs half the time for multiples of it
BUFFER_STEPS = 16  # initial capacity of the cache, in tokens per hypothesis


class FusedLinear(NamedTuple):
    """One or more linear layers as one product, with a contiguous transposed weight."""

    weight_t: Float[Tensor, "input output"]
    bias: Float[Tensor, " output"] | None

    def __call__(self, x: Float[Tensor, "rows input"]) -> Float[Tensor, "rows output"]:
        return torch.mm(x, self.weight_t) if self.bias is None else torch.addmm(self.bias, x, self.weight_t)


class FusedLayerNorm(NamedTuple):
    """Layer norm without the overhead of a module."""

    shape: tuple[int, ...]
    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, self.shape, self.weight, self.bias, self.eps, False)


class FusedDecoderLayer:
    """Weights of one decoder layer; projections of the same input are one product.

    Args:
        layer: the layer
    """

    def __init__(self, layer: TransformerDecoderLayer):
        self_attn, cross_attn = layer.self_attn, layer.cross_attn
        self.qkv_proj = _fuse_linears(self_attn.q_proj, self_attn.k_proj, self_attn.v_proj)
        self.self_out_proj = _fuse_linears(self_attn.out_proj)
        self.cross_q_proj, self.cross_out_proj = (_fuse_linears(cross_attn.q_proj), _fuse_linears(cross_attn.out_proj))
        self.linear1 = _fuse_linears(layer.feed_forward.linear1)
        self.linear2 = _fuse_linears(layer.feed_forward.linear2)
        self.norms = [_fuse_norm(norm) for norm in (layer.norm1, layer.norm2, layer.norm3)]


class FusedDecoder:
    """Weights of a Transformer's decoder, as the steps of `FusedDecoderState` need them.

    Args:
        model: the model

    Example:
        >>> from regard.models import Transformer
        >>> model = Transformer(11, 13, embed_dim=16, num_heads=2, num_encoder_layers=2, ffn_dim=32).eval()
        >>> len(FusedDecoder(model).layers)
        2
    """

    def __init__(self, model: Transformer):
        layers = _decoder_layers(model)
        self.layers = [FusedDecoderLayer(layer) for layer in layers]
        self.memory_kv_proj = _fuse_linears(
            *(proj for layer in layers for proj in (layer.cross_attn.k_proj, layer.cross_attn.v_proj))
        )
        self_attn = layers[0].self_attn
        self.embed_dim, self.num_heads = self_attn.embed_dim, self_attn.num_heads
        self.norm_first = layers[0].norm_first
        self.final_norm = _fuse_norm(cast(nn.LayerNorm, model.decoder.norm)) if self.norm_first else None
        embed = model.tgt_embed
        self.embed_weight, self.embed_scale, self.positions = embed.weight, embed.scale, embed.positions
        self.output_projection = cached_output_projection(model.lm_head)

    def split_heads(
        self, projected: Float[Tensor, "batch positions dim"]
    ) -> Float[Tensor, "batch heads positions head_dim"]:
        """Split the last axis into heads."""
        head_dim = self.embed_dim // self.num_heads
        return projected.view(*projected.shape[:2], self.num_heads, head_dim).transpose(1, 2)

    def position_encodings(self, start: int, count: int) -> Float[Tensor, "count dim"]:
        """The encodings of positions start, start + 1, ..."""
        weight = self.embed_weight
        return self.positions.encoding(count, start, dtype=weight.dtype, device=weight.device)


FUSED_DECODERS: WeightCache[FusedDecoder] = WeakKeyDictionary()


def fuse_decoder(model: Transformer) -> FusedDecoder | None:
    """The fused decoder of a Transformer, cached as long as its weights are unchanged.

    None if every module must be called: with gradients, watchers, hooks, compilation or autocast, and with attention
    or positions other than the paper's.

    Args:
        model: the model

    Returns:
        the fused decoder, or None

    Example:
        >>> from regard.models import Transformer
        >>> model = Transformer(11, 13, embed_dim=16, num_heads=2, num_encoder_layers=2, ffn_dim=32).eval()
        >>> fuse_decoder(model) is None  # gradients are enabled
        True
    """
    modules = [*model.decoder.modules(), *model.tgt_embed.modules(), model.lm_head]
    is_standard = _is_unhooked(model) and all(is_inlineable(module, INLINED) for module in modules)
    if not (is_standard and _has_standard_layers(model)):
        return None
    return get_or_build(FUSED_DECODERS, model, modules, lambda: FusedDecoder(model))


def _is_unhooked(model: Transformer) -> bool:
    weight = model.lm_head.weight
    return is_plain_inference(weight) and not WATCHERS.get() and weight.dtype in (torch.float32, torch.float64)


def _has_standard_layers(model: Transformer) -> bool:
    """Whether positions and all decoder layers are the paper's, with the same number of heads."""
    if type(model.tgt_embed.positions) is not Sinusoidal:
        return False
    layers, residual = _decoder_layers(model), TransformerDecoderLayer._residual
    if not all(isinstance(layer.feed_forward, FeedForward) and type(layer)._residual is residual for layer in layers):
        return False
    attentions = [attention for layer in layers for attention in (layer.self_attn, layer.cross_attn)]
    if not all(isinstance(attention, MultiHead) and _is_standard_attention(attention) for attention in attentions):
        return False
    return len({(attention.num_heads, attention.q_proj.bias is None) for attention in attentions}) == 1


def _is_standard_attention(attention: MultiHead) -> bool:
    normalize = attention.normalize
    inner = normalize.normalize if isinstance(normalize, Dropout) else normalize
    has_all_heads = attention.num_kv_heads == attention.num_heads
    return type(attention.score) is ScaledDot and has_all_heads and inner in (None, softmax)


def _decoder_layers(model: Transformer) -> list[TransformerDecoderLayer]:
    return [cast(TransformerDecoderLayer, layer) for layer in model.decoder.layers]


def _fuse_linears(*layers: nn.Linear) -> FusedLinear:
    biases: list[Tensor] = [layer.bias for layer in layers if layer._parameters["bias"] is not None]
    weights: list[Tensor] = [layer.weight for layer in layers]
    return FusedLinear(torch.cat(weights).t().contiguous(), torch.cat(biases) if biases else None)


def _fuse_norm(norm: nn.LayerNorm) -> FusedLayerNorm:
    return FusedLayerNorm(tuple(norm.normalized_shape), norm.weight, norm.bias, norm.eps)


def round_up_to_vector(num_keys: int) -> int:
    """The next multiple of `VECTOR_SIZE`; the keys beyond `num_keys` are masked.

    Args:
        num_keys: the number of keys

    Returns:
        the number with padding

    Example:
        >>> round_up_to_vector(16), round_up_to_vector(17)
        (16, 32)
    """
    return -(-num_keys // VECTOR_SIZE) * VECTOR_SIZE


class SourceKV:
    """Keys and values of the source for all layers, in one tensor, and a mask: -inf on padding.

    Args:
        decoder: the fused weights
        memory: encoder output
        lengths: numbers of source tokens
    """

    def __init__(
        self, decoder: FusedDecoder, memory: Float[Tensor, "sentences src_len dim"], lengths: Int[Tensor, " sentences"]
    ):
        sentences, self.src_len, dim = memory.shape
        padded = round_up_to_vector(self.src_len)
        memory = F.pad(memory, (0, 0, 0, padded - self.src_len))
        kv = decoder.memory_kv_proj(memory.flatten(0, 1)).view(sentences, padded, -1, 2 * dim)
        is_token = torch.arange(padded, device=lengths.device) < lengths[:, None]
        mask = memory.new_zeros(sentences, 1, 1, padded).masked_fill_(~is_token[:, None, None], -math.inf)
        self.decoder = decoder
        self.queries: list[Tensor] = []  # of each layer, in the last step
        self._store(kv.transpose(1, 2).contiguous(), mask)

    def _store(self, kv: Float[Tensor, "sentences layers src_len kv_dim"], mask: Tensor) -> None:
        self.kv, self.mask = kv, mask
        pairs = [kv[:, index].split(self.decoder.embed_dim, -1) for index in range(kv.shape[1])]
        self.layers = [(self.decoder.split_heads(key), self.decoder.split_heads(value)) for key, value in pairs]

    def reorder(self, sentences: Int[Tensor, " new"]) -> None:
        """Keep these sentences, in this order."""
        self._store(self.kv.index_select(0, sentences), self.mask.index_select(0, sentences))

    def compact(self, num_left: int, holes: Tensor, movers: Tensor) -> None:
        """See `compact_rows`."""
        kv, mask = (compact_rows(tensor, num_left, holes, movers) for tensor in (self.kv, self.mask))
        self._store(kv, mask)

    def attend(self, x: Float[Tensor, "rows dim"], index: int, beam_width: int) -> Float[Tensor, "rows dim"]:
        """Cross-attention of layer `index`; the `beam_width` rows of a sentence are one batch entry."""
        layer, dim = self.decoder.layers[index], self.decoder.embed_dim
        query = self.decoder.split_heads(layer.cross_q_proj(x).view(-1, beam_width, dim))
        self.queries.append(query)
        context = F.scaled_dot_product_attention(query, *self.layers[index], self.mask)
        return layer.cross_out_proj(context.transpose(1, 2).reshape(-1, dim))

    def weights(self) -> Float[Tensor, "sentences width src_len"]:
        """Cross-attention weights of the last step, averaged over layers and heads."""
        weights = []
        for query, (key, _) in zip(self.queries, self.layers, strict=True):
            scores = query @ key.mT / math.sqrt(query.shape[-1]) + self.mask
            weights.append(scores[..., : self.src_len].softmax(-1).mean(1))
        return torch.stack(weights).mean(0)


def compact_rows(tensor: Tensor, num_left: int, holes: Tensor, movers: Tensor) -> Tensor:
    """Move rows into holes and keep the first `num_left` rows, in place.

    Args:
        tensor: rows on the first axis
        num_left: number of rows to keep
        holes: rows below `num_left` that are overwritten
        movers: rows from `num_left` on that move there

    Returns:
        the first `num_left` rows

    Example:
        >>> compact_rows(torch.arange(4), 2, torch.tensor([0]), torch.tensor([3])).tolist()
        [3, 1]
    """
    tensor.index_copy_(0, holes, tensor.index_select(0, movers))
    return tensor[:num_left]


class FusedDecoderState:
    """`TransformerDecoderState` by fused operations; rows are sentences x width, neighbors share a sentence.

    Args:
        decoder: the fused weights
        memory: encoder output
        lengths: numbers of source tokens

    Example:
        >>> from regard.models import Transformer
        >>> model = Transformer(11, 13, embed_dim=16, num_heads=2, num_encoder_layers=2, ffn_dim=32).eval()
        >>> with torch.no_grad():
        ...     decoder = model.start_decoding(torch.randint(4, 11, (2, 5)), torch.tensor([5, 3]))
        ...     type(decoder).__name__, decoder.step(torch.tensor([1, 1])).shape
        ('FusedDecoderState', torch.Size([2, 13]))
    """

    def __init__(
        self, decoder: FusedDecoder, memory: Float[Tensor, "sentences src_len dim"], lengths: Int[Tensor, " sentences"]
    ):
        self.decoder, self.beam_width, self.length = decoder, 1, 0
        self.source_kv = SourceKV(decoder, memory, lengths)
        self.slots = RowSlots(len(memory), memory.device)
        self.num_cached = 0  # tokens of each sentence, of all its rows, in the cache
        self.cache = memory.new_zeros(len(memory), len(decoder.layers), 0, 2 * decoder.embed_dim)
        self.visibility = memory.new_zeros(len(memory), 1, 0)  # 0 where a row sees a cached token, else -inf
        self.position_encodings = decoder.position_encodings(0, BUFFER_STEPS)
        self.buffer: Tensor | None = None

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocab"]:
        """Logits of the next token of each row, given the token before it."""
        return self.decoder.output_projection(self._hidden_after(tokens))

    def base2_logits(self, tokens: Int[Tensor, " rows"], block_size: int) -> Float[Tensor, "rows padded"]:
        """The logits of `step` divided by ln 2, in float32, padded with -inf to a multiple of `block_size`."""
        projection = self.decoder.output_projection
        self.buffer = base2_logits(projection, self._hidden_after(tokens), block_size, self.buffer)
        return self.buffer

    def _hidden_after(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows dim"]:
        decoder, width = self.decoder, self.beam_width
        tokens = self.slots.to_slots(tokens.view(-1, width)).flatten()
        if self.length == len(self.position_encodings):
            self.position_encodings = decoder.position_encodings(0, 2 * self.length)
        embedded = F.embedding(tokens, decoder.embed_weight)
        x = torch.add(self.position_encodings[self.length], embedded, alpha=decoder.embed_scale)
        self._append_new_tokens()
        self.source_kv.queries.clear()
        for index, layer in enumerate(decoder.layers):
            x = self._run_layer(x, layer, index)
        x = self.slots.from_slots(x.view(-1, width, decoder.embed_dim)).flatten(0, 1)
        self.length += 1
        return x if decoder.final_norm is None else decoder.final_norm(x)

    def _run_layer(
        self, x: Float[Tensor, "rows dim"], layer: FusedDecoderLayer, index: int
    ) -> Float[Tensor, "rows dim"]:
        norm_first, (norm1, norm2, norm3) = self.decoder.norm_first, layer.norms
        qkv = layer.qkv_proj(norm1(x) if norm_first else x)
        x = layer.self_out_proj(self._attend_to_target(qkv, index)).add_(x)
        x = x if norm_first else norm1(x)

        x = self.source_kv.attend(norm2(x) if norm_first else x, index, self.beam_width).add_(x)
        x = x if norm_first else norm2(x)

        inner = layer.linear1(norm3(x) if norm_first else x).relu_()
        x = layer.linear2(inner).add_(x)
        return x if norm_first else norm3(x)

    def _attend_to_target(self, qkv: Float[Tensor, "rows qkv_dim"], index: int) -> Float[Tensor, "rows dim"]:
        """Self-attention; keys and values of the new tokens are written to the end of the cache."""
        dim, stop = self.decoder.embed_dim, round_up_to_vector(self.num_cached)
        qkv = qkv.view(-1, self.beam_width, 3 * dim)
        cache = self.cache[:, index, :stop]
        cache[:, self.num_cached - self.beam_width : self.num_cached] = qkv[..., dim:]
        query, key, value = (
            self.decoder.split_heads(part) for part in (qkv[..., :dim], cache[..., :dim], cache[..., dim:])
        )
        mask = self.visibility[:, None, :, :stop]
        return F.scaled_dot_product_attention(query, key, value, mask).transpose(1, 2).reshape(-1, dim)

    def _append_new_tokens(self) -> None:
        """Make room in the cache for one token of each row, which that row alone sees."""
        before, capacity = self.num_cached, self.visibility.shape[2]
        self.num_cached += self.beam_width
        if self.num_cached > capacity:
            added = round_up_to_vector(max(2 * before, BUFFER_STEPS * self.beam_width)) - capacity
            cache = self.cache.new_empty(*self.cache.shape[:2], capacity + added, self.cache.shape[3])
            cache[:, :, :before] = self.cache[:, :, :before]
            self.cache, self.visibility = cache, F.pad(self.visibility, (0, added), value=-math.inf)
        if round_up_to_vector(self.num_cached) > round_up_to_vector(before):
            # Masked keys must still be finite.
            self.cache[:, :, round_up_to_vector(before) : round_up_to_vector(self.num_cached)] = 0
        self.visibility[:, :, before : self.num_cached].diagonal(dim1=1, dim2=2).zero_()

    def weights(self) -> Float[Tensor, "rows src_len"]:
        """Cross-attention weights of the last step, averaged over layers and heads."""
        return self.slots.from_slots(self.source_kv.weights()).flatten(0, 1)

    def reorder(self, rows: Int[Tensor, " new_rows"]) -> None:
        """Continue with these rows; a row may be repeated or left out."""
        sentences = self.slots.slots_of(rows // self.beam_width)
        self.visibility = self.visibility[sentences, rows % self.beam_width][:, None]
        self.cache = self.cache.index_select(0, sentences)
        self.source_kv.reorder(sentences)
        self.slots, self.beam_width = RowSlots(len(rows), rows.device), 1

    def reorder_beams(self, rows: Int[Tensor, "sentences width"]) -> None:
        """`reorder` where each line of `rows` is the beam of one sentence, and sentences keep their order."""
        if len(rows) < len(self.slots):
            moves = self.slots.remove(rows[:, 0] // self.beam_width)
            compact_rows(self.cache[:, :, : self.num_cached], *moves)
            self.cache, self.visibility = self.cache[: len(rows)], compact_rows(self.visibility, *moves)
            self.source_kv.compact(*moves)
        parents = self.slots.to_slots(rows % self.beam_width)
        self.visibility = self.visibility.gather(1, parents[:, :, None].expand(-1, -1, self.visibility.shape[2]))
        self.beam_width = rows.shape[1]
