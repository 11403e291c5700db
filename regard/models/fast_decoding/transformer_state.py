"""Fast decoding with a Transformer: exactly `TransformerDecoderState`, in fewer operations.

The hypotheses of a sentence share the keys of the source, and in self-attention each attends, among all tokens that any
of them has generated, to its own prefix by a mask. So reordering a beam copies only the mask.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from regard.models.fast_decoding.shared import ProjectedState
from regard.models.fast_decoding.transformer import FusedDecoder, FusedDecoderLayer

__all__ = ["FusedDecoderState", "RowSlots", "SourceKV", "compact_rows", "round_up_to_vector"]

VECTOR_SIZE = 16  # keys; PyTorch's fused attention needs half the time for multiples of it
Rows = Float[Tensor, "rows dim"]
Memory = Float[Tensor, "sentences src_len dim"]
Lengths = Int[Tensor, " sentences"]
BUFFER_STEPS = 16  # initial capacity of the cache, in tokens per hypothesis


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

    def __init__(self, decoder: FusedDecoder, memory: Memory, lengths: Lengths):
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

    def attend(self, x: Rows, index: int, beam_width: int) -> Rows:
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

    def slots_of(self, sentences: Int[Tensor, " some"]) -> Int[Tensor, " some"]:
        """The slots of these sentences."""
        return self.slots[sentences]

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


class FusedDecoderState(ProjectedState):
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
        self.source_kv = SourceKV(decoder, memory, lengths)
        self.slots = RowSlots(len(memory), memory.device)
        self.num_cached = 0  # tokens of each sentence, of all its rows, in the cache
        self.cache = memory.new_zeros(len(memory), len(decoder.layers), 0, 2 * decoder.embed_dim)
        self.visibility = memory.new_zeros(len(memory), 1, 0)  # 0 where a row sees a cached token, else -inf
        self.position_encodings = decoder.position_encodings(0, BUFFER_STEPS)

    def advance(self, tokens: Int[Tensor, " rows"]) -> Rows:
        """The hidden state of each row after its next token."""
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

    def _run_layer(self, x: Rows, layer: FusedDecoderLayer, index: int) -> Rows:
        norm_first, (norm1, norm2, norm3) = self.decoder.norm_first, layer.norms
        qkv = layer.qkv_proj(norm1(x) if norm_first else x)
        x = layer.self_out_proj(self._attend_to_target(qkv, index)).add_(x)
        x = x if norm_first else norm1(x)

        x = self.source_kv.attend(norm2(x) if norm_first else x, index, self.beam_width).add_(x)
        x = x if norm_first else norm2(x)

        inner = layer.linear1(norm3(x) if norm_first else x).relu_()
        x = layer.linear2(inner).add_(x)
        return x if norm_first else norm3(x)

    def _attend_to_target(self, qkv: Float[Tensor, "rows qkv_dim"], index: int) -> Rows:
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
