"""Sources of sentence pairs: every pair once per epoch, bounded batches, and exact resuming."""

import json
import tempfile
from collections import Counter
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import (
    EOS_ID,
    BatchingConfig,
    DataReport,
    GeneratedPairs,
    InMemoryPairs,
    PairBatch,
    ParallelFiles,
    SentencePair,
    StreamedPairs,
    Tokenizer,
    iter_eval_batches,
)
from regard.errors import DataError
from tests.data.texts import make_lines


@cache
def tokenizer(kind="bpe"):
    return Tokenizer.train(make_lines(), kind, 200)


def pairs(count, seed=0):
    random = Random(seed)
    texts = make_lines(count, seed)
    return [
        SentencePair(text, " ".join(random.sample(text.split(), random.randint(1, len(text.split())))))
        for text in texts
    ]


def sample_pairs(random, count):
    return pairs(count, random.getrandbits(30))


def write_pairs(folder, pairs):
    path = Path(folder, "a.tsv")
    path.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs))
    return ParallelFiles([path])


def make_source(name, folder, count, config, chunk):
    both = tokenizer(), tokenizer()
    if name == "generated":
        return GeneratedPairs(sample_pairs, *both, config, chunk_size=chunk)
    examples = write_pairs(folder, pairs(count))
    return (
        InMemoryPairs(examples, *both, config)
        if name == "in-memory"
        else StreamedPairs(examples, *both, config, chunk_size=chunk)
    )


def same(one, other):
    return all(torch.equal(getattr(one, name), value) for name, value in vars(other).items())


def texts(batch):
    return [
        (tokenizer().decode(source), tokenizer().decode(target))
        for source, target in zip(batch.source.tolist(), batch.target.tolist(), strict=True)
    ]


def epochs(source, count):
    """The batches of the first epochs, by their positions."""
    batches = [[] for _ in range(count + 1)]
    epoch = 0
    for batch, position in source.batches():
        batches[epoch].append(batch)
        epoch = position["epoch"]
        if epoch == count:
            break
    return batches[:count]


