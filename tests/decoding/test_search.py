"""decode, sample, score_targets and attention_over_hypotheses: limits, random numbers, traces, errors."""

import json
import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding import (
    DecodingConfig,
    Hypothesis,
    attention_over_hypotheses,
    decode,
    decode_with_trace,
    greedy,
    sample,
    score_targets,
)
from regard.decoding.beam import blockwise_topk
from regard.errors import ConfigError, ShapeError, UnsupportedError, UsageError
from tests.decoding.models import EOS, Table, Translator, sources


class ConstantLogits:
    """The same logits at every step."""

    def __init__(self, logits):
        self.logits = torch.as_tensor(logits)

    def start_decoding(self, source, source_lengths):
        self.rows = len(source)
        return self

    def step(self, tokens):
        return self.logits.expand(self.rows, -1)

    def reorder(self, rows):
        self.rows = len(rows)


def one_source():
    return torch.tensor([[4, EOS]]), torch.tensor([2])


@given(st.integers(1, 5), st.integers(1, 700), st.integers(1, 5), st.integers(0, 100))
def test_blockwise_topk_equals_topk(rows, vocab, count, seed):
    count = min(count, vocab)
    scores = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))
    scores[:, :: seed % 7 + 2] = -torch.inf if seed % 2 else 0.0
    values, indices = blockwise_topk(scores, count)
    assert torch.equal(values, scores.topk(count).values)
    assert torch.equal(scores.gather(1, indices), values)
    assert all(len(set(row)) == count for row in indices.tolist())


def test_blockwise_topk_searches_blocks_of_large_vocabularies(monkeypatch):
    scores = torch.randn(3, 64 * 40 + 5)
    expected = scores.topk(6)
    monkeypatch.setattr("regard.decoding.beam._topk", lambda scores, count, f=torch.topk: _narrow(scores, count, f))
    values, indices = blockwise_topk(scores, 6)
    assert torch.equal(values, expected.values)
    assert torch.equal(indices, expected.indices)


def _narrow(scores, count, topk):
    assert scores.shape[1] == 6 * 64 + 5
    return tuple(topk(scores, count))


@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
def test_length_limits(method):
    logits = [9.0, 0, 9, 2, 1, 1, 1]  # PAD and BOS are most probable, then EOS
    config = DecodingConfig(method=method, min_length=4, max_length=6, max_length_ratio=1, max_length_offset=3)
    for hypotheses in decode(ConstantLogits(logits), *sources(2, 9, vocab=7), config):
        for hypothesis in hypotheses:
            assert len(hypothesis.token_ids) >= 4
            assert hypothesis.length <= 6
            assert not {0, 2, 3} & set(hypothesis.token_ids)


def test_a_target_without_eos_is_cut_and_unfinished():
    config = DecodingConfig(beam_size=2, num_best=2, max_length_ratio=2, max_length_offset=1)
    for method in ("beam", "greedy"):
        config = DecodingConfig(method=method, beam_size=2, max_length_ratio=2, max_length_offset=1)
        first, second = (s[0] for s in decode(ConstantLogits([0.0, 0, 0, -99, 1, 2]), *sources(2, 4, vocab=6), config))
        assert (first.token_ids, second.token_ids) == ([5] * 5, [5] * 9)
        assert not first.finished
        assert first.log_prob == pytest.approx(5 * torch.tensor([0.0, 0, 0, -99, 1, 2]).log_softmax(0)[5].item())
        assert first.score == pytest.approx(first.log_prob / config.length_norm(5))


def counts(config, logits, samples=2000):
    hypotheses = decode(ConstantLogits(logits), *one_source(), config, generator=torch.Generator().manual_seed(1))
    assert len(hypotheses[0]) == samples
    frequencies = torch.zeros(len(logits))
    for hypothesis in hypotheses[0]:
        frequencies[hypothesis.token_ids[0] if hypothesis.token_ids else EOS] += 1
    return frequencies


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_sample_frequencies_equal_the_probabilities(temperature):
    logits = torch.tensor([3.0, 0.5, 3.0, 1.0, 0.0, -1.0, 2.0])
    config = DecodingConfig(method="sample", num_best=2000, temperature=temperature, max_length=1)
    frequencies = counts(config, logits)
    assert frequencies[0] == frequencies[2] == 0  # PAD and BOS
    allowed = [1, 3, 4, 5, 6]
    expected = 2000 * (logits[allowed] / temperature).softmax(0)
    assert (
        (frequencies[allowed] - expected) ** 2 / expected
    ).sum() < 18.47  # chi-square, 4 degrees of freedom, p = 0.001


