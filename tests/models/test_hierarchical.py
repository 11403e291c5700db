"""The hierarchical attention network against a loop over documents, with all kinds of pooling."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from regard.attention import Additive, Attention, AttentionPool, Constant, Cosine, MaxPool, ScaledDot, sparsemax
from regard.models import HierarchicalAttentionNetwork
from regard.models.hierarchical import pack_rows, split_by_length

LENGTHS, COUNTS = torch.tensor([3, 1, 7, 2, 2, 5]), torch.tensor([2, 1, 3])


def sample_tokens():
    return torch.randint(4, 20, (int(LENGTHS.sum()),))


def paper_pool():
    return AttentionPool(Attention(Additive(None, key_dim=8, hidden_dim=6)))


POOLS = {
    "attention": paper_pool,
    "average": lambda: AttentionPool(Attention(Constant())),
    "max": MaxPool,
    "dot": lambda: AttentionPool(Attention(ScaledDot()), query_dim=8),
    "cosine, sparse": lambda: AttentionPool(Attention(Cosine(5.0), sparsemax), query_dim=8),
}


def model(pool, **options):
    return HierarchicalAttentionNetwork(
        20, 3, POOLS[pool](), POOLS[pool](), embed_dim=5, hidden_dim=8, **options
    ).eval()


def reference_level(level, row):
    """The paper's equations for one row of vectors."""
    states, _ = level.rnn(row[:, None])
    states = states.squeeze(1)
    if isinstance(level.pool, MaxPool):
        return states.amax(0), None
    attention = level.pool.attention
    query = torch.zeros(1, 0) if level.pool.query is None else level.pool.query
    scores = attention.score(query, states)
    weights = torch.softmax(scores, -1) if attention.normalize is None else attention.normalize(scores)
    return (weights @ states).squeeze(0), weights.squeeze(0)


@pytest.mark.parametrize("pool", POOLS)
def test_equals_loop_over_sentences_and_documents(pool):
    network, tokens = model(pool), sample_tokens()
    sentences = tokens.split(LENGTHS.tolist())
    vectors = [reference_level(network.word_level, network.embed(sentence)) for sentence in sentences]
    documents, first = [], 0
    for count in COUNTS.tolist():
        rows = torch.stack([vector for vector, _ in vectors[first : first + count]])
        documents.append(reference_level(network.sentence_level, rows))
        first += count
    logits = network.classifier(torch.stack([vector for vector, _ in documents]))
    torch.testing.assert_close(network(tokens, LENGTHS, COUNTS), logits)
    if pool == "max":
        with pytest.raises(ValueError, match="a maximum has no weights"):
            network.attention_weights(tokens, LENGTHS, COUNTS)
        return
    weights = network.attention_weights(tokens, LENGTHS, COUNTS)
    for row, (_, expected) in zip(weights.words, vectors, strict=True):
        torch.testing.assert_close(row[: len(expected)], expected)
        assert not row[len(expected) :].any()
    for row, (_, expected) in zip(weights.sentences, documents, strict=True):
        torch.testing.assert_close(row[: len(expected)], expected)
        assert not row[len(expected) :].any()


def test_constant_score_is_the_mean():
    weights = model("average").attention_weights(sample_tokens(), LENGTHS, COUNTS)
    torch.testing.assert_close(weights.words[2], torch.full((7,), 1 / 7))
    torch.testing.assert_close(weights.sentences[1], torch.tensor([1.0, 0.0, 0.0]))


def test_documents_are_independent():
    network, tokens = model("attention"), sample_tokens()
    alone = network(tokens[: int(LENGTHS[:2].sum())], LENGTHS[:2], COUNTS[:1])
    torch.testing.assert_close(network(tokens, LENGTHS, COUNTS)[:1], alone)


@pytest.mark.parametrize("pool", POOLS)
def test_all_parameters_get_gradients(pool):
    network = model(pool).train()
    nn.functional.cross_entropy(network(sample_tokens(), LENGTHS, COUNTS), torch.tensor([0, 1, 2])).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_pools_differ_only_in_attention_parameters():
    counts = {pool: sum(p.numel() for p in model(pool).parameters()) for pool in ("attention", "average", "max")}
    assert counts["average"] == counts["max"]
    assert counts["attention"] - counts["max"] == 2 * (8 * 6 + 6 + 6)


def test_dropout_only_in_training():
    network, tokens = model("attention", dropout=0.5), sample_tokens()
    assert torch.equal(network(tokens, LENGTHS, COUNTS), network(tokens, LENGTHS, COUNTS))
    network.train()
    assert not torch.equal(network(tokens, LENGTHS, COUNTS), network(tokens, LENGTHS, COUNTS))


def test_pack_rows_equals_pytorch():
    vectors = torch.randn(int(LENGTHS.sum()), 4)
    packed, order = pack_rows(vectors, LENGTHS)
    rows = nn.utils.rnn.pack_sequence([vectors.split(LENGTHS.tolist())[i] for i in order.tolist()])
    assert torch.equal(packed.data, rows.data)
    assert torch.equal(packed.batch_sizes, rows.batch_sizes)


def test_length_groups_cover_all_rows_with_little_padding():
    lengths = sorted(torch.randint(1, 50, (300,)).tolist(), reverse=True)
    groups = split_by_length(lengths)
    assert [groups[0][0], groups[-1][1]] == [0, 300]
    assert all(before[1] == after[0] for before, after in pairwise(groups))
    padded = sum((last - first) * longest for first, last, longest in groups)
    assert sum(lengths) / padded > 0.8


@pytest.mark.parametrize("lengths", [[], [3, 0]])
def test_empty_sentences_are_invalid(lengths):
    with pytest.raises(ValueError, match="at least one word"):
        pack_rows(torch.randn(3, 4), torch.tensor(lengths, dtype=torch.long))


def test_odd_hidden_dim_is_invalid():
    with pytest.raises(ValueError, match="invalid value 7 for hidden_dim: must be even"):
        HierarchicalAttentionNetwork(20, 3, paper_pool(), paper_pool(), hidden_dim=7)


def test_watch():
    from regard.viewing import watch

    network = model("attention")
    with watch(network) as records:
        network(sample_tokens(), LENGTHS, COUNTS)
    assert {record.name for record in records} == {"word_level.pool.attention", "sentence_level.pool.attention"}
