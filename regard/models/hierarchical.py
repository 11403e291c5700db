"""The hierarchical attention network: words make sentences, sentences make a document, a document has a class.

Yang, Yang, Dyer, He, Smola and Hovy (2016), "Hierarchical Attention Networks for Document Classification", NAACL.
Read top to bottom: the model, its two equal levels, then what can take the place of attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from regard.attention import Attention, padding
from regard.errors import UnsupportedError, UsageError
from regard.models._dropout import Dropout

NEAR = 0.75  # of the longest: rows of at least so many vectors are pooled together


class Hierarchical(nn.Module):
    """Reads the words of each sentence and then the sentences of each document, and looks at both.

        h_it = [GRU forwards; GRU backwards](word t of sentence i)       s_i = pool of h_i1, h_i2, ...
        h_i  = [GRU forwards; GRU backwards](s_i)                        d   = pool of h_1, h_2, ...
        class scores = W d + b

    `over_words` and `over_sentences` are what pools: `Look(Attention(Additive(None, dim, hidden_dim)))` is the
    paper's, whose vector v is its context vector; any other attention has a query that is learned. `Largest()`
    takes the maximum instead. Documents come end to end, without padding, as in a `DocumentBatch`.

    >>> look = lambda: Look(Attention(Additive(None, key_dim=8, hidden_dim=4)))
    >>> model = Hierarchical(words=20, classes=3, over_words=look(), over_sentences=look(), embed_dim=6, dim=8)
    >>> words, lengths, counts = torch.randint(4, 20, (9,)), torch.tensor([2, 4, 3]), torch.tensor([2, 1])
    >>> model(words, lengths, counts).shape
    torch.Size([2, 3])
    >>> [tuple(weights.shape) for weights in model.looks(words, lengths, counts)]
    [(3, 4), (2, 2)]
    """

    def __init__(
        self,
        words: int,
        classes: int,
        over_words: Look | Largest,
        over_sentences: Look | Largest,
        *,
        embed_dim: int = 100,
        dim: int = 100,
        dropout: float = 0.0,
    ):
        super().__init__()
        if dim % 2:
            raise UsageError(f"dim={dim} must be even: half of it is read forwards, half backwards")
        self.embed = nn.Embedding(words, embed_dim)
        self.of_words = Level(embed_dim, dim, over_words)
        self.of_sentences = Level(dim, dim, over_sentences)
        self.output = nn.Linear(dim, classes)
        self.dropout = Dropout(dropout)
        nn.init.normal_(self.embed.weight, std=0.1)

    def forward(
        self,
        words: Int[Tensor, " words"],
        lengths: Int[Tensor, " sentences"],
        counts: Int[Tensor, " documents"],
    ) -> Float[Tensor, "documents classes"]:
        """The scores of each class, before any softmax."""
        sentences, _ = self.of_words(self.dropout(self.embed(words)), lengths)
        documents, _ = self.of_sentences(self.dropout(sentences), counts)
        return self.output(self.dropout(documents))

    def looks(
        self,
        words: Int[Tensor, " words"],
        lengths: Int[Tensor, " sentences"],
        counts: Int[Tensor, " documents"],
    ) -> Looks:
        """The weight of each word in its sentence and of each sentence in its document, 0 where there is none."""
        sentences, words_seen = self.of_words(self.dropout(self.embed(words)), lengths, weights=True)
        _, sentences_seen = self.of_sentences(self.dropout(sentences), counts, weights=True)
        assert words_seen is not None
        assert sentences_seen is not None
        return Looks(words_seen, sentences_seen)


class Looks(NamedTuple):
    """Weights at both levels."""

    words: Float[Tensor, "sentences longest"]
    sentences: Float[Tensor, "documents most"]


class Level(nn.Module):
    """Rows of vectors, read in both directions, and one vector for each row: eq. 1 to 7, or 8 to 10."""

    def __init__(self, input_dim: int, dim: int, pool: Look | Largest):
        super().__init__()
        self.read = nn.GRU(input_dim, dim // 2, bidirectional=True)
        self.pool = pool

    def forward(
        self, vectors: Float[Tensor, "vectors input"], lengths: Int[Tensor, " rows"], weights: bool = False
    ) -> tuple[Float[Tensor, "rows dim"], Float[Tensor, "rows longest"] | None]:
        """`lengths` says how many vectors each row has; the weights of these, if they are wanted."""
        packed, order = packed_rows(vectors, lengths)
        states, back, longest = self.read(packed)[0], order.argsort(), int(lengths.max())
        contexts, looks = [], []
        for some, here in grouped(states, lengths[order]):
            context, look = self.pool(some, here, weights)
            contexts.append(context)
            if look is not None:
                looks.append(nn.functional.pad(look, (0, longest - some.shape[1])))
        return torch.cat(contexts)[back], torch.cat(looks)[back] if looks else None


class Look(nn.Module):
    """One vector for each row: what attention sees of it, asked by nobody or by a learned query."""

    def __init__(self, attention: Attention, query_dim: int | None = None):
        super().__init__()
        self.attention = attention
        self.query = None if query_dim is None else nn.Parameter(torch.randn(1, query_dim) * query_dim**-0.5)

    def forward(
        self, states: Float[Tensor, "rows longest dim"], lengths: Int[Tensor, " rows"], weights: bool = False
    ) -> tuple[Float[Tensor, "rows dim"], Float[Tensor, "rows longest"] | None]:
        look = self.attention(self.query, states, states, padding(lengths))
        return look.context.squeeze(1), look.weights.squeeze(1) if weights else None


class Largest(nn.Module):
    """One vector for each row: the largest of each of its numbers. It has no weights."""

    def forward(
        self, states: Float[Tensor, "rows longest dim"], lengths: Int[Tensor, " rows"], weights: bool = False
    ) -> tuple[Float[Tensor, "rows dim"], None]:
        if weights:
            raise UnsupportedError(
                "a maximum has no weights; take a model that pools by attention or average"
            )
        inside = torch.arange(states.shape[1], device=states.device) < lengths[:, None]
        return states.masked_fill(~inside[..., None], -torch.inf).amax(1), None


def packed_rows(
    vectors: Float[Tensor, "vectors dim"], lengths: Int[Tensor, " rows"]
) -> tuple[PackedSequence, Int[Tensor, " rows"]]:
    """Rows that stand end to end as a packed sequence, the longest first, and the order they are in now.

    One gather, and no padding: step t of the network computes the rows that have a t-th vector, and no others.

    >>> packed, order = packed_rows(torch.arange(5.0)[:, None], torch.tensor([2, 3]))
    >>> packed.data.flatten().tolist(), packed.batch_sizes.tolist(), order.tolist()
    ([2.0, 0.0, 3.0, 1.0, 4.0], [2, 2, 1], [1, 0])
    """
    lengths = lengths.cpu()
    if not len(lengths) or int(lengths.min()) < 1:
        raise UsageError("every sentence has at least one word, and every document at least one sentence")
    order = torch.argsort(lengths, descending=True, stable=True)
    longest = lengths[order]
    starts = (lengths.cumsum(0) - lengths)[order]
    steps = torch.arange(int(longest[0]))[:, None]
    inside = steps < longest
    places = (starts + steps)[inside].to(vectors.device)
    packed = PackedSequence(vectors.index_select(0, places), inside.sum(1))
    return packed, order.to(vectors.device)


def grouped(
    packed: PackedSequence, lengths: Int[Tensor, " rows"]
) -> Iterator[tuple[Float[Tensor, "some longest dim"], Int[Tensor, " some"]]]:
    """The rows of a packed sequence, of these lengths, in groups of near length, each filled up to its longest.

    What fills them up is any vector: who pools them hides it. All groups are one gather, so that the way back
    is one, too.
    """
    starts, cuts = packed.batch_sizes.cumsum(0) - packed.batch_sizes, groups(lengths.tolist())
    places = []
    for first, last, longest in cuts:
        rows, steps = torch.arange(first, last)[:, None], torch.arange(longest)
        inside = steps < lengths[first:last, None].cpu()
        places.append(torch.where(inside, starts[:longest] + rows, 0).flatten())
    states = packed.data.index_select(0, torch.cat(places).to(packed.data.device))
    parts = states.split([len(place) for place in places])
    for (first, last, longest), part in zip(cuts, parts, strict=True):
        yield part.unflatten(0, (last - first, longest)), lengths[first:last]


def groups(lengths: list[int]) -> list[tuple[int, int, int]]:
    """Cut rows, the longest first, where they get much shorter: (first, last, longest) of each group.

    >>> groups([10, 9, 6, 5, 1])
    [(0, 2, 10), (2, 4, 6), (4, 5, 1)]
    """
    cuts, first = [], 0
    for place, length in enumerate(lengths):
        if length < NEAR * lengths[first]:
            cuts.append((first, place, lengths[first]))
            first = place
    return [*cuts, (first, len(lengths), lengths[first])]
