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

from regard.attention.pooling import SequenceAttentionPool, SequenceMaxPool
from regard.errors import UsageError
from regard.models.layers import FastDropout

MIN_LENGTH_RATIO = 0.75  # of the longest: rows of at least so many vectors are pooled together


class HierarchicalAttentionNetwork(nn.Module):
    """Reads the words of each sentence and then the sentences of each document, and looks at both.

        h_it = [GRU forwards; GRU backwards](word t of sentence i)       s_i = pool of h_i1, h_i2, ...
        h_i  = [GRU forwards; GRU backwards](s_i)                        d   = pool of h_1, h_2, ...
        class scores = W d + b

    `over_words` and `over_sentences` are what pools: `Look(Attention(Additive(None, dim, hidden_dim)))` is the
    paper's, whose vector v is its context vector; any other attention has a query that is learned. `Largest()`
    takes the maximum instead. Documents come end to end, without padding, as in a `DocumentBatch`.

    >>> look = lambda: SequenceAttentionPool(Attention(Additive(None, key_dim=8, hidden_dim=4)))
    >>> model = HierarchicalAttentionNetwork(vocab_size=20, num_classes=3, word_pool=look(), sentence_pool=look(), embed_dim=6, hidden_dim=8)
    >>> words, lengths, counts = torch.randint(4, 20, (9,)), torch.tensor([2, 4, 3]), torch.tensor([2, 1])
    >>> model(words, lengths, counts).shape
    torch.Size([2, 3])
    >>> [tuple(weights.shape) for weights in model.attention_weights(words, lengths, counts)]
    [(3, 4), (2, 2)]
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        word_pool: SequenceAttentionPool | SequenceMaxPool,
        sentence_pool: SequenceAttentionPool | SequenceMaxPool,
        *,
        embed_dim: int = 100,
        hidden_dim: int = 100,
        dropout: float = 0.0,
    ):
        super().__init__()
        if hidden_dim % 2:
            raise UsageError(f"dim={hidden_dim} must be even: half of it is read forwards, half backwards")
        self.embed = nn.Embedding(vocab_size, embed_dim)
        self.word_level = HANLevel(embed_dim, hidden_dim, word_pool)
        self.sentence_level = HANLevel(hidden_dim, hidden_dim, sentence_pool)
        self.classifier = nn.Linear(hidden_dim, num_classes)
        self.dropout = FastDropout(dropout)
        nn.init.normal_(self.embed.weight, std=0.1)

    def forward(
        self,
        tokens: Int[Tensor, " words"],
        lengths: Int[Tensor, " sentences"],
        counts: Int[Tensor, " documents"],
    ) -> Float[Tensor, "documents classes"]:
        """The scores of each class, before any softmax."""
        sentences, _ = self.word_level(self.dropout(self.embed(tokens)), lengths)
        documents, _ = self.sentence_level(self.dropout(sentences), counts)
        return self.classifier(self.dropout(documents))

    def attention_weights(
        self,
        tokens: Int[Tensor, " words"],
        lengths: Int[Tensor, " sentences"],
        counts: Int[Tensor, " documents"],
    ) -> HierarchicalWeights:
        """The weight of each word in its sentence and of each sentence in its document, 0 where there is none."""
        sentences, words_seen = self.word_level(self.dropout(self.embed(tokens)), lengths, need_weights=True)
        _, sentences_seen = self.sentence_level(self.dropout(sentences), counts, need_weights=True)
        assert words_seen is not None
        assert sentences_seen is not None
        return HierarchicalWeights(words_seen, sentences_seen)


class HierarchicalWeights(NamedTuple):
    """Weights at both levels."""

    words: Float[Tensor, "sentences longest"]
    sentences: Float[Tensor, "documents most"]


class HANLevel(nn.Module):
    """Rows of vectors, read in both directions, and one vector for each row: eq. 1 to 7, or 8 to 10."""

    def __init__(self, input_dim: int, hidden_dim: int, pool: SequenceAttentionPool | SequenceMaxPool):
        super().__init__()
        self.rnn = nn.GRU(input_dim, hidden_dim // 2, bidirectional=True)
        self.pool = pool

    def forward(
        self,
        vectors: Float[Tensor, "vectors input"],
        lengths: Int[Tensor, " rows"],
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "rows dim"], Float[Tensor, "rows longest"] | None]:
        """`lengths` says how many vectors each row has; the weights of these, if they are wanted."""
        packed, order = pack_rows(vectors, lengths)
        states, back, longest = self.rnn(packed)[0], order.argsort(), int(lengths.max())
        contexts, looks = [], []
        for some, here in iter_length_groups(states, lengths[order]):
            context, look = self.pool(some, here, need_weights)
            contexts.append(context)
            if look is not None:
                looks.append(nn.functional.pad(look, (0, longest - some.shape[1])))
        return torch.cat(contexts)[back], torch.cat(looks)[back] if looks else None


def pack_rows(
    vectors: Float[Tensor, "vectors dim"], lengths: Int[Tensor, " rows"]
) -> tuple[PackedSequence, Int[Tensor, " rows"]]:
    """Rows that stand end to end as a packed sequence, the longest first, and the order they are in now.

    One gather, and no padding: step t of the network computes the rows that have a t-th vector, and no others.

    >>> packed, order = pack_rows(torch.arange(5.0)[:, None], torch.tensor([2, 3]))
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


def iter_length_groups(
    packed: PackedSequence, lengths: Int[Tensor, " rows"]
) -> Iterator[tuple[Float[Tensor, "some longest dim"], Int[Tensor, " some"]]]:
    """The rows of a packed sequence, of these lengths, in groups of near length, each filled up to its longest.

    What fills them up is any vector: who pools them hides it. All groups are one gather, so that the way back
    is one, too.
    """
    starts, cuts = packed.batch_sizes.cumsum(0) - packed.batch_sizes, split_by_length(lengths.tolist())
    places = []
    for first, last, longest in cuts:
        rows, steps = torch.arange(first, last)[:, None], torch.arange(longest)
        inside = steps < lengths[first:last, None].cpu()
        places.append(torch.where(inside, starts[:longest] + rows, 0).flatten())
    states = packed.data.index_select(0, torch.cat(places).to(packed.data.device))
    parts = states.split([len(place) for place in places])
    for (first, last, longest), part in zip(cuts, parts, strict=True):
        yield part.unflatten(0, (last - first, longest)), lengths[first:last]


def split_by_length(lengths: list[int]) -> list[tuple[int, int, int]]:
    """Cut rows, the longest first, where they get much shorter: (first, last, longest) of each group.

    >>> split_by_length([10, 9, 6, 5, 1])
    [(0, 2, 10), (2, 4, 6), (4, 5, 1)]
    """
    cuts, first = [], 0
    for place, length in enumerate(lengths):
        if length < MIN_LENGTH_RATIO * lengths[first]:
            cuts.append((first, place, lengths[first]))
            first = place
    return [*cuts, (first, len(lengths), lengths[first])]