def test_top_k_and_top_p_restrict_the_tokens():
    logits = torch.tensor([0.0, 0.1, 0.0, 0.15, 0.2, 0.25, 0.3]).log()  # of tokens 1, 3, 4, 5, 6
    logits[0] = 5.0  # PAD, which is excluded

    def support(**config):
        frequencies = counts(DecodingConfig(method="sample", num_best=2000, max_length=1, **config), logits)
        return set(frequencies.nonzero().flatten().tolist())

    assert support() == {1, 3, 4, 5, 6}
    assert support(top_k=2) == {5, 6}
    assert support(top_k=100) == {1, 3, 4, 5, 6}
    assert support(top_p=0.29) == {6}
    assert support(top_p=0.31) == {5, 6}
    assert support(top_p=0.76) == {3, 4, 5, 6}
    assert support(top_k=4, top_p=0.8) == {4, 5, 6}  # 0.3 + 0.25 + 0.2 of 0.9
    assert support(top_p=1e-6) == {6}


def test_sampling_is_repeatable_and_scored_by_the_model():
    def sample_five():
        config = DecodingConfig(method="sample", num_best=5, temperature=1.7, top_k=6, max_length=10)
        return sample(Translator(), *source, config, generator=torch.Generator().manual_seed(3))

    source = sources(3, 6)
    torch.manual_seed(0)
    first = sample_five()
    torch.manual_seed(0)
    assert sample_five() == first
    assert all(len(samples) == 5 for samples in first)
    assert [hypothesis.score for hypothesis in first[0]] != sorted({hypothesis.score for hypothesis in first[0]})
    logits = torch.tensor([0.0, 0, 0, 1, 2, 3])
    hot = decode(ConstantLogits(logits), *one_source(), DecodingConfig(method="sample", temperature=9.0, max_length=1))[
        0
    ][0]
    assert hot.log_prob == pytest.approx(logits.log_softmax(0)[hot.token_ids[0] if hot.token_ids else EOS].item())


