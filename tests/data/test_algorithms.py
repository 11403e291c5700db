"""The five algorithms: every target is computed again in another way."""

import itertools

import pytest
import torch

from regard.data.algorithms import AssociativeRecall, Copy, DynamicNGrams, PrioritySort, RepeatCopy
from regard.data.sources import GeneratedBatches, seeded_generator
from regard.errors import UsageError

COPY = Copy({"length": (1, 20)})
REPEAT = RepeatCopy({"length": (1, 10), "repeats": (1, 10)})
RECALL = AssociativeRecall({"items": (2, 6)}, num_bits=6)
NGRAMS = DynamicNGrams({"length": (200, 200)}, num_bits=1)
SORT = PrioritySort({"length": (20, 20)})
ALL = [COPY, REPEAT, RECALL, NGRAMS, SORT]


@pytest.mark.parametrize("algorithm", ALL, ids=lambda algorithm: algorithm.name)
def test_a_batch_is_a_function_of_its_seed(algorithm):
    one, same, other = (algorithm.sample(seeded_generator(seed, 5), batch_size=3) for seed in (1, 1, 2))
    assert torch.equal(one.inputs, same.inputs)
    assert torch.equal(one.targets, same.targets)
    assert one.inputs.shape != other.inputs.shape or not torch.equal(one.inputs, other.inputs)


@pytest.mark.parametrize("algorithm", ALL, ids=lambda algorithm: algorithm.name)
def test_dims_match_the_batch(algorithm):
    batch = algorithm.sample(seeded_generator(0), batch_size=3)
    assert (batch.inputs.shape[-1], batch.targets.shape[-1]) == algorithm.dims
    assert batch.inputs.shape[1] == batch.targets.shape[1] == len(batch.target_mask)
    assert batch.num_tokens == 3 * int(batch.target_mask.sum()) * algorithm.dims[1]


@pytest.mark.parametrize("algorithm", [COPY, REPEAT, RECALL, SORT], ids=lambda algorithm: algorithm.name)
def test_inputs_are_zero_where_targets_are(algorithm):
    batch = algorithm.sample(seeded_generator(0), batch_size=3)
    assert not batch.inputs[:, batch.target_mask].any()
    assert not batch.targets[:, ~batch.target_mask].any()


def test_copy():
    batch = COPY.sample(seeded_generator(0), batch_size=4, length=7)
    assert torch.equal(batch.targets[:, 8:], batch.inputs[:, :7, :8])
    assert batch.inputs[:, 7].tolist() == [[0.0] * 8 + [1.0]] * 4


def test_sizes_are_uniform():
    steps = [COPY.sample(seeded_generator(0, i), batch_size=1).inputs.shape[1] for i in range(2000)]
    counts = [steps.count(2 * length + 1) for length in range(1, 21)]
    assert sum(counts) == 2000
    assert min(counts) > 60
    assert max(counts) < 150


def test_bits_are_unbiased():
    batch = COPY.sample(seeded_generator(3), batch_size=500, length=20)
    assert 0.49 < float(batch.targets[:, 21:].mean()) < 0.51


def test_repeat_copy():
    batch = REPEAT.sample(seeded_generator(0), batch_size=2, length=3, repeats=4)
    vectors = batch.inputs[:, :3, :8]
    for turn in range(4):
        assert torch.equal(batch.targets[:, 4 + 3 * turn : 7 + 3 * turn, :8], vectors)
    assert batch.targets[:, :, 8].sum(1).tolist() == [1.0, 1.0]
    assert batch.targets[:, -1].tolist() == [[0.0] * 8 + [1.0]] * 2


def test_the_number_of_repeats_is_normalized():
    numbers = torch.tensor([REPEAT.normalize_repeats(count) for count in range(1, 11)])
    torch.testing.assert_close(numbers.mean(), torch.tensor(0.0))
    torch.testing.assert_close(numbers.var(correction=0), torch.tensor(1.0))
    assert RepeatCopy({"length": (1, 1), "repeats": (3, 3)}).normalize_repeats(3) == 0


def test_recall():
    batch = RECALL.sample(seeded_generator(0), batch_size=50, items=5)
    places = set()
    for inputs, targets in zip(batch.inputs, batch.targets, strict=True):
        items = [inputs[4 * i + 1 : 4 * i + 4, :6] for i in range(5)]
        assert inputs[[0, 4, 8, 12, 16], 6].tolist() == [1.0] * 5
        assert inputs[[20, 24], 7].tolist() == [1.0] * 2
        assert inputs[:, 6:].sum() == 7  # no other marks
        query = inputs[21:24, :6]
        (place,) = (i for i in range(5) if torch.equal(items[i], query))
        assert torch.equal(targets[-3:], items[place + 1])
        places.add(place)
    assert places == {0, 1, 2, 3}  # never the last, which nothing follows


