"""A document read as one sequence of words, in parts if it is long, and one vector for all of it."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models._dropout import Dropout
from regard.models.hierarchical import Largest, Look, Looks, groups

Numbers = Int[Tensor, " rows"]


class Whole(nn.Module):
    """Reads the words of a document with any layers, looks at all of them, and says its class.

        h_1, h_2, ... = reader(words)        d = pool of h_1, h_2, ...        class scores = W d + b

    `reader` is what turns words and their lengths into vectors, such as a `Mixed`. A document of more than `span`
    words is read in parts of nearly equal size, each by itself; `pool` looks at the words of all. Documents come as
    in a `Hierarchical`, end to end; where their sentences end does not matter here.

    >>> from regard.models import mixed
    >>> reader = mixed.Mixed(words=20, dim=8, layers=[mixed.Attending(8, heads=2)])
    >>> model = Whole(reader, Look(Attention(Additive(None, key_dim=8, hidden_dim=4))), dim=8, classes=3, span=4)
    >>> words, lengths, counts = torch.randint(4, 20, (9,)), torch.tensor([2, 4, 3]), torch.tensor([2, 1])
    >>> model(words, lengths, counts).shape
    torch.Size([2, 3])
    >>> [tuple(weights.shape) for weights in model.looks(words, lengths, counts)]
    [(3, 4), (2, 2)]
    """

    def __init__(
        self,
        reader: nn.Module,
        pool: Look | Largest,
        dim: int,
        classes: int,
        *,
        span: int = 256,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.reader, self.pool, self.span = reader, pool, span
        self.output, self.dropout = nn.Linear(dim, classes), Dropout(dropout)

    def forward(
        self,
        words: Int[Tensor, " words"],
        lengths: Int[Tensor, " sentences"],
        counts: Int[Tensor, " documents"],
    ) -> Float[Tensor, "documents classes"]:
        """The scores of each class, before any softmax."""
        totals = summed(lengths, counts)
        return self.output(self.dropout(self._pooled(self._read(words, totals), totals)[0]))

    def looks(
        self,
        words: Int[Tensor, " words"],
        lengths: Int[Tensor, " sentences"],
        counts: Int[Tensor, " documents"],
    ) -> Looks:
        """The weights of words, told as those of a word in its sentence and of a sentence in its document."""
        totals = summed(lengths, counts)
        weights = self._pooled(self._read(words, totals), totals, weights=True)[1]
        assert weights is not None
        sentences = summed(weights, lengths)
        within = weights / sentences.clamp(min=torch.finfo(weights.dtype).tiny).repeat_interleave(lengths)
        return Looks(_matrix(within, lengths), _matrix(sentences, counts))

    def _read(self, words: Tensor, totals: Numbers) -> Float[Tensor, "words dim"]:
        """A vector for each word; parts of near lengths are read together."""
        sizes = parts(totals, self.span)
        starts, order = sizes.cumsum(0) - sizes, sizes.argsort(descending=True, stable=True)
        places, states = [], []
        for rows in _grouped(sizes, order):
            where, inside = _places(starts[rows], sizes[rows])
            read = self.reader(words[where], sizes[rows])
            places.append(where[inside])
            states.append(read[inside])
        return torch.cat(states)[torch.cat(places).argsort()]

    def _pooled(
        self, states: Float[Tensor, "words dim"], totals: Numbers, weights: bool = False
    ) -> tuple[Float[Tensor, "documents dim"], Float[Tensor, " words"] | None]:
        """One vector for each document; the weights of its words, if they are wanted."""
        starts, order = totals.cumsum(0) - totals, totals.argsort(descending=True, stable=True)
        vectors, places, looks = [], [], []
        for rows in _grouped(totals, order):
            where, inside = _places(starts[rows], totals[rows])
            vector, look = self.pool(states[where], totals[rows], weights)
            vectors.append(vector)
            if look is not None:
                places.append(where[inside])
                looks.append(look[inside])
        found = torch.cat(looks)[torch.cat(places).argsort()] if looks else None
        return torch.cat(vectors)[order.argsort()], found


def parts(totals: Numbers, span: int) -> Int[Tensor, " parts"]:
    """How many words each part has: a document's are of nearly equal size, and at most `span` long.

    >>> parts(torch.tensor([3, 10]), span=4).tolist()
    [3, 4, 3, 3]
    """
    counts = -(-totals // span)
    place = torch.arange(int(counts.sum()), device=totals.device)
    place = place - (counts.cumsum(0) - counts).repeat_interleave(counts)
    totals, counts = totals.repeat_interleave(counts), counts.repeat_interleave(counts)
    return totals // counts + (place < totals % counts)


def summed(values: Tensor, counts: Int[Tensor, " rows"]) -> Tensor:
    """The sum of the first counts[0] values, of the next counts[1], and so on.

    >>> summed(torch.tensor([1, 2, 3]), torch.tensor([2, 1])).tolist()
    [3, 3]
    """
    row = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    return values.new_zeros(len(counts)).index_add_(0, row, values)


def _grouped(sizes: Numbers, order: Numbers) -> list[Tensor]:
    """The rows in groups of near sizes, the largest first."""
    return [order[first:last] for first, last, _ in groups(sizes[order].tolist())]


def _places(starts: Numbers, sizes: Numbers) -> tuple[Int[Tensor, "rows longest"], Tensor]:
    """Where the words of each row are, and which places are no filling; that points at the row's first word."""
    steps = torch.arange(int(sizes.max()), device=sizes.device)
    inside = steps < sizes[:, None]
    return starts[:, None] + steps * inside, inside


def _matrix(values: Float[Tensor, " values"], sizes: Numbers) -> Float[Tensor, "rows longest"]:
    """Values that stand end to end as rows, 0 where there is none."""
    places, inside = _places(sizes.cumsum(0) - sizes, sizes)
    return values[places] * inside