NAMES = ("in-memory", "streamed", "generated")


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12)
@given(
    count=st.integers(1, 25),
    tokens=st.integers(70, 200),
    dropout=st.sampled_from([0.0, 0.2, (0.5, 0.0)]),
    chunk=st.integers(1, 12),
    seed=st.integers(0, 5),
)
def test_every_position_resumes_exactly(name, count, tokens, dropout, chunk, seed):
    config = BatchingConfig(max_tokens=tokens, dropout=dropout, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        source = make_source(name, folder, count, config, chunk)
        run = list(islice(source.batches(), 12))
        for index, (_, position) in enumerate(run):
            again = make_source(name, folder, count, config, chunk) if index % 4 == 0 else source
            follow = islice(again.batches(json.loads(json.dumps(position))), 2)
            for (batch, after), (expected, expected_after) in zip(follow, run[index + 1 :], strict=False):
                assert same(batch, expected)
                assert after == expected_after


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("name", ["in-memory", "streamed"])
def test_an_epoch_is_every_pair_once(name, dropout, tmp_path):
    source = make_source(name, tmp_path, 150, BatchingConfig(max_tokens=300, dropout=dropout), chunk=40)
    expected = Counter((pair.source, pair.target) for pair in pairs(150))
    first, second = epochs(source, 2)
    for epoch in (first, second):
        assert Counter(text for batch in epoch for text in texts(batch)) == expected
    assert [texts(batch) for batch in first] != [texts(batch) for batch in second]
    lengths = [[batch.target_lengths.sum().item() for batch in epoch] for epoch in (first, second)]
    assert (sum(lengths[0]) != sum(lengths[1])) == (dropout > 0)


@pytest.mark.parametrize("name", NAMES)
def test_batches_are_full_and_bounded(name, tmp_path):
    (batches,) = epochs(make_source(name, tmp_path, 400, BatchingConfig(max_tokens=500), chunk=400), 1)
    sizes = [max(batch.source.numel(), batch.target[:, 1:].numel()) for batch in batches]
    assert max(sizes) <= 500
    assert sorted(sizes)[len(sizes) // 4] > 400
    for batch in batches:
        assert isinstance(batch, PairBatch)
        assert batch.source.shape[1] == batch.source_lengths.max()
        assert batch.target.shape[1] == batch.target_lengths.max()
        ends = batch.target[torch.arange(len(batch)), batch.target_lengths - 1]
        assert (ends == EOS_ID).all()


def test_batches_equal_those_built_row_by_row():
    examples = pairs(7)
    (batch, rows), *rest = iter_eval_batches(examples, tokenizer(), tokenizer(), max_tokens=10_000)
    encoded = [(tokenizer().encode(examples[i].source), tokenizer().encode(examples[i].target)) for i in rows]
    assert not rest
    assert same(batch, PairBatch.from_pairs(encoded))


def test_the_seed_decides_the_order(tmp_path):
    orders = [
        [
            texts(batch)
            for batch in epochs(
                make_source("in-memory", tmp_path, 100, BatchingConfig(max_tokens=200, seed=seed), 1), 1
            )[0]
        ]
        for seed in (0, 0, 1)
    ]
    assert orders[0] == orders[1] != orders[2]
    lengths = [len(batch[0][0]) for batch in orders[0]]
    assert lengths != sorted(lengths)


def test_padding_ratio_is_small():
    data = InMemoryPairs(pairs(2000), tokenizer(), tokenizer(), BatchingConfig(max_tokens=1000))
    (batches,) = epochs(data, 1)
    pads = sum((side == 0).sum().item() for batch in batches for side in (batch.source, batch.target))
    everything = sum(batch.source.numel() + batch.target.numel() for batch in batches)
    assert data.padding_ratio == pytest.approx(pads / everything)
    assert data.padding_ratio < 0.2


def test_omitted_pairs_are_counted(tmp_path):
    examples = [
        SentencePair("ba", "ba"),
        SentencePair(" ", "ba"),
        SentencePair("ba", ""),
        SentencePair("ba " * 30, "ba"),
        SentencePair("ba", "ba " * 21),
        SentencePair("\t", "x"),
    ]
    words = Tokenizer.train(["ba x"], "word", 20)
    data = InMemoryPairs(examples, words, words, BatchingConfig(max_length=20))
    assert data.report.as_dict() == {
        "max_length": 20,
        "overflow": "drop",
        "read": 6,
        "used": 1,
        "empty": 3,
        "empty_lines": [2, 3, 6],
        "too_long": 2,
        "too_long_lines": [4, 5],
        "tokens": 2,
        "unknown": 0,
        "is_generated": False,
    }
    assert str(data.report) == (
        "6 pairs read, 1 used; 3 with an empty side left out (lines 2, 3, 6); 2 over 20 tokens left out (lines 4, 5)."
    )
    truncated = InMemoryPairs(examples, words, words, BatchingConfig(max_length=20, overflow="truncate"))
    assert (len(truncated), truncated.report.used, truncated.report.too_long) == (3, 3, 2)
    assert "2 over 20 tokens truncated" in str(truncated.report)
    assert epochs(truncated, 1)[0][0].source_lengths.max() == 21
    with pytest.raises(DataError, match="Line 4 of the pairs has 30 source and 1 target tokens, over max_length=20"):
        InMemoryPairs(examples, words, words, BatchingConfig(max_length=20, overflow="error"))


def test_streamed_pairs_are_counted(tmp_path):
    examples = [*pairs(10), SentencePair("", "ba"), SentencePair("ba " * 99, "ba")]
    stream = StreamedPairs(
        write_pairs(tmp_path, examples), tokenizer(), tokenizer(), BatchingConfig(max_length=90), chunk_size=4
    )
    assert stream.compute_report().as_dict() | {
        "read": 12,
        "used": 10,
        "empty_lines": [11],
        "too_long_lines": [12],
    } == (stream.compute_report().as_dict())
    epochs(stream, 1)
    assert stream.report.read == 12


def test_generated_pairs_report_their_first_chunk():
    words = Tokenizer.train(["ba x"], "word", 20)
    data = GeneratedPairs(
        lambda random, count: [SentencePair("ba", "ba"), SentencePair("ba " * 9, "ba")] * (count // 2),
        words, words, BatchingConfig(max_length=8), chunk_size=10,
    )  # fmt: skip
    report = data.compute_report()
    assert (report.read, report.used, report.too_long, report.is_generated) == (10, 5, 5, True)
    assert str(report) == "10 pairs generated first, 5 used; 5 over 8 tokens left out."
    assert DataReport(**report.as_dict()) == report


def test_messages_use_the_option_names():
    words = Tokenizer.train(["ba x"], "word", 20)
    long = [SentencePair("ba " * 30, "ba")]
    limits = {"max_length": 20, "overflow": "error"}
    with pytest.raises(DataError, match="raise it, or set overflow to drop or truncate"):
        InMemoryPairs(long, words, words, BatchingConfig(**limits))
    with pytest.raises(DataError, match="raise it, or set too_long to drop or truncate"):
        InMemoryPairs(long, words, words, BatchingConfig(**limits, option_names=("batch_tokens", "too_long")))
    with pytest.raises(DataError, match="a batch holds 20; raise batch_tokens, or set max_length"):
        InMemoryPairs(long, words, words, BatchingConfig(max_tokens=20, option_names=("batch_tokens", "too_long")))
    assert repr(BatchingConfig(option_names=("a", "b"))) == repr(BatchingConfig())  # positions that were saved go by it


def test_resuming_a_stream_encodes_one_chunk(tmp_path, monkeypatch):
    stream = make_source("streamed", tmp_path, 60, BatchingConfig(max_tokens=200), chunk=20)
    position = next(p for _, p in stream.batches() if p["chunk"] == 2)
    encoded = []
    encode = Tokenizer.encode
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text: encoded.append(text) or encode(self, text))
    next(stream.batches(position))
    assert len(encoded) == 40  # 20 pairs


def test_unequal_files_are_refused_at_construction(tmp_path):
    (tmp_path / "a.x").write_text("a\nb\n")
    (tmp_path / "a.y").write_text("a\n")
    with pytest.raises(DataError, match="is longer"):
        StreamedPairs(ParallelFiles([tmp_path / "a.x", tmp_path / "a.y"]), tokenizer(), tokenizer())


@pytest.mark.parametrize("name", NAMES)
def test_a_pair_larger_than_a_batch_is_named(name, tmp_path):
    big = [SentencePair("ba", "ba"), SentencePair("ba, " * 40, "ba")]
    settings = tokenizer(), tokenizer(), BatchingConfig(max_tokens=40)
    first = {
        "in-memory": lambda: InMemoryPairs(big, *settings),
        "streamed": lambda: next(StreamedPairs(write_pairs(tmp_path, big), *settings).batches()),
        "generated": lambda: next(GeneratedPairs(lambda random, count: big, *settings).batches()),
    }[name]
    with pytest.raises(DataError, match=r"Line 2 of .* takes \d+ tokens, but a batch holds 40; raise max_tokens"):
        first()


def test_sources_without_usable_pairs_are_refused(tmp_path):
    empty = [SentencePair("", "a"), SentencePair("a", " ")]
    with pytest.raises(DataError, match="2 with an empty side"):
        InMemoryPairs(empty, tokenizer(), tokenizer())
    with pytest.raises(DataError, match="2 with an empty side"):
        next(StreamedPairs(write_pairs(tmp_path, empty), tokenizer(), tokenizer(), chunk_size=1).batches())
    with pytest.raises(DataError, match="2 with an empty side"):
        next(GeneratedPairs(lambda random, count: empty, tokenizer(), tokenizer()).batches())


def test_empty_chunks_are_skipped(tmp_path):
    examples = [SentencePair("", "a"), SentencePair("", "a"), *pairs(2), SentencePair("a", ""), SentencePair("a", "")]
    stream = StreamedPairs(write_pairs(tmp_path, examples), tokenizer(), tokenizer(), chunk_size=2)
    run = list(islice(stream.batches(), 3))
    assert [len(batch) for batch, _ in run] == [2, 2, 2]
    for (_, position), (expected, _) in pairwise(run):
        assert same(next(stream.batches(position))[0], expected)


def test_dropout_keeps_the_limits():
    examples = pairs(200)
    longest = max(len(tokenizer().encode(pair.source)) for pair in examples)
    config = BatchingConfig(max_tokens=longest + 1, max_length=longest, dropout=0.5)
    (batches,) = epochs(InMemoryPairs(examples, tokenizer(), tokenizer(), config), 1)
    assert max(batch.source.numel() for batch in batches) <= longest + 1
    assert max(batch.source_lengths.max() for batch in batches) == longest + 1


def test_a_position_of_other_data_or_options_is_refused(tmp_path):
    _, position = next(InMemoryPairs(pairs(9), tokenizer(), tokenizer(), BatchingConfig(max_tokens=80)).batches())
    for other in (
        InMemoryPairs(pairs(9), tokenizer(), tokenizer(), BatchingConfig(max_tokens=81)),
        InMemoryPairs(pairs(9), tokenizer(), tokenizer(), BatchingConfig(max_tokens=80, seed=1)),
        InMemoryPairs(pairs(9, seed=1), tokenizer(), tokenizer(), BatchingConfig(max_tokens=80)),
        GeneratedPairs(sample_pairs, tokenizer(), tokenizer(), BatchingConfig(max_tokens=80)),
    ):
        with pytest.raises(DataError, match="changed since this position was saved"):
            next(other.batches(position))


def test_generated_chunks_are_new_ones():
    first, second = epochs(
        GeneratedPairs(sample_pairs, tokenizer(), tokenizer(), BatchingConfig(max_tokens=300), chunk_size=50), 2
    )
    both = [{text for batch in epoch for text in texts(batch)} for epoch in (first, second)]
    assert sum(map(len, first)) == sum(map(len, second)) == 50
    assert len(both[0] & both[1]) < 5


def test_eval_batches_contain_every_pair():
    examples = [SentencePair("", ""), *pairs(50), SentencePair("ba " * 300, "")]
    outputs = [""] * len(examples)
    for batch, rows in iter_eval_batches(examples, tokenizer(), tokenizer(), max_tokens=200):
        assert len(batch) == 1 or batch.source.numel() <= 200
        for row, (source, _) in zip(rows, texts(batch), strict=True):
            outputs[row] = source
    assert outputs == [" ".join(pair.source.split()) for pair in examples]
    assert list(iter_eval_batches([], tokenizer(), tokenizer())) == []


def test_invalid_options():
    with pytest.raises(ValueError, match="invalid value 'skip' for overflow: must be one of drop, truncate, error"):
        BatchingConfig(overflow="skip")
    with pytest.raises(ValueError, match="at least 1"):
        BatchingConfig(max_tokens=0)
    with pytest.raises(ValueError, match="probability"):
        BatchingConfig(dropout=2.0)
    with pytest.raises(ValueError, match="Only a bpe tokenizer"):
        InMemoryPairs(pairs(3), tokenizer(), tokenizer("word"), BatchingConfig(dropout=0.1))
    InMemoryPairs(pairs(3), tokenizer(), tokenizer("word"), BatchingConfig(dropout=(0.1, 0.0)))
    with pytest.raises(ValueError, match="invalid value 0 for chunk_size"):
        GeneratedPairs(sample_pairs, tokenizer(), tokenizer(), chunk_size=0)
