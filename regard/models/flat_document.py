"""Document classification without sentences: one sequence of words, encoded in parts if it is long, and one vector."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import AttentionPool, MaxPool
from regard.attention.module import Device, Dtype, ResettableModule
from regard.models.hierarchical import Counts, HierarchicalWeights, Lengths, Tokens, pool_rows, split_by_length
from regard.models.layers import FastDropout

__all__ = ["FlatDocumentClassifier", "segment_sum", "split_lengths"]

RowCounts = Int[Tensor, " rows"]


class FlatDocumentClassifier(ResettableModule):
    """Document classification with any encoder and pooling over all words.

        h_1, h_2, ... = encoder(words)        d = pool(h_1, h_2, ...)        logits = W d + b

    A document of more than `max_span` words is encoded in parts of nearly equal size, independently; `pool` gets the
    words of all parts. Documents come as in a `HierarchicalAttentionNetwork`; sentence ends do not matter here.

    Args:
        encoder: from tokens (batch, seq_len) and lengths (batch,) to vectors (batch, seq_len, embed_dim), such as a
            `HybridEncoder`
        pool: pools the words of a document
        embed_dim: size of the encoder's vectors
        num_classes: number of classes
        max_span: words that are encoded together
        dropout: probability of dropout on documents
        device, dtype: of the classifier's parameters, as in PyTorch; `encoder` and `pool` have their own

    Shape: tokens (tokens,) of all sentences end to end, lengths (sentences,) in tokens, counts (documents,) in
        sentences -> (documents, num_classes)

    Example:
        >>> from regard.models.hybrid_encoder import HybridEncoder, SelfAttentionLayer
        >>> encoder = HybridEncoder(20, 8, [SelfAttentionLayer(8, 2)])
        >>> pool = AttentionPool(Attention(Additive(None, key_dim=8, hidden_dim=4)))
        >>> model = FlatDocumentClassifier(encoder, pool, embed_dim=8, num_classes=3, max_span=4)
        >>> tokens, lengths, counts = torch.randint(4, 20, (9,)), torch.tensor([2, 4, 3]), torch.tensor([2, 1])
        >>> model(tokens, lengths, counts).shape
        torch.Size([2, 3])
        >>> [tuple(weights.shape) for weights in model.attention_weights(tokens, lengths, counts)]
        [(3, 4), (2, 2)]
    """

    def __init__(
        self,
        encoder: nn.Module,
        pool: AttentionPool | MaxPool,
        embed_dim: int,
        num_classes: int,
        *,
        max_span: int = 256,
        dropout: float = 0.0,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        self.encoder, self.pool, self.max_span = encoder, pool, max_span
        self.classifier = nn.Linear(embed_dim, num_classes, device=device, dtype=dtype)
        self.dropout = FastDropout(dropout)

    def forward(self, tokens: Tokens, lengths: Lengths, counts: Counts) -> Float[Tensor, "documents classes"]:
        """Logits of the classes."""
        return self.classifier(self.dropout(self._pool(tokens, segment_sum(lengths, counts))[0]))

    def attention_weights(self, tokens: Tokens, lengths: Lengths, counts: Counts) -> HierarchicalWeights:
        """The weights of words as products: of a word in its sentence and of the sentence in its document."""
        weights = self._pool(tokens, segment_sum(lengths, counts), need_weights=True)[1]
        assert weights is not None
        sentences = segment_sum(weights, lengths)
        within = weights / sentences.clamp(min=torch.finfo(weights.dtype).tiny).repeat_interleave(lengths)
        return HierarchicalWeights(_pad_rows(within, lengths), _pad_rows(sentences, counts))

    def _encode_tokens(self, tokens: Tensor, totals: RowCounts) -> Float[Tensor, "tokens embed_dim"]:
        """A vector per token; parts of similar length are encoded in one batch."""
        sizes = split_lengths(totals, self.max_span)
        starts, order = sizes.cumsum(0) - sizes, sizes.argsort(descending=True, stable=True)
        indices, states = [], []
        for first, last, _ in split_by_length(sizes[order].tolist()):
            rows = order[first:last]
            padded, is_inside = _padded_indices(starts[rows], sizes[rows])
            encoded = self.encoder(tokens[padded], sizes[rows])
            indices.append(padded[is_inside])
            states.append(encoded[is_inside])
        return torch.cat(states)[torch.cat(indices).argsort()]

    def _pool(
        self, tokens: Tensor, totals: RowCounts, need_weights: bool = False
    ) -> tuple[Float[Tensor, "documents embed_dim"], Float[Tensor, " tokens"] | None]:
        """One vector per document, and the weights of its tokens if `need_weights`."""
        indices, is_inside = _padded_indices(totals.cumsum(0) - totals, totals)
        vectors = self._encode_tokens(tokens, totals)
        contexts, weights = pool_rows(self.pool, vectors, indices, totals, need_weights)
        return contexts, None if weights is None else weights[is_inside]

    def extra_repr(self) -> str:
        return f"max_span={self.max_span}"


def split_lengths(totals: RowCounts, max_span: int) -> Int[Tensor, " parts"]:
    """Sizes of the parts of each document: nearly equal within a document, and at most `max_span`.

    Args:
        totals: words of each document
        max_span: words of the longest part

    Returns:
        the sizes of the parts of all documents

    Example:
        >>> split_lengths(torch.tensor([3, 10]), max_span=4).tolist()
        [3, 4, 3, 3]
    """
    counts = -(-totals // max_span)
    part = torch.arange(int(counts.sum()), device=totals.device)
    part = part - (counts.cumsum(0) - counts).repeat_interleave(counts)
    totals, counts = totals.repeat_interleave(counts), counts.repeat_interleave(counts)
    return totals // counts + (part < totals % counts)


def segment_sum(values: Tensor, counts: Int[Tensor, " rows"]) -> Tensor:
    """The sum of the first counts[0] values, of the next counts[1], and so on.

    Args:
        values: the values of all rows, end to end
        counts: values of each row

    Shape: values (values,), counts (rows,) -> (rows,)

    Returns:
        the sum of each row

    Example:
        >>> segment_sum(torch.tensor([1, 2, 3]), torch.tensor([2, 1])).tolist()
        [3, 3]
    """
    row = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    return values.new_zeros(len(counts)).index_add_(0, row, values)


def _padded_indices(starts: RowCounts, sizes: RowCounts) -> tuple[Int[Tensor, "rows longest"], Tensor]:
    """The index of each row's tokens, and a mask that is False on padding, which has the index of the first token."""
    steps = torch.arange(int(sizes.max()), device=sizes.device)
    is_inside = steps < sizes[:, None]
    return starts[:, None] + steps * is_inside, is_inside


def _pad_rows(values: Float[Tensor, " values"], sizes: RowCounts) -> Float[Tensor, "rows longest"]:
    """Values that stand end to end as rows, padded with 0."""
    indices, is_inside = _padded_indices(sizes.cumsum(0) - sizes, sizes)
    return values[indices] * is_inside
