"""Document classification: the hierarchical attention network, and a model without sentences.

Yang, Yang, Dyer, He, Smola and Hovy (2016), "Hierarchical Attention Networks for Document Classification", NAACL. Top
to bottom: both models, the two equal levels of the first, packing and grouping of rows of different lengths.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from regard.attention import AttentionPool, MaxPool
from regard.attention.module import Device, Dtype, FactoryKwargs, ResettableModule, reset_modules
from regard.errors import UsageError
from regard.models.layers import FastDropout

__all__ = [
    "FlatDocumentClassifier", "HANLevel", "HierarchicalAttentionNetwork", "HierarchicalWeights", "pack_rows",
    "pool_rows", "split_by_length", "split_lengths",
]  # fmt: skip

Tokens = Int[Tensor, " tokens"]  # of all sentences of all documents, end to end
Lengths = Int[Tensor, " sentences"]  # tokens of each sentence
Counts = Int[Tensor, " documents"]  # sentences of each document
RowCounts = Int[Tensor, " rows"]
Pool = AttentionPool | MaxPool
RowIndices = Int[Tensor, "rows longest"]
Vectors = Float[Tensor, "vectors dim"]
PooledRows = tuple[Float[Tensor, "rows pooled_dim"], Float[Tensor, "rows longest"] | None]
MIN_LENGTH_RATIO = 0.75  # rows are pooled in one group if they have at least this fraction of the longest


class HierarchicalAttentionNetwork(ResettableModule):
    """Document classification with attention to words and to sentences.

        h_it = [forward GRU; backward GRU](word t of sentence i)       s_i = pool(h_i1, h_i2, ...)
        h_i  = [forward GRU; backward GRU](s_i)                        d   = pool(h_1, h_2, ...)
        logits = W d + b

    `AttentionPool(Attention(Additive(None, hidden_dim, dim)))` is the paper's pooling, with the score's vector v as its
    context vector; any other attention has a learned query. `MaxPool()` takes the maximum.

    Args:
        vocab_size: number of tokens
        num_classes: number of classes
        word_pool: pools the words of a sentence
        sentence_pool: pools the sentences of a document
        embed_dim: size of a token's vector
        hidden_dim: size of the vectors of both levels, half of it per direction; even
        dropout: probability of dropout on embeddings, sentences and documents
        device, dtype: of the parameters, as in PyTorch; the pools have their own

    Shape: tokens (tokens,) of all sentences end to end, lengths (sentences,) in tokens, counts (documents,) in
        sentences -> (documents, num_classes)

    Example:
        >>> pools = [AttentionPool(Attention(Additive(None, key_dim=8, hidden_dim=4))) for _ in range(2)]
        >>> model = HierarchicalAttentionNetwork(20, 3, *pools, embed_dim=6, hidden_dim=8)
        >>> tokens, lengths, counts = torch.randint(4, 20, (9,)), torch.tensor([2, 4, 3]), torch.tensor([2, 1])
        >>> model(tokens, lengths, counts).shape
        torch.Size([2, 3])
        >>> [tuple(weights.shape) for weights in model.attention_weights(tokens, lengths, counts)]
        [(3, 4), (2, 2)]
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        word_pool: Pool,
        sentence_pool: Pool,
        *,
        embed_dim: int = 100,
        hidden_dim: int = 100,
        dropout: float = 0.0,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        if hidden_dim % 2:
            raise UsageError(
                f"HierarchicalAttentionNetwork: invalid value {hidden_dim} for hidden_dim: must be even, half of it is"
                " for each direction"
            )
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        self.embed = nn.Embedding(vocab_size, embed_dim, **factory)
        self.word_level = HANLevel(embed_dim, hidden_dim, word_pool, **factory)
        self.sentence_level = HANLevel(hidden_dim, hidden_dim, sentence_pool, **factory)
        self.classifier = nn.Linear(hidden_dim, num_classes, **factory)
        self.dropout = FastDropout(dropout)
        self._init_parameters()

    def reset_parameters(self) -> None:
        reset_modules(self.word_level.pool, self.sentence_level.pool)
        reset_modules(self.embed, self.word_level.rnn, self.sentence_level.rnn, self.classifier)
        self._init_parameters()

    def _init_parameters(self) -> None:
        nn.init.normal_(self.embed.weight, std=0.1)

    def forward(self, tokens: Tokens, lengths: Lengths, counts: Counts) -> Float[Tensor, "documents classes"]:
        """Logits of the classes."""
        sentences, _ = self.word_level(self.dropout(self.embed(tokens)), lengths)
        documents, _ = self.sentence_level(self.dropout(sentences), counts)
        return self.classifier(self.dropout(documents))

    def attention_weights(self, tokens: Tokens, lengths: Lengths, counts: Counts) -> HierarchicalWeights:
        """The weight of each word in its sentence and of each sentence in its document; 0 on padding."""
        sentences, word_weights = self.word_level(self.dropout(self.embed(tokens)), lengths, need_weights=True)
        _, sentence_weights = self.sentence_level(self.dropout(sentences), counts, need_weights=True)
        assert word_weights is not None
        assert sentence_weights is not None
        return HierarchicalWeights(word_weights, sentence_weights)


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

    repr_settings = ("max_span",)

    def __init__(
        self,
        encoder: nn.Module,
        pool: Pool,
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
        return self.classifier(self.dropout(self._pool(tokens, _segment_sum(lengths, counts))[0]))

    def attention_weights(self, tokens: Tokens, lengths: Lengths, counts: Counts) -> HierarchicalWeights:
        """The weights of words as products: of a word in its sentence and of the sentence in its document."""
        weights = self._pool(tokens, _segment_sum(lengths, counts), need_weights=True)[1]
        assert weights is not None
        sentences = _segment_sum(weights, lengths)
        within = weights / sentences.clamp(min=torch.finfo(weights.dtype).tiny).repeat_interleave(lengths)
        return HierarchicalWeights(_pad_rows(within, lengths), _pad_rows(sentences, counts))

    def _encode_tokens(self, tokens: Tensor, totals: RowCounts) -> Float[Tensor, "tokens embed_dim"]:
        """A vector per token; parts of similar length are encoded in one batch."""
        sizes = split_lengths(totals, self.max_span)
        order, indices, states = sizes.argsort(descending=True, stable=True), [], []
        padded, is_inside = _padded_indices(sizes)
        for first, last, longest in split_by_length(sizes[order].tolist()):
            rows = order[first:last]
            encoded = self.encoder(tokens[padded[rows, :longest]], sizes[rows])
            indices.append(padded[rows][is_inside[rows]])
            states.append(encoded[is_inside[rows, :longest]])
        return torch.cat(states)[torch.cat(indices).argsort()]

    def _pool(
        self, tokens: Tensor, totals: RowCounts, need_weights: bool = False
    ) -> tuple[Float[Tensor, "documents embed_dim"], Float[Tensor, " tokens"] | None]:
        """One vector per document, and the weights of its tokens if `need_weights`."""
        indices, is_inside = _padded_indices(totals)
        contexts, weights = pool_rows(self.pool, self._encode_tokens(tokens, totals), indices, totals, need_weights)
        return contexts, None if weights is None else weights[is_inside]


class HierarchicalWeights(NamedTuple):
    """Attention weights of both levels.

    Args:
        words: the weight of each word in its sentence
        sentences: the weight of each sentence in its document

    Example:
        >>> HierarchicalWeights(torch.ones(3, 4) / 4, torch.ones(2, 2) / 2).sentences.shape
        torch.Size([2, 2])
    """

    words: Float[Tensor, "sentences longest"]
    sentences: Float[Tensor, "documents longest_document"]


class HANLevel(ResettableModule):
    """One level: a bidirectional GRU over the vectors of each row, and one pooled vector per row.

    Args:
        input_dim: size of the input vectors
        hidden_dim: size of the output vectors, half of it per direction
        pool: pools the GRU's states of a row
        device, dtype: of the GRU's parameters, as in PyTorch; `pool` has its own

    Shape: vectors (vectors, input_dim) of all rows end to end, lengths (rows,) -> (rows, hidden_dim) and, with
        `need_weights`, weights (rows, longest)

    Example:
        >>> level = HANLevel(6, 8, MaxPool())
        >>> level(torch.randn(5, 6), torch.tensor([2, 3]))[0].shape
        torch.Size([2, 8])

    Reference: Yang et al. (2016), eq. 1 to 7 and 8 to 10.
    """

    def __init__(self, input_dim: int, hidden_dim: int, pool: Pool, *, device: Device = None, dtype: Dtype = None):
        super().__init__()
        self.rnn = nn.GRU(input_dim, hidden_dim // 2, bidirectional=True, device=device, dtype=dtype)
        self.pool = pool

    def reset_parameters(self) -> None:
        reset_modules(self.pool, self.rnn)

    def forward(self, vectors: Vectors, lengths: RowCounts, need_weights: bool = False) -> PooledRows:
        """One vector per row of `lengths` vectors, and the weights of these if `need_weights`."""
        packed, order = pack_rows(vectors, lengths)
        sizes = packed.batch_sizes.to(lengths.device)  # rows that have a vector at each step
        is_inside = torch.arange(len(sizes), device=lengths.device) < lengths[:, None]
        indices = torch.where(is_inside, sizes.cumsum(0) - sizes + order.argsort()[:, None], 0)
        return pool_rows(self.pool, self.rnn(packed)[0].data, indices, lengths, need_weights)


def pack_rows(vectors: Vectors, lengths: RowCounts) -> tuple[PackedSequence, RowCounts]:
    """Pack rows that stand end to end, without padding them first.

    One gather; step t of the network computes only the rows that have a t-th vector.

    Args:
        vectors: the vectors of all rows, end to end
        lengths: vectors of each row, at least 1

    Shape: vectors (vectors, dim), lengths (rows,) -> packed vectors, order (rows,)

    Returns:
        the packed sequence, longest row first, and the row at each place of it

    Example:
        >>> packed, order = pack_rows(torch.arange(5.0)[:, None], torch.tensor([2, 3]))
        >>> packed.data.flatten().tolist(), packed.batch_sizes.tolist(), order.tolist()
        ([2.0, 0.0, 3.0, 1.0, 4.0], [2, 2, 1], [1, 0])
    """
    lengths = lengths.cpu()
    if not len(lengths) or int(lengths.min()) < 1:
        raise UsageError("every sentence needs at least one word, and every document at least one sentence")
    order = torch.argsort(lengths, descending=True, stable=True)
    sorted_lengths = lengths[order]
    starts = (lengths.cumsum(0) - lengths)[order]
    steps = torch.arange(int(sorted_lengths[0]))[:, None]
    is_inside = steps < sorted_lengths
    indices = (starts + steps)[is_inside].to(vectors.device)
    packed = PackedSequence(vectors.index_select(0, indices), is_inside.sum(1))
    return packed, order.to(vectors.device)


def pool_rows(
    pool: Pool, vectors: Vectors, indices: RowIndices, lengths: RowCounts, need_weights: bool = False
) -> PooledRows:
    """Pool rows in groups of similar length, each padded to its longest row; one gather serves all groups.

    Args:
        pool: hides what is beyond the length of a row
        vectors: the vectors of all rows, in any order
        indices: the vectors of each row, padded with any index
        lengths: vectors of each row
        need_weights: whether to return weights

    Shape: vectors (vectors, dim), indices (rows, longest), lengths (rows,) -> (rows, dim), weights (rows, longest)

    Returns:
        one vector per row, and the weights of its vectors, 0 on padding, or None

    Example:
        >>> pool_rows(MaxPool(), torch.arange(3.0)[:, None], torch.tensor([[0, 1], [2, 0]]), torch.tensor([2, 1]))[0]
        tensor([[1.],
                [2.]])
    """
    order = lengths.argsort(descending=True, stable=True)
    spans = split_by_length(lengths[order].tolist())
    groups = [indices[order[first:last], :longest] for first, last, longest in spans]
    gathered = vectors.index_select(0, torch.cat([group.flatten() for group in groups]))
    contexts, weights = [], []
    parts = gathered.split([group.numel() for group in groups])
    for (first, last, longest), group, part in zip(spans, groups, parts, strict=True):
        context, group_weights = pool(part.unflatten(0, group.shape), lengths[order[first:last]], need_weights)
        contexts.append(context.squeeze(1))
        if group_weights is not None:
            weights.append(nn.functional.pad(group_weights.squeeze(1), (0, indices.shape[1] - longest)))
    inverse = order.argsort()
    return torch.cat(contexts)[inverse], torch.cat(weights)[inverse] if weights else None


def split_by_length(lengths: list[int]) -> list[tuple[int, int, int]]:
    """Split rows, longest first, where they become much shorter.

    Args:
        lengths: the length of each row, longest first

    Returns:
        (first row, row behind the last one, length of the longest) of each group

    Example:
        >>> split_by_length([10, 9, 6, 5, 1])
        [(0, 2, 10), (2, 4, 6), (4, 5, 1)]
    """
    groups, first = [], 0
    for row, length in enumerate(lengths):
        if length < MIN_LENGTH_RATIO * lengths[first]:
            groups.append((first, row, lengths[first]))
            first = row
    return [*groups, (first, len(lengths), lengths[first])]


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


def _segment_sum(values: Tensor, counts: RowCounts) -> Tensor:
    """The sum of the first counts[0] values, of the next counts[1], and so on.

    >>> _segment_sum(torch.tensor([1, 2, 3]), torch.tensor([2, 1])).tolist()
    [3, 3]
    """
    row = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    return values.new_zeros(len(counts)).index_add_(0, row, values)


def _padded_indices(sizes: RowCounts) -> tuple[RowIndices, Tensor]:
    """The index of the values of rows end to end, and a mask that is False on padding, with the first value's index."""
    steps = torch.arange(int(sizes.max()), device=sizes.device)
    is_inside = steps < sizes[:, None]
    return (sizes.cumsum(0) - sizes)[:, None] + steps * is_inside, is_inside


def _pad_rows(values: Float[Tensor, " values"], sizes: RowCounts) -> Float[Tensor, "rows longest"]:
    """Values that stand end to end as rows, padded with 0."""
    indices, is_inside = _padded_indices(sizes)
    return values[indices] * is_inside
