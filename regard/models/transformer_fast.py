"""Fast decoding with a Transformer: exactly `TransformerDecoderState`, in fewer operations.

Query, key and value are one product. The hypotheses of a sentence share the keys of the source, and in self-attention
each attends, among all tokens that any of them has generated, to its own prefix by a mask. So reordering a beam copies
only the mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from regard.attention import Dropout, Learned, MultiHead, ScaledDot, Sinusoidal
from regard.models import fast_decoding
from regard.models.layers import ACTIVATIONS, FastDropout, FeedForward, TokenEmbedding
from regard.models.transformer_layers import TransformerDecoder, TransformerDecoderLayer

if TYPE_CHECKING:
    from regard.models.transformer import Transformer

__all__ = ["FusedDecoder", "FusedDecoderState", "RowSlots", "compact_rows", "fuse_decoder", "round_up_to_vector"]

VECTOR_SIZE = 16  # keys; PyTorch's fused attention needs half the time for multiples of it
BUFFER_STEPS = 16  # initial capacity of the cache, in tokens per hypothesis
Rows = Float[Tensor, "rows dim"]
Memory = Float[Tensor, "sentences src_len dim"]
Lengths = Int[Tensor, " sentences"]
INLINED = (
    *(TransformerDecoder, TransformerDecoderLayer, FeedForward, TokenEmbedding, FastDropout),
    *(MultiHead, ScaledDot, Dropout, Sinusoidal, Learned, nn.Linear, nn.LayerNorm, nn.ModuleList, nn.Identity),
)


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
        feed_forward = cast(FeedForward, layer.feed_forward)
        self.linear1, self.linear2 = _fuse_linears(feed_forward.linear1), _fuse_linears(feed_forward.linear2)
        self.activation = torch.relu_ if feed_forward.activation == "relu" else ACTIVATIONS[feed_forward.activation]
        self.norms = [_fuse_norm(cast(nn.LayerNorm, norm)) for norm in (layer.norm1, layer.norm2, layer.norm3)]


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
        layers = cast("list[TransformerDecoderLayer]", list(model.decoder.layers))
        self.layers = [FusedDecoderLayer(layer) for layer in layers]
        cross_attns = [layer.cross_attn for layer in layers]
        self.memory_kv_proj = _fuse_linears(*(proj for attn in cross_attns for proj in (attn.k_proj, attn.v_proj)))
        self_attn = layers[0].self_attn
        self.embed_dim, self.num_heads = self_attn.embed_dim, self_attn.num_heads
        self.norm_first = layers[0].norm_first
        self.final_norm = _fuse_norm(cast(nn.LayerNorm, model.decoder.norm)) if self.norm_first else None
        embed = model.tgt_embed
        self.embed_weight, self.embed_scale = embed.weight, embed.scale
        self.embed_norm = None if embed.norm is None else _fuse_norm(cast(nn.LayerNorm, embed.norm))
        self.positions = embed.positions
        self.output_projection = fast_decoding.cached_output_projection(model.lm_head)

    def split_heads(
        self, projected: Float[Tensor, "batch positions dim"]
    ) -> Float[Tensor, "batch heads positions head_dim"]:
        """Split the last axis into heads."""
        head_dim = self.embed_dim // self.num_heads
        return projected.view(*projected.shape[:2], self.num_heads, head_dim).transpose(1, 2)

    def position_encodings(self, length: int) -> Float[Tensor, "count dim"]:
        """The encodings of the first positions, at least `length` of them."""
        positions, embed_weight = self.positions, self.embed_weight
        if isinstance(positions, Learned):
            positions.check_positions(0, length)
            return positions.table
        count = max(BUFFER_STEPS, 2 * (length - 1))
        if positions is None:
            return embed_weight.new_zeros(count, self.embed_dim)
        return cast(Sinusoidal, positions).encoding(count, 0, dtype=embed_weight.dtype, device=embed_weight.device)


FUSED_DECODERS: fast_decoding.WeightCache[FusedDecoder] = WeakKeyDictionary()


def fuse_decoder(model: Transformer) -> FusedDecoder | None:
    """The fused decoder of a Transformer, cached as long as its weights are unchanged.

    None if every module must be called: with gradients, watchers, hooks, compilation or autocast, with attention other
    than the paper's, relative positions, gated feed-forward networks or normalizations other than layer norm.

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
    if not (fast_decoding.can_fuse(model.lm_head.weight, modules, INLINED) and _has_standard_layers(model)):
        return None
    return fast_decoding.get_or_build(FUSED_DECODERS, model, modules, lambda: FusedDecoder(model))