def test_sort():
    batch = SORT.sample(seeded_generator(0), batch_size=5)
    for inputs, targets in zip(batch.inputs, batch.targets, strict=True):
        order = sorted(range(20), key=lambda i: -float(inputs[i, 8]))
        assert torch.equal(targets[21:], inputs[order[:16], :8])
    assert batch.inputs[:, :20, 8].abs().max() <= 1
    assert batch.inputs[:, 20, 9].tolist() == [1.0] * 5


def test_ngrams_come_from_their_table():
    """Each next bit is a function of five, so frequent contexts have a share near 0 or 1 often."""
    batch = NGRAMS.sample(seeded_generator(0), batch_size=400)
    bits = batch.targets[..., 0]
    assert torch.equal(batch.inputs[:, 1:, 0], bits[:, :-1])
    assert not batch.inputs[:, 0].any()
    shares = []
    for row in bits[:200].int().tolist():
        next_bits = {}
        for i in range(5, 200):
            next_bits.setdefault(tuple(row[i - 5 : i]), []).append(row[i])
        shares += [sum(after) / len(after) for after in next_bits.values() if len(after) >= 10]
    extreme_share = sum(share < 0.1 or share > 0.9 for share in shares) / len(shares)
    assert 0.35 < extreme_share < 0.6  # Beta(1/2, 1/2) has 41 % of its mass there; fair coins had 2 %


def test_optimal_prediction_counts_contexts():
    algorithm = DynamicNGrams({"length": (20, 20)}, num_bits=1)
    bits = algorithm.sample(seeded_generator(4), batch_size=3).targets[..., 0]
    best = algorithm.optimal_prediction(bits)
    for row, step in itertools.product(range(3), range(5, 20)):
        row_bits = bits[row].int().tolist()
        context = row_bits[step - 5 : step]
        after = [row_bits[i] for i in range(5, step) if row_bits[i - 5 : i] == context]
        assert float(best[row, step]) == pytest.approx((sum(after) + 0.5) / (len(after) + 1))


def test_no_prediction_beats_the_optimal_one():
    batch = NGRAMS.sample(seeded_generator(5), batch_size=200)
    bits = batch.targets[..., 0]
    best = NGRAMS.optimal_prediction(bits)

    def code_length(probability):
        likelihood = torch.where(bits > 0.5, probability, 1 - probability)[:, batch.target_mask]
        return -likelihood.log2().sum(1).mean()

    assert code_length(best) < code_length(0.9 * best + 0.05)
    assert code_length(best) < code_length((1.1 * (best - 0.5) + 0.5).clamp(0.01, 0.99))
    assert code_length(best) < 195 * 0.8


def test_generated_batches_resume_at_any_position():
    source = GeneratedBatches(COPY.sample, lambda batch: batch, batch_size=2, seed=3)
    uninterrupted = list(itertools.islice(source.batches(None), 5))
    resumed = list(itertools.islice(source.batches(uninterrupted[2][1]), 2))
    for (batch, position), (other, other_position) in zip(uninterrupted[3:], resumed, strict=True):
        assert torch.equal(batch.inputs, other.inputs)
        assert position == other_position


def test_shards_make_up_the_batch():
    batch = COPY.sample(seeded_generator(0), batch_size=5, length=2)
    parts = [batch.shard(rank, 2) for rank in range(2)]
    assert [len(part) for part in parts] == [3, 2]
    assert sum(part.num_tokens for part in parts) == batch.num_tokens
    assert torch.equal(parts[1].inputs, batch.inputs[1::2])


@pytest.mark.bare
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Copy({"length": (5, 2)}), "range of length, from 5 to 2"),
        (lambda: AssociativeRecall({"items": (1, 3)}), "at least 2 items"),
        (lambda: COPY.sample(seeded_generator(0), 1, items=3), "no size 'items'; its sizes are length"),
        (lambda: COPY.sample(seeded_generator(0), 1, length=0), "invalid value 0 for length"),
        (lambda: RECALL.sample(seeded_generator(0), 1, items=1), "invalid value 1 for items"),
        (lambda: NGRAMS.sample(seeded_generator(0), 1, length=5), "invalid value 5 for length"),
    ],
)
def test_invalid_sizes_are_refused(build, message):
    with pytest.raises(UsageError, match=message):
        build()


def test_ngrams_need_more_bits_than_their_context():
    with pytest.raises(UsageError, match="ngrams of 5 bits have none to predict"):
        DynamicNGrams({"length": (5, 12)}, num_bits=1)
    batch = DynamicNGrams({"length": (6, 6)}, num_bits=1).sample(torch.Generator(), batch_size=2)
    assert batch.target_mask.sum() == 1
