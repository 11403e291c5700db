"""The hierarchical attention network: against a loop over documents, and what its twins share with it."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from regard.attention import Additive, Attention, Constant, Cosine, ScaledDot, sparsemax
from regard.attention.pooling import SequenceAttentionPool, SequenceMaxPool
from regard.models import HierarchicalAttentionNetwork
from regard.models.hierarchical import pack_rows, split_by_length

LENGTHS, COUNTS = torch.tensor([3, 1, 7, 2, 2, 5]), torch.tensor([2, 1, 3])


def words():
    return torch.randint(4, 20, (int(LENGTHS.sum()),))


def paper():
    return SequenceAttentionPool(Attention(Additive(None, key_dim=8, hidden_dim=6)))


POOLS = {
    "attention": paper,
    "average": lambda: SequenceAttentionPool(Attention(Constant())),
    "max": SequenceMaxPool,
    "dot": lambda: SequenceAttentionPool(Attention(ScaledDot()), query_dim=8),
    "cosine, sparse": lambda: SequenceAttentionPool(Attention(Cosine(5.0), sparsemax), query_dim=8),
}


def model(pool, **options):
    return HierarchicalAttentionNetwork(
        20, 3, POOLS[pool](), POOLS[pool](), embed_dim=5, hidden_dim=8, **options
    ).eval()


def one_level(level, row):
    """The equations as they read, for one row of vectors."""
    states, _ = level.read(row[:, None])
    states = states.squeeze(1)
    if isinstance(level.pool, SequenceMaxPool):
        return states.amax(0), None
    attention = level.pool.attention
    query = torch.zeros(1, 0) if level.pool.query is None else level.pool.query
    scores = attention.score(query, states)
    weights = torch.softmax(scores, -1) if attention.normalize is None else attention.normalize(scores)
    return (weights @ states).squeeze(0), weights.squeeze(0)


@pytest.mark.parametrize("pool", POOLS)
def test_it_is_the_loop_over_sentences_and_documents(pool):
    network, given = model(pool), words()
    sentences = given.split(LENGTHS.tolist())
    vectors = [one_level(network.word_level, network.embed(sentence)) for sentence in sentences]
    documents, first = [], 0
    for count in COUNTS.tolist():
        rows = torch.stack([vector for vector, _ in vectors[first : first + count]])
        documents.append(one_level(network.sentence_level, rows))
        first += count
    expected = network.classifier(torch.stack([vector for vector, _ in documents]))
    torch.testing.assert_close(network(given, LENGTHS, COUNTS), expected)
    if pool == "max":
        with pytest.raises(ValueError, match="a maximum has no weights"):
            network.attention_weights(given, LENGTHS, COUNTS)
        return
    looks = network.attention_weights(given, LENGTHS, COUNTS)
    for row, (_, weights) in zip(looks.words, vectors, strict=True):
        torch.testing.assert_close(row[: len(weights)], weights)
        assert not row[len(weights) :].any()
    for row, (_, weights) in zip(looks.sentences, documents, strict=True):
        torch.testing.assert_close(row[: len(weights)], weights)
        assert not row[len(weights) :].any()


def test_average_is_the_average():
    looks = model("average").attention_weights(words(), LENGTHS, COUNTS)
    torch.testing.assert_close(looks.words[2], torch.full((7,), 1 / 7))
    torch.testing.assert_close(looks.sentences[1], torch.tensor([1.0, 0.0, 0.0]))


def test_documents_do_not_see_each_other():
    network, given = model("attention"), words()
    alone = network(given[: int(LENGTHS[:2].sum())], LENGTHS[:2], COUNTS[:1])
    torch.testing.assert_close(network(given, LENGTHS, COUNTS)[:1], alone)


@pytest.mark.parametrize("pool", POOLS)
def test_every_parameter_learns(pool):
    network = model(pool).train()
    nn.functional.cross_entropy(network(words(), LENGTHS, COUNTS), torch.tensor([0, 1, 2])).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_the_twins_differ_only_in_what_attention_needs():
    counts = {
        pool: sum(p.numel() for p in model(pool).parameters()) for pool in ("attention", "average", "max")
    }
    assert counts["average"] == counts["max"]
    assert counts["attention"] - counts["max"] == 2 * (8 * 6 + 6 + 6)


def test_dropout_is_for_training_only():
    network, given = model("attention", dropout=0.5), words()
    assert torch.equal(network(given, LENGTHS, COUNTS), network(given, LENGTHS, COUNTS))
    network.train()
    assert not torch.equal(network(given, LENGTHS, COUNTS), network(given, LENGTHS, COUNTS))


def test_packed_rows_are_those_of_pytorch():
    vectors = torch.randn(int(LENGTHS.sum()), 4)
    packed, order = pack_rows(vectors, LENGTHS)
    rows = nn.utils.rnn.pack_sequence([vectors.split(LENGTHS.tolist())[i] for i in order.tolist()])
    assert torch.equal(packed.data, rows.data)
    assert torch.equal(packed.batch_sizes, rows.batch_sizes)


def test_groups_cover_all_rows_and_waste_little():
    lengths = sorted(torch.randint(1, 50, (300,)).tolist(), reverse=True)
    cuts = split_by_length(lengths)
    assert [cuts[0][0], cuts[-1][1]] == [0, 300]
    assert all(before[1] == after[0] for before, after in pairwise(cuts))
    padded = sum((last - first) * longest for first, last, longest in cuts)
    assert sum(lengths) / padded > 0.8


@pytest.mark.parametrize("lengths", [[], [3, 0]])
def test_a_sentence_without_words_is_refused(lengths):
    with pytest.raises(ValueError, match="at least one word"):
        pack_rows(torch.randn(3, 4), torch.tensor(lengths, dtype=torch.long))


def test_an_odd_size_is_refused():
    with pytest.raises(ValueError, match="dim=7 must be even"):
        HierarchicalAttentionNetwork(20, 3, paper(), paper(), hidden_dim=7)


def test_it_can_be_watched():
    from regard.viewing import watch

    network = model("attention")
    with watch(network) as seen:
        network(words(), LENGTHS, COUNTS)
    assert {record.name for record in seen} == {"of_words.pool.attention", "of_sentences.pool.attention"}