def _has_standard_layers(model: Transformer) -> bool:
    """Whether all decoder layers are the paper's but for the activation, with the same number of heads."""
    layers = cast("list[TransformerDecoderLayer]", list(model.decoder.layers))
    attentions = [attention for layer in layers for attention in (layer.self_attn, layer.cross_attn)]
    return (
        type(model.tgt_embed.positions) in (Sinusoidal, Learned, type(None))
        and all(isinstance(layer.feed_forward, FeedForward) for layer in layers)
        and all(cast(FeedForward, layer.feed_forward).linear3 is None for layer in layers)
        and all(type(layer)._residual is TransformerDecoderLayer._residual for layer in layers)
        and all(isinstance(attention, MultiHead) and type(attention.score) is ScaledDot for attention in attentions)
        and all(attention.is_standard for attention in attentions)
        and all(map(fast_decoding.applies_softmax, attentions))
        and len({(attention.num_heads, attention.q_proj.bias is None) for attention in attentions}) == 1
    )


def _fuse_linears(*layers: nn.Linear) -> Callable[[Tensor], Tensor]:
    """One or more linear layers as one product, with a contiguous transposed weight."""
    weight_t = torch.cat(tuple(layer.weight for layer in layers)).t().contiguous()
    biases = tuple(layer.bias for layer in layers if layer._parameters["bias"] is not None)
    if not biases:
        return lambda x: torch.mm(x, weight_t)
    bias = torch.cat(biases)
    return lambda x: torch.addmm(bias, x, weight_t)


def _fuse_norm(norm: nn.LayerNorm) -> Callable[[Tensor], Tensor]:
    """Layer norm without the overhead of a module."""
    shape, weight, bias, eps = tuple(norm.normalized_shape), norm.weight, norm.bias, norm.eps
    return lambda x: torch.layer_norm(x, shape, weight, bias, eps, False)