@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
def test_the_trace_is_the_tree_of_the_search(method):
    config = DecodingConfig(
        method=method, beam_size=4, num_best=1 if method == "greedy" else 3, max_length=9, length_penalty=0.5
    )
    source = sources(3, 8, 5)
    torch.manual_seed(0)
    plain = decode(Translator(), *source, config, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    for expected, (hypotheses, trace) in zip(
        plain, decode_with_trace(Translator(), *source, config, generator=torch.Generator().manual_seed(0)), strict=True
    ):
        assert hypotheses == expected
        assert {c.parent for c in trace.steps[0]} == {-1}
        for before, step in pairwise(trace.steps):
            assert all(0 <= c.parent < len(before) and not before[c.parent].finished for c in step)
            assert len([c for c in step if not c.finished]) <= 4
        places = [(s, i) for s, step in enumerate(trace.steps) for i in range(len(step))]
        candidates = {tuple(trace.path(s, i)): trace.steps[s][i] for s, i in places}
        for hypothesis in hypotheses:
            last = candidates[(*hypothesis.token_ids, *([EOS] if hypothesis.finished else []))]
            assert last.finished == hypothesis.finished
            assert last.score == pytest.approx(hypothesis.score, abs=1e-5)
            assert last.log_prob == hypothesis.token_log_probs[-1]
        data = json.loads(json.dumps(trace.to_json(decode_token=str)))
        assert data["steps"][0][0]["text"] == str(trace.steps[0][0].token)
        assert {*data["steps"][0][0]} == {"text", "token", "log_prob", "score", "parent", "finished"}
        assert json.loads(json.dumps(hypotheses[0].to_json()))["token_ids"] == hypotheses[0].token_ids


def test_unused_places_of_a_beam_are_not_in_the_trace():
    config = DecodingConfig(beam_size=30, num_best=30, max_length=2, patience=math.inf)
    hypotheses, trace = decode_with_trace(Table(vocab=5), *one_source(), config)[0]
    assert sorted(hypothesis.token_ids for hypothesis in hypotheses if hypothesis.finished) == [[], [1], [4]]
    assert len([hypothesis for hypothesis in hypotheses if not hypothesis.finished]) == 4
    assert [len(step) for step in trace.steps] == [3, 6]


def test_decoding_runs_without_dropout_and_restores_modes():
    model = Translator(dropout=0.9)
    model.cell.eval()
    source, lengths = sources(3, 5)
    assert greedy(model, source, lengths) == greedy(model, source, lengths)
    target = torch.tensor([[2, 5, 3], [2, 6, 3]])
    sizes = torch.tensor([3, 3])
    assert score_targets(model, source, lengths, target, sizes) == score_targets(model, source, lengths, target, sizes)
    assert [model.training, model.dropout.training, model.cell.training] == [True, True, False]


def test_score_targets_in_chunks_and_with_padding(monkeypatch):
    model = Translator()
    source, lengths = sources(3, 6, 4)
    target = torch.tensor([[2, 5, 6, 7, 3], [2, 3, 0, 0, 0], [2, 8, 9, 0, 0]])
    sizes = torch.tensor([5, 2, 3])
    expected = score_targets(model, source, lengths, target, sizes)
    monkeypatch.setattr("regard.decoding.forced.CHUNK_SIZE", 2)
    for hypothesis, same in zip(expected, score_targets(model, source, lengths, target, sizes), strict=True):
        assert same.token_log_probs == pytest.approx(hypothesis.token_log_probs, abs=1e-6)
    assert [hypothesis.token_ids for hypothesis in expected] == [[5, 6, 7], [], [8, 9]]
    assert [hypothesis.finished for hypothesis in expected] == [True, True, False]
    logits = model(source, lengths, target[:, :-1]).log_softmax(-1)
    assert expected[0].log_prob == pytest.approx(
        sum(logits[0, i, t].item() for i, t in enumerate([5, 6, 7, 3])), abs=1e-5
    )
    assert expected[0].score == pytest.approx(expected[0].log_prob / (9 / 6))


def test_attention_of_every_row_has_its_own_size():
    model = Translator()
    source, lengths = sources(3, 6)
    hypotheses = [Hypothesis([5, 6], 0, 0, [], True), Hypothesis([7], 0, 0, [], False)]
    first, second = attention_over_hypotheses(model, source, lengths, hypotheses)
    assert (first.shape, second.shape) == ((2, 1, 3, 3), (2, 1, 1, 6))
    torch.testing.assert_close(first.sum(-1), torch.ones(2, 1, 3))
    alone = attention_over_hypotheses(model, source[1:], lengths[1:], hypotheses[1:])[0]
    torch.testing.assert_close(alone, second)

    model.attention_weights = lambda *args: []
    assert attention_over_hypotheses(model, source, lengths, hypotheses)[0].shape == (0, 0, 3, 3)
    assert attention_over_hypotheses(model, source[:0], lengths[:0], []) == []


@pytest.mark.bare
@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"method": "bream"},
            "invalid value 'bream' for method: expected one of beam, greedy, sample; did you mean beam",
        ),
        ({"length_penalty_type": "x"}, "for length_penalty_type: expected one of wu, power"),
        ({"beam_size": 0}, "invalid value '0' for beam_size: must be at least 1"),
        ({"num_best": 6}, "for num_best: must be at most beam_size=5"),
        ({"length_penalty": -1}, "for length_penalty: must be "),
        ({"length_penalty": math.nan}, "for length_penalty: must be "),
        ({"patience": 0.5}, "for patience: must be at least 1"),
        ({"temperature": 0}, "for temperature: must be at least 0.001"),
        ({"top_p": 0}, "for top_p: must be at least 1e-06"),
        ({"min_length": 8, "max_length": 8}, "for min_length: must be less than max_length=8"),
    ],
)
def test_invalid_options_are_refused(config, message):
    with pytest.raises(ConfigError, match=message):
        DecodingConfig(**config)


@pytest.mark.bare
def test_invalid_models_are_refused():
    source, lengths = sources(3, 5)
    with pytest.raises(UnsupportedError, match=r"has no method weights\(\)"):
        decode(Table(), source, lengths, DecodingConfig(coverage_penalty=0.2))
    with pytest.raises(ValueError, match="the logits of token 1 are not finite"):
        decode(ConstantLogits([0.0, math.nan, 1, 1]), source, lengths)
    deep = Table(vocab=12)
    deep.step = lambda tokens, step=deep.step: step(tokens)[:, None]
    with pytest.raises(ShapeError, match=r"logits of shape \(rows, vocab\) with 2 rows, not \(2, 1, 12\)"):
        decode(deep, source, lengths)
    with pytest.raises(ShapeError, match=r"shapes are \(2, 5\) and \(1,\)"):
        decode(Table(), source, lengths[:1])
    with pytest.raises(UsageError, match="target 1 has no token after BOS"):
        score_targets(Translator(), source, lengths, torch.full((2, 2), 3), torch.tensor([2, 1]))
    with pytest.raises(UsageError, match="each of 2 sources, not 1"):
        attention_over_hypotheses(Translator(), source, lengths, [Hypothesis([], 0, 0, [])])
    narrow = Translator()
    state = narrow.start_decoding(source, lengths)
    state.weights = lambda: state.attention[:, :2]
    narrow.start_decoding = lambda *args: state
    with pytest.raises(ShapeError, match=r"weights\(\) must return shape \(rows, src_len\) = \(2, 5\), not \(2, 2\)"):
        decode(narrow, source, lengths, DecodingConfig(coverage_penalty=0.2))
