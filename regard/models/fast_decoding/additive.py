"""Additive attention over fixed keys for many steps, with the keys stored as exponentials."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import Additive, Attention, Dropout, softmax
from regard.attention.fast.additive import FACTOR_MARGIN, FACTOR_REACH, TANH_SCALE

__all__ = ["AttentionStep", "FactoredAdditive", "factor_memory"]

MAX_CACHED_PAIRS = 2**18  # pairs x hidden_dim that fit into the cache of a core


class AttentionStep(NamedTuple):
    """Attention of one decoding step.

    Args:
        weights: the attention weights

    Example:
        >>> AttentionStep(torch.ones(2, 1, 5) / 5).weights.shape
        torch.Size([2, 1, 5])
    """

    weights: Float[Tensor, "sentences width src_len"]


@dataclass(frozen=True)
class FactoredAdditive:
    """Additive attention over fixed keys, which are stored as exponentials; used like `EncoderMemory`.

        score(q, k) = s sum_h v_h / (1 + A_qh B_kh) + constant          A = e^-s(a + c), B = e^-s(b - c), s = 2 for tanh

    See regard/attention/fast/additive.py. Here c is the center of a sentence's keys, so that B and its range are known
    before any query; softmax cancels the constant. `beam_width` neighboring rows are hypotheses of one sentence.

    Args:
        query_proj: from a state to -s a
        energy: s v
        key: B
        center: -s c
        bound: beyond it the network is saturated for every key
        value: the values
        padding_bias: -inf on padding, else 0
        beam_width: rows of each sentence

    Example:
        >>> from regard.models import RNNSeq2Seq
        >>> model = RNNSeq2Seq(11, 13, Attention(Additive(16, 16, 8)), embed_dim=8, hidden_dim=16)
        >>> with torch.no_grad():
        ...     memory, state = model.encode(torch.randint(4, 11, (2, 5)), torch.tensor([5, 3]))
        ...     factored = factor_memory(memory, model.attention)
        ...     factored.attend(state.top_hidden[:, None], 0)[0].shape
        torch.Size([2, 1, 16])
    """

    query_proj: Float[Tensor, "dim hidden"]
    energy: Float[Tensor, " hidden"]
    key: Float[Tensor, "sentences src_len hidden"]
    center: Float[Tensor, "sentences 1 hidden"]
    bound: Float[Tensor, "sentences 1 hidden"]
    value: Float[Tensor, "sentences src_len value"]
    padding_bias: Float[Tensor, "sentences 1 src_len"]
    beam_width: int = 1

    def __len__(self) -> int:
        return len(self.key)

    def attend(self, query: Float[Tensor, "rows 1 dim"], t: int) -> tuple[Float[Tensor, "rows 1 value"], AttentionStep]:
        """Contexts of the queries, and their weights."""
        queries = torch.mm(query.flatten(0, 1), self.query_proj)
        queries = queries.view(len(self.key), self.beam_width, len(self.energy))
        queries = queries.add_(self.center).clamp_(-self.bound, self.bound).exp_()
        weights = self._scores(queries).add_(self.padding_bias).softmax(-1)
        return torch.bmm(weights, self.value).flatten(0, 1)[:, None], AttentionStep(weights)

    def _scores(self, queries: Float[Tensor, "sentences width hidden"]) -> Float[Tensor, "sentences width src_len"]:
        """Scores, computed for a few sentences at a time."""
        (sentences, src_len, hidden_dim), one = self.key.shape, queries.new_ones(())
        scores = queries.new_empty(sentences, self.beam_width, src_len)
        chunk_size = max(1, MAX_CACHED_PAIRS // (self.beam_width * src_len * hidden_dim))
        buffer = queries.new_empty(min(chunk_size, sentences), self.beam_width, src_len, hidden_dim)
        chunks = zip(queries.split(chunk_size), self.key.split(chunk_size), scores.split(chunk_size), strict=True)
        for query, key, out in chunks:
            pairs = buffer[: len(key)]
            torch.addcmul(one, query[:, :, None], key[:, None], out=pairs).reciprocal_()
            torch.mv(pairs.view(-1, hidden_dim), self.energy, out=out.view(-1))
        return scores

    def reorder(self, sentences: Int[Tensor, " new"]) -> FactoredAdditive:
        """The memory of these sentences."""
        names = ("key", "center", "bound", "value", "padding_bias")
        return replace(self, **{name: getattr(self, name).index_select(0, sentences) for name in names})

    def with_beam_width(self, beam_width: int) -> FactoredAdditive:
        """The same memory for `beam_width` rows per sentence."""
        return replace(self, beam_width=beam_width)


def factor_memory(memory: Any, attention: Any) -> Any:
    """An `EncoderMemory` as `FactoredAdditive`, or the memory itself.

    Args:
        memory: the memory of a recurrent model
        attention: the model's attention

    Returns:
        the factored memory if the attention is additive with softmax, on a CPU, and the range of its keys allows
        exponentials; else the memory

    Example:
        >>> from regard.models import RNNSeq2Seq
        >>> model = RNNSeq2Seq(11, 13, Attention(Additive(16, 16, 8)), embed_dim=8, hidden_dim=16)
        >>> with torch.no_grad():
        ...     memory, _ = model.encode(torch.randint(4, 11, (2, 5)), torch.tensor([5, 3]))
        ...     type(factor_memory(memory, model.attention)).__name__
        'FactoredAdditive'
    """
    if not _is_standard_additive(attention) or memory.projected_kv.key.device.type != "cpu":
        return memory
    projected_kv, score = memory.projected_kv, attention.score
    scale = TANH_SCALE[score.activation]
    key = -scale * projected_kv.key
    low, high = key.amin(1, keepdim=True), key.amax(1, keepdim=True)
    center, reach = (low + high) / 2, (high - low) / 2
    is_in_range = key.numel() and bool(reach.amax() < FACTOR_REACH[key.dtype])
    if not (is_in_range and bool(score.energy.isfinite().all())):
        return memory
    is_token = torch.arange(key.shape[1]) < memory.lengths[:, None]
    return FactoredAdditive(
        query_proj=score.query_proj.weight.t() * -scale,
        energy=score.energy * scale,
        key=key.sub_(center).exp_(),
        center=center,
        bound=reach + FACTOR_MARGIN[key.dtype],
        value=projected_kv.value,
        padding_bias=key.new_zeros(len(key), 1, key.shape[1]).masked_fill_(~is_token[:, None], -math.inf),
    )


def _is_standard_additive(attention: Any) -> bool:
    if type(attention) is not Attention or type(attention.score) is not Additive:
        return False
    normalize = attention.normalize
    inner = normalize.normalize if isinstance(normalize, Dropout) else normalize
    score = attention.score
    return inner in (None, softmax) and score.query_proj is not None and score.activation in TANH_SCALE