class FusedDecoderState(fast_decoding.ProjectedState):
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

    def __init__(self, decoder: FusedDecoder, memory: Memory, lengths: Lengths):
        super().__init__(decoder.output_projection)
        self.decoder, self.beam_width, self.length = decoder, 1, 0
        self.slots = RowSlots(len(memory), memory.device)
        self.num_cached = 0  # tokens of each sentence, of all its rows, in the cache
        self.cache = memory.new_zeros(len(memory), len(decoder.layers), 0, 2 * decoder.embed_dim)
        self.visibility = memory.new_zeros(len(memory), 1, 0)  # 0 where a row sees a cached token, else -inf
        self.position_encodings = decoder.position_encodings(1)
        self.source_queries: list[Tensor] = []  # of each layer, in the last step
        self.src_len, padded = memory.shape[1], round_up_to_vector(memory.shape[1])
        memory = F.pad(memory, (0, 0, 0, padded - self.src_len))
        kv = decoder.memory_kv_proj(memory.flatten(0, 1)).view(len(memory), padded, -1, 2 * decoder.embed_dim)
        is_token = torch.arange(padded, device=lengths.device) < lengths[:, None]
        mask = memory.new_zeros(len(memory), 1, 1, padded).masked_fill_(~is_token[:, None, None], -math.inf)
        self._store_source(kv.transpose(1, 2).contiguous(), mask)

    def _store_source(self, kv: Float[Tensor, "sentences layers src_len kv_dim"], mask: Tensor) -> None:
        """Keep keys and values of the source for all layers, in one tensor, and a mask: -inf on padding."""
        self.source_kv, self.source_mask = kv, mask
        pairs = [kv[:, index].split(self.decoder.embed_dim, -1) for index in range(kv.shape[1])]
        self.source_layers = [(self.decoder.split_heads(key), self.decoder.split_heads(value)) for key, value in pairs]

    def advance(self, tokens: Int[Tensor, " rows"]) -> Rows:
        """The hidden state of each row after its next token."""
        decoder, width = self.decoder, self.beam_width
        tokens = self.slots.to_slots(tokens.view(-1, width)).flatten()
        if self.length == len(self.position_encodings):
            self.position_encodings = decoder.position_encodings(self.length + 1)
        embedded = F.embedding(tokens, decoder.embed_weight)
        x = torch.add(self.position_encodings[self.length], embedded, alpha=decoder.embed_scale)
        x = x if decoder.embed_norm is None else decoder.embed_norm(x)
        self._append_new_tokens()
        self.source_queries.clear()
        for index, layer in enumerate(decoder.layers):
            x = self._run_layer(x, layer, index)
        x = self.slots.from_slots(x.view(-1, width, decoder.embed_dim)).flatten(0, 1)
        self.length += 1
        return x if decoder.final_norm is None else decoder.final_norm(x)

    def _run_layer(self, x: Rows, layer: FusedDecoderLayer, index: int) -> Rows:
        norm_first, (norm1, norm2, norm3) = self.decoder.norm_first, layer.norms
        qkv = layer.qkv_proj(norm1(x) if norm_first else x)
        x = layer.self_out_proj(self._attend_to_target(qkv, index)).add_(x)
        x = x if norm_first else norm1(x)

        x = self._attend_to_source(norm2(x) if norm_first else x, layer, index).add_(x)
        x = x if norm_first else norm2(x)

        inner = layer.activation(layer.linear1(norm3(x) if norm_first else x))
        x = layer.linear2(inner).add_(x)
        return x if norm_first else norm3(x)

    def _attend_to_target(self, qkv: Float[Tensor, "rows qkv_dim"], index: int) -> Rows:
        """Self-attention; keys and values of the new tokens are written to the end of the cache."""
        dim, stop = self.decoder.embed_dim, round_up_to_vector(self.num_cached)
        qkv = qkv.view(-1, self.beam_width, 3 * dim)
        cache = self.cache[:, index, :stop]
        cache[:, self.num_cached - self.beam_width : self.num_cached] = qkv[..., dim:]
        parts = (qkv[..., :dim], cache[..., :dim], cache[..., dim:])
        query, key, value = map(self.decoder.split_heads, parts)
        mask = self.visibility[:, None, :, :stop]
        return F.scaled_dot_product_attention(query, key, value, mask).transpose(1, 2).reshape(-1, dim)

    def _attend_to_source(self, x: Rows, layer: FusedDecoderLayer, index: int) -> Rows:
        """Cross-attention of layer `index`; the rows of a sentence are one batch entry."""
        dim = self.decoder.embed_dim
        query = self.decoder.split_heads(layer.cross_q_proj(x).view(-1, self.beam_width, dim))
        self.source_queries.append(query)
        context = F.scaled_dot_product_attention(query, *self.source_layers[index], self.source_mask)
        return layer.cross_out_proj(context.transpose(1, 2).reshape(-1, dim))

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
        layers = []
        for query, (key, _) in zip(self.source_queries, self.source_layers, strict=True):
            scores = query @ key.mT / math.sqrt(query.shape[-1]) + self.source_mask
            layers.append(scores[..., : self.src_len].softmax(-1).mean(1))
        return self.slots.from_slots(torch.stack(layers).mean(0)).flatten(0, 1)

    def reorder(self, rows: Int[Tensor, " new_rows"]) -> None:
        """Continue with these rows; a row may be repeated or left out."""
        sentences = self.slots.slots[rows // self.beam_width]
        self.visibility = self.visibility[sentences, rows % self.beam_width][:, None]
        self.cache = self.cache.index_select(0, sentences)
        self._store_source(self.source_kv.index_select(0, sentences), self.source_mask.index_select(0, sentences))
        self.slots, self.beam_width = RowSlots(len(rows), rows.device), 1

    def reorder_beams(self, rows: Int[Tensor, "sentences width"]) -> None:
        """`reorder` where each line of `rows` is the beam of one sentence, and sentences keep their order."""
        if len(rows) < len(self.slots):
            moves = self.slots.remove(rows[:, 0] // self.beam_width)
            compact_rows(self.cache[:, :, : self.num_cached], *moves)
            self.cache, self.visibility = self.cache[: len(rows)], compact_rows(self.visibility, *moves)
            self._store_source(compact_rows(self.source_kv, *moves), compact_rows(self.source_mask, *moves))
        parents = self.slots.to_slots(rows % self.beam_width)
        self.visibility = self.visibility.gather(1, parents[:, :, None].expand(-1, -1, self.visibility.shape[2]))
        self.beam_width = rows.shape[1]


def compact_rows(tensor: Tensor, num_left: int, holes: Tensor, movers: Tensor) -> Tensor:
    """Move rows into holes and keep the first `num_left` rows, in place.

    Args:
        tensor: rows on the first axis
        num_left: number of rows to keep
        holes: rows below `num_left` that are overwritten
        movers: rows from `num_left` on that move there

    Shape: tensor (rows, *), holes and movers (moved,) -> (num_left, *)

    Returns:
        the first `num_left` rows

    Example:
        >>> compact_rows(torch.arange(4), 2, torch.tensor([0]), torch.tensor([3])).tolist()
        [3, 1]
    """
    tensor.index_copy_(0, holes, tensor.index_select(0, movers))
    return tensor[:num_left]


class RowSlots:
    """Slots in which the sentences of a batch are stored.

    A removed sentence leaves a hole, which a sentence from the end fills: few are moved, but the order changes.

    Args:
        num_rows: number of sentences
        device: device of the index tensors

    Example:
        >>> slots = RowSlots(5, torch.device("cpu"))
        >>> slots.remove(torch.tensor([0, 2, 4]))  # three remain; the last one moves to slot 1
        (3, tensor([1]), tensor([4]))
        >>> stored = torch.tensor([[10], [14], [12]])
        >>> slots.from_slots(stored).flatten().tolist()
        [10, 12, 14]
    """

    def __init__(self, num_rows: int, device: torch.device):
        self.slots = torch.arange(num_rows, device=device)  # the slot of each sentence
        self.order: Tensor | None = None  # the sentence in each slot; None if they are in order

    def __len__(self) -> int:
        return len(self.slots)

    def to_slots(self, values: Shaped[Tensor, "sentences *_"]) -> Shaped[Tensor, "sentences *_"]:
        """From the order of sentences to the order of slots."""
        return values if self.order is None else values.index_select(0, self.order)

    def from_slots(self, values: Shaped[Tensor, "sentences *_"]) -> Shaped[Tensor, "sentences *_"]:
        """From the order of slots to the order of sentences."""
        return values if self.order is None else values.index_select(0, self.slots)

    def remove(self, remaining: Int[Tensor, " remaining"]) -> tuple[int, Tensor, Tensor]:
        """Remove all other sentences.

        Returns:
            how many remain, the holes among their slots, and the slots that move there
        """
        num_left, slots = len(remaining), self.slots[remaining]
        is_free = torch.ones(num_left, dtype=torch.bool, device=slots.device)
        is_low = slots < num_left
        is_free[slots[is_low]] = False
        holes, movers = is_free.nonzero().flatten(), slots[~is_low]
        slots[~is_low] = holes
        self.slots, self.order = slots, slots.argsort()
        return num_left, holes, movers


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
