"""Generic sources of batches: resuming, fingerprints, seeds; and the helpers that batches have in common."""

import json
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data import BatchingConfig, GeneratedBatches, InMemoryBatches, InMemoryPairs, SentencePair, Tokenizer
from regard.data.sources import data_fingerprint, seeded_generator, split_by_tokens
from regard.data.tokenizer import RaggedArray, pad_rows
from regard.errors import DataError


def sample(generator, batch_size):
    return torch.randint(1000, (batch_size,), generator=generator)


def test_generated_batches_are_functions_of_seed_and_number():
    source = GeneratedBatches(sample, torch.Tensor.tolist, batch_size=4, seed=7)
    batches = list(islice(source.batches(), 6))
    assert [batch for batch, _ in batches] == [sample(seeded_generator(7, i), 4).tolist() for i in range(6)]
    assert list(islice(source.batches(batches[2][1]), 3)) == batches[3:]


@given(count=st.integers(1, 20), batch_size=st.integers(1, 7), seed=st.integers(0, 3))
def test_in_memory_batches_contain_every_example_once_per_epoch(count, batch_size, seed):
    source = InMemoryBatches(range(count), list, batch_size, seed)
    per_epoch = -(-count // batch_size)
    batches = list(islice(source.batches(), 3 * per_epoch))
    for epoch in range(3):
        own = batches[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert sorted(i for batch, _ in own for i in batch) == list(range(count))
    for index, (_, position) in enumerate(batches[:-1]):
        resumed = InMemoryBatches(range(count), list, batch_size, seed).batches(json.loads(json.dumps(position)))
        assert next(resumed) == batches[index + 1]


def test_in_memory_batches_are_shuffled_by_seed_and_epoch():
    orders = [
        [i for batch, _ in islice(InMemoryBatches(range(50), list, 10, seed).batches(), 10) for i in batch]
        for seed in (0, 0, 1)
    ]
    assert orders[0] == orders[1] != orders[2]
    assert orders[0][:50] != orders[0][50:]


def test_a_position_of_other_examples_is_refused():
    _, position = next(InMemoryBatches(range(9), list, 2).batches())
    for other in (
        InMemoryBatches(range(8), list, 2),
        InMemoryBatches(range(9), list, 3),
        InMemoryBatches(range(9), list, 2, seed=1),
    ):
        with pytest.raises(DataError, match="changed since this position was saved"):
            next(other.batches(position))
    with pytest.raises(DataError, match="no examples"):
        InMemoryBatches([], list)


def test_fingerprints_depend_on_names_values_and_arrays():
    array = np.arange(6, dtype=np.int32)
    values = {"seed": 0, "labels": ["a", "b"], "ids": array}
    same = {"ids": array.copy(), "labels": ["a", "b"], "seed": 0}
    assert data_fingerprint(values) == data_fingerprint(same)
    changed = [
        values | {"seed": 1},
        values | {"ids": array[::-1]},
        values | {"labels": ["b", "a"]},
        {"sed": 0, **values},
    ]
    assert len({data_fingerprint(other) for other in [values, *changed]}) == 5
    assert data_fingerprint({"ids": torch.arange(6, dtype=torch.int32)}) == data_fingerprint({"ids": array})


def test_fingerprints_stay_the_same_across_versions():
    """A saved run can be resumed only if its data has the same fingerprint: a rename in the code must not change it."""
    tokenizer = Tokenizer.train(["a b c"], model_type="word", vocab_size=10)
    pairs = [SentencePair("a b c", "c b a"), SentencePair("b", "b")]
    data = InMemoryPairs(pairs, tokenizer, tokenizer, BatchingConfig(max_tokens=8, seed=3))
    assert data.fingerprint == "f22761d2"
    assert data_fingerprint({"seed": 0, "name": "ü", "ids": np.arange(3)}) == "5360ca2a"


def test_seeded_generators_stay_the_same_across_versions():
    draws = [torch.randint(1000, (4,), generator=seeded_generator(*seeds)).tolist() for seeds in ((0,), (0, 1), (7, 2))]
    assert draws == [[798, 552, 771, 248], [587, 196, 590, 549], [823, 100, 933, 474]]


rows = st.lists(st.lists(st.integers(4, 99), max_size=6), min_size=1, max_size=9)


@given(rows, st.data())
def test_ragged_rows_are_padded_like_lists(rows, data):
    indices = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1))
    padded, lengths = RaggedArray.from_rows(rows).padded(np.array(indices))
    expected, expected_lengths = pad_rows([rows[i] for i in indices])
    assert torch.equal(padded, expected)
    assert torch.equal(lengths, expected_lengths)


@given(st.lists(st.integers(1, 9), max_size=30), st.integers(1, 20), st.booleans())
def test_split_by_tokens_is_bounded_and_complete(lengths, max_tokens, is_padded):
    lengths, order = np.array(lengths, dtype=np.int64), np.arange(len(lengths))[::-1]
    batches = split_by_tokens(order, lengths, max_tokens, is_padded=is_padded)
    assert [i for batch in batches for i in batch.tolist()] == order.tolist()
    sizes = [(len(own) * own.max() if is_padded else own.sum()) for own in (lengths[batch] for batch in batches)]
    assert all(size <= max_tokens or len(batch) == 1 for size, batch in zip(sizes, batches, strict=True))
    for batch, following in pairwise(batches):  # no batch could take one more row
        own = lengths[[*batch, following[0]]]
        assert (len(own) * own.max() if is_padded else own.sum()) > max_tokens
