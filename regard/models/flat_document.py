"""A document read as one sequence of words, in parts if it is long, and one vector for all of it."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.pooling import SequenceAttentionPool, SequenceMaxPool
from regard.models.hierarchical import HierarchicalWeights, split_by_length
from regard.models.layers import FastDropout

RowCounts = Int[Tensor, " rows"]


class FlatDocumentClassifier(nn.Module):
    """Reads the words of a document with any layers, looks at all of them, and says its class.

        h_1, h_2, ... = reader(words)        d = pool of h_1, h_2, ...        class scores = W d + b

    `reader` is what turns words and their lengths into vectors, such as a `Mixed`. A document of more than `span`
    words is read in parts of nearly equal size, each by itself; `pool` looks at the words of all. Documents come as
    in a `Hierarchical`, end to end; where their sentences end does not matter here.

    >>> from regard.models import mixed
    >>> reader = mixed.HybridEncoder(vocab_size=20, embed_dim=8, layers=[mixed.SelfAttentionLayer(8, num_heads=2)])
    >>> model = FlatDocumentClassifier(reader, SequenceAttentionPool(Attention(Additive(None, key_dim=8, hidden_dim=4))), embed_dim=8, num_classes=3, max_span=4)
    >>> words, lengths, counts = torch.randint(4, 20, (9,)), torch.tensor([2, 4, 3]), torch.tensor([2, 1])
    >>> model(words, lengths, counts).shape
    torch.Size([2, 3])
    >>> [tuple(weights.shape) for weights in model.attention_weights(words, lengths, counts)]
    [(3, 4), (2, 2)]
    """

    def __init__(
        self,
        encoder: nn.Module,
        pool: SequenceAttentionPool | SequenceMaxPool,
        embed_dim: int,
        num_classes: int,
        *,
        max_span: int = 256,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.encoder, self.pool, self.max_span = encoder, pool, max_span
        self.classifier, self.dropout = nn.Linear(embed_dim, num_classes), FastDropout(dropout)

    def forward(
        self,
        tokens: Int[Tensor, " words"],
        lengths: Int[Tensor, " sentences"],
        counts: Int[Tensor, " documents"],
    ) -> Float[Tensor, "documents classes"]:
        """The scores of each class, before any softmax."""
        totals = segment_sum(lengths, counts)
        return self.classifier(self.dropout(self._pool(self._encode_tokens(tokens, totals), totals)[0]))

    def attention_weights(
        self,
        tokens: Int[Tensor, " words"],
        lengths: Int[Tensor, " sentences"],
        counts: Int[Tensor, " documents"],
    ) -> HierarchicalWeights:
        """The weights of words, told as those of a word in its sentence and of a sentence in its document."""
        totals = segment_sum(lengths, counts)
        weights = self._pool(self._encode_tokens(tokens, totals), totals, need_weights=True)[1]
        assert weights is not None
        sentences = segment_sum(weights, lengths)
        within = weights / sentences.clamp(min=torch.finfo(weights.dtype).tiny).repeat_interleave(lengths)
        return HierarchicalWeights(_pad_rows(within, lengths), _pad_rows(sentences, counts))

    def _encode_tokens(self, tokens: Tensor, totals: RowCounts) -> Float[Tensor, "words dim"]:
        """A vector for each word; parts of near lengths are read together."""
        sizes = split_lengths(totals, self.max_span)
        starts, order = sizes.cumsum(0) - sizes, sizes.argsort(descending=True, stable=True)
        places, states = [], []
        for rows in _group_by_size(sizes, order):
            where, inside = _padded_indices(starts[rows], sizes[rows])
            read = self.encoder(tokens[where], sizes[rows])
            places.append(where[inside])
            states.append(read[inside])
        return torch.cat(states)[torch.cat(places).argsort()]

    def _pool(
        self, states: Float[Tensor, "words dim"], totals: RowCounts, need_weights: bool = False
    ) -> tuple[Float[Tensor, "documents dim"], Float[Tensor, " words"] | None]:
        """One vector for each document; the weights of its words, if they are wanted."""
        starts, order = totals.cumsum(0) - totals, totals.argsort(descending=True, stable=True)
        vectors, places, looks = [], [], []
        for rows in _group_by_size(totals, order):
            where, inside = _padded_indices(starts[rows], totals[rows])
            vector, look = self.pool(states[where], totals[rows], need_weights)
            vectors.append(vector)
            if look is not None:
                places.append(where[inside])
                looks.append(look[inside])
        found = torch.cat(looks)[torch.cat(places).argsort()] if looks else None
        return torch.cat(vectors)[order.argsort()], found


def split_lengths(totals: RowCounts, max_span: int) -> Int[Tensor, " parts"]:
    """How many words each part has: a document's are of nearly equal size, and at most `span` long.

    >>> split_lengths(torch.tensor([3, 10]), max_span=4).tolist()
    [3, 4, 3, 3]
    """
    counts = -(-totals // max_span)
    place = torch.arange(int(counts.sum()), device=totals.device)
    place = place - (counts.cumsum(0) - counts).repeat_interleave(counts)
    totals, counts = totals.repeat_interleave(counts), counts.repeat_interleave(counts)
    return totals // counts + (place < totals % counts)


def segment_sum(values: Tensor, counts: Int[Tensor, " rows"]) -> Tensor:
    """The sum of the first counts[0] values, of the next counts[1], and so on.

    >>> segment_sum(torch.tensor([1, 2, 3]), torch.tensor([2, 1])).tolist()
    [3, 3]
    """
    row = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    return values.new_zeros(len(counts)).index_add_(0, row, values)


def _group_by_size(sizes: RowCounts, order: RowCounts) -> list[Tensor]:
    """The rows in groups of near sizes, the largest first."""
    return [order[first:last] for first, last, _ in split_by_length(sizes[order].tolist())]


def _padded_indices(starts: RowCounts, sizes: RowCounts) -> tuple[Int[Tensor, "rows longest"], Tensor]:
    """Where the words of each row are, and which places are no filling; that points at the row's first word."""
    steps = torch.arange(int(sizes.max()), device=sizes.device)
    inside = steps < sizes[:, None]
    return starts[:, None] + steps * inside, inside


def _pad_rows(values: Float[Tensor, " values"], sizes: RowCounts) -> Float[Tensor, "rows longest"]:
    """Values that stand end to end as rows, 0 where there is none."""
    places, inside = _padded_indices(sizes.cumsum(0) - sizes, sizes)
    return values[places] * inside
