"""Measures against their definitions in loops."""

import math

import pytest
import torch

from regard.attention import causal, padding, softmax
from regard.viewing import measures
from regard.viewing.measures import (
    diagonality,
    distance,
    entropy,
    head_similarity,
    keys_for_mass,
    rank_keys,
    sort_by_attention,
    sparsity,
)

WEIGHTS = softmax(3 * torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0)))


def rows(weights):
    for row in weights.reshape(-1, weights.shape[-1]).tolist():
        yield [w / sum(row) for w in row]


def test_entropy_sparsity_and_keys_for_mass():
    for p, h, s, n in zip(
        rows(WEIGHTS),
        entropy(WEIGHTS).flatten(),
        sparsity(WEIGHTS).flatten(),
        keys_for_mass(WEIGHTS).flatten(),
        strict=True,
    ):
        assert h.item() == pytest.approx(-sum(w * math.log(w) for w in p), abs=1e-5)
        assert s.item() == pytest.approx(sum(w < 0.01 for w in p) / 5)
        best = sorted(p, reverse=True)
        assert n.item() == next(k for k in range(1, 6) if sum(best[:k]) >= 0.9 - 1e-6)


def test_weights_are_normalized():
    for measure in (entropy, sparsity, keys_for_mass, distance, diagonality, head_similarity):
        torch.testing.assert_close(measure(0.3 * WEIGHTS), measure(WEIGHTS))


def test_normalized_entropy_of_visible_keys():
    even = softmax(torch.zeros(2, 4, 6))
    lengths = padding([6, 3])
    torch.testing.assert_close(entropy(even, lengths, normalized=True), torch.ones(2, 4))
    torch.testing.assert_close(entropy(even, lengths)[1], torch.full((4,), math.log(3)))
    first = entropy(torch.eye(3), causal(), normalized=True)
    assert first.tolist() == [0, 0, 0]


def test_distance_with_an_offset():
    want = [
        [sum(w * abs(j - i) for j, w in enumerate(row)) for i, row in enumerate(head.tolist())] for head in WEIGHTS[0]
    ]
    torch.testing.assert_close(distance(WEIGHTS)[0], torch.tensor(want))
    step = torch.tensor([[0.5, 0.0, 0.5]])
    assert distance(step, offset=2).item() == 1


def test_diagonality_from_0_to_1():
    assert diagonality(torch.eye(5)).tolist() == [1] * 5
    assert diagonality(torch.eye(5).flip(0))[[0, 4]].tolist() == [0, 0]
    stretched = torch.zeros(3, 5)
    stretched[[0, 1, 2], [0, 2, 4]] = 1
    torch.testing.assert_close(diagonality(stretched), torch.ones(3))
    assert 0.4 < diagonality(torch.full((9, 9), 1 / 9)).mean() < 0.7


def test_padding_does_not_change_the_diagonal():
    padded = torch.zeros(6, 7)
    padded[:3, :3] = torch.eye(3)
    measure = diagonality(padded, padding(torch.tensor(3)))
    torch.testing.assert_close(measure[:3], torch.ones(3))
    assert measure[3:].isnan().all()


def test_head_similarity():
    similarity = head_similarity(WEIGHTS)
    torch.testing.assert_close(similarity, similarity.mT)
    torch.testing.assert_close(similarity.diagonal(dim1=-2, dim2=-1), torch.ones(2, 3))
    disjoint = torch.stack([torch.eye(4), torch.eye(4).roll(1, 0)])
    assert head_similarity(disjoint)[0, 1] == 0
    p, q = WEIGHTS[0, 0], WEIGHTS[0, 1]
    m = (p + q) / 2
    js = ((p * (p / m).log() + q * (q / m).log()).sum(-1) / 2).mean()
    torch.testing.assert_close(similarity[0, 0, 1], 1 - js / math.log(2), atol=1e-5, rtol=0)


def test_a_query_without_weight_gives_nan():
    weights = torch.zeros(2, 3)
    weights[0] = torch.tensor([0.5, 0.5, 0.0])
    for measure in (entropy, sparsity, keys_for_mass, distance, diagonality):
        assert measure(weights).isnan().tolist() == [False, True]


def test_inputs_sorted_by_weight():
    weights = torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]])
    assert rank_keys(weights).tolist() == [[1, 2, 0], [0, 2, 1]]
    assert rank_keys(weights, causal()).tolist() == [[1, 0, 2], [0, 2, 1]]
    assert sort_by_attention("abc", weights) == [["b", "c", "a"], ["a", "c", "b"]]
    vectors = torch.randn(3, 4)
    torch.testing.assert_close(sort_by_attention(vectors, weights)[0], vectors[[1, 2, 0]])
    many = sort_by_attention(torch.randn(2, 1, 5, 6), WEIGHTS)
    assert many.shape == (2, 3, 4, 5, 6)
    hidden = rank_keys(weights, torch.tensor([True, False, True]))
    assert hidden[0].tolist() == [2, 0, 1]


@pytest.mark.bare
def test_invalid_arguments_are_rejected():
    with pytest.raises(ValueError, match="must not be negative; pass weights, not scores"):
        entropy(torch.tensor([[-1.0, 2.0]]))
    with pytest.raises(ValueError, match=r"must be \(\*batch, queries, keys\), got \(3,\)"):
        distance(torch.ones(3))
    with pytest.raises(ValueError, match="does not broadcast"):
        sparsity(torch.ones(2, 3), torch.ones(4, dtype=torch.bool))
    with pytest.raises(ValueError, match="2 tokens are sorted by weights"):
        sort_by_attention(["a", "b"], torch.ones(1, 3))
    with pytest.raises(ValueError, match="but inputs of shape"):
        sort_by_attention(torch.ones(2, 4), torch.ones(1, 3))


def test_half_and_double_precision():
    assert entropy(WEIGHTS.bfloat16()).dtype == torch.float32
    assert entropy(WEIGHTS.double()).dtype == torch.float64
    assert measures.keys_for_mass(torch.full((1, 100), 0.01)).item() == 90
