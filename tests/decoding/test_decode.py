"""Limits, chance, traces, and what is refused."""

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
from regard.decoding.ranking import blockwise_topk
from tests.decoding.models import EOS, Table, Translator, sources


class Always:
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
def test_top_is_topk(rows, vocab, count, seed):
    count = min(count, vocab)
    scores = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))
    scores[:, :: seed % 7 + 2] = -torch.inf if seed % 2 else 0.0
    values, at = blockwise_topk(scores, count)
    assert torch.equal(values, scores.topk(count).values)
    assert torch.equal(scores.gather(1, at), values)
    assert all(len(set(row)) == count for row in at.tolist())


def test_top_takes_blocks_where_they_pay(monkeypatch):
    scores = torch.randn(3, 64 * 40 + 5)
    wanted = scores.topk(6)
    monkeypatch.setattr(
        "regard.decoding.ranking._plain", lambda few, count, f=torch.topk: _narrow(few, count, f)
    )
    values, at = blockwise_topk(scores, 6)
    assert torch.equal(values, wanted.values)
    assert torch.equal(at, wanted.indices)


def _narrow(few, count, topk):
    assert few.shape[1] == 6 * 64 + 5
    return tuple(topk(few, count))


@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
def test_lengths_are_kept(method):
    logits = [9.0, 0, 9, 2, 1, 1, 1]  # PAD and BOS would be likeliest, then EOS
    options = DecodingConfig(
        method=method, min_length=4, max_length=6, max_length_ratio=1, max_length_offset=3
    )
    for several in decode(Always(logits), *sources(2, 9, vocab=7), options):
        for one in several:
            assert len(one.token_ids) >= 4
            assert one.length <= 6
            assert not {0, 2, 3} & set(one.token_ids)


def test_a_translation_that_does_not_end_is_cut_and_says_so():
    options = DecodingConfig(beam_size=2, num_best=2, max_length_ratio=2, max_length_offset=1)
    for method in ("beam", "greedy"):
        options = DecodingConfig(method=method, beam_size=2, max_length_ratio=2, max_length_offset=1)
        first, second = (
            s[0] for s in decode(Always([0.0, 0, 0, -99, 1, 2]), *sources(2, 4, vocab=6), options)
        )
        assert (first.token_ids, second.token_ids) == ([5] * 5, [5] * 9)
        assert not first.finished
        assert first.log_prob == pytest.approx(
            5 * torch.tensor([0.0, 0, 0, -99, 1, 2]).log_softmax(0)[5].item()
        )
        assert first.score == pytest.approx(first.log_prob / options.length_norm(5))


def counts(options, logits, draws=2000):
    found = decode(Always(logits), *one_source(), options, generator=torch.Generator().manual_seed(1))
    assert len(found[0]) == draws
    seen = torch.zeros(len(logits))
    for one in found[0]:
        seen[one.token_ids[0] if one.token_ids else EOS] += 1
    return seen


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_as_often_as_they_are_likely(temperature):
    logits = torch.tensor([3.0, 0.5, 3.0, 1.0, 0.0, -1.0, 2.0])
    options = DecodingConfig(method="sample", num_best=2000, temperature=temperature, max_length=1)
    seen = counts(options, logits)
    assert seen[0] == seen[2] == 0  # PAD and BOS
    allowed = [1, 3, 4, 5, 6]
    wanted = 2000 * (logits[allowed] / temperature).softmax(0)
    assert (
        (seen[allowed] - wanted) ** 2 / wanted
    ).sum() < 18.47  # chi-square, 4 degrees of freedom, p = 0.001


def test_top_k_and_top_p_keep_what_they_say():
    logits = torch.tensor([0.0, 0.1, 0.0, 0.15, 0.2, 0.25, 0.3]).log()  # of tokens 1, 3, 4, 5, 6
    logits[0] = 5.0  # PAD, which takes no part

    def support(**options):
        seen = counts(DecodingConfig(method="sample", num_best=2000, max_length=1, **options), logits)
        return set(seen.nonzero().flatten().tolist())

    assert support() == {1, 3, 4, 5, 6}
    assert support(top_k=2) == {5, 6}
    assert support(top_k=100) == {1, 3, 4, 5, 6}
    assert support(top_p=0.29) == {6}
    assert support(top_p=0.31) == {5, 6}
    assert support(top_p=0.76) == {3, 4, 5, 6}
    assert support(top_k=4, top_p=0.8) == {4, 5, 6}  # 0.3 + 0.25 + 0.2 of 0.9
    assert support(top_p=1e-6) == {6}


def test_drawing_is_repeatable_and_scored_by_the_model():
    def draw():
        options = DecodingConfig(method="sample", num_best=5, temperature=1.7, top_k=6, max_length=10)
        return sample(Translator(), *source, options, generator=torch.Generator().manual_seed(3))

    source = sources(3, 6)
    torch.manual_seed(0)
    first = draw()
    torch.manual_seed(0)
    assert draw() == first
    assert all(len(several) == 5 for several in first)
    assert [one.score for one in first[0]] != sorted({one.score for one in first[0]})
    logits = torch.tensor([0.0, 0, 0, 1, 2, 3])
    hot = decode(
        Always(logits), *one_source(), DecodingConfig(method="sample", temperature=9.0, max_length=1)
    )[0][0]
    assert hot.log_prob == pytest.approx(
        logits.log_softmax(0)[hot.token_ids[0] if hot.token_ids else EOS].item()
    )


@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
def test_a_trace_is_the_tree_of_the_search(method):
    options = DecodingConfig(
        method=method, beam_size=4, num_best=1 if method == "greedy" else 3, max_length=9, length_penalty=0.5
    )
    source = sources(3, 8, 5)
    torch.manual_seed(0)
    plain = decode(Translator(), *source, options, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    for several, (found, tree) in zip(
        plain,
        decode_with_trace(Translator(), *source, options, generator=torch.Generator().manual_seed(0)),
        strict=True,
    ):
        assert found == several
        assert {c.parent for c in tree.steps[0]} == {-1}
        for before, step in pairwise(tree.steps):
            assert all(0 <= c.parent < len(before) and not before[c.parent].finished for c in step)
            assert len([c for c in step if not c.finished]) <= 4
        places = [(s, i) for s, step in enumerate(tree.steps) for i in range(len(step))]
        ended = {tuple(tree.path(s, i)): tree.steps[s][i] for s, i in places}
        for one in found:
            last = ended[(*one.token_ids, *([EOS] if one.finished else []))]
            assert last.finished == one.finished
            assert last.score == pytest.approx(one.score, abs=1e-5)
            assert last.log_prob == one.token_log_probs[-1]
        written = json.loads(json.dumps(tree.to_json(decode_token=str)))
        assert written["steps"][0][0]["text"] == str(tree.steps[0][0].token)
        assert {*written["steps"][0][0]} == {"text", "token", "log_prob", "score", "parent", "finished"}
        assert json.loads(json.dumps(found[0].to_json()))["ids"] == found[0].token_ids


def test_empty_places_of_a_beam_leave_no_trace():
    options = DecodingConfig(beam_size=30, num_best=30, max_length=2, patience=math.inf)
    found, tree = decode_with_trace(Table(vocab=5), *one_source(), options)[0]
    assert sorted(one.token_ids for one in found if one.finished) == [[], [1], [4]]
    assert len([one for one in found if not one.finished]) == 4
    assert [len(step) for step in tree.steps] == [3, 6]


def test_decoding_is_without_dropout_and_leaves_modes_alone():
    model = Translator(dropout=0.9)
    model.cell.eval()
    source, lengths = sources(3, 5)
    assert greedy(model, source, lengths) == greedy(model, source, lengths)
    target = torch.tensor([[2, 5, 3], [2, 6, 3]])
    sizes = torch.tensor([3, 3])
    assert score_targets(model, source, lengths, target, sizes) == score_targets(
        model, source, lengths, target, sizes
    )
    assert [model.training, model.dropout.training, model.cell.training] == [True, True, False]


def test_forced_decoding_in_parts_and_with_padding(monkeypatch):
    model = Translator()
    source, lengths = sources(3, 6, 4)
    target = torch.tensor([[2, 5, 6, 7, 3], [2, 3, 0, 0, 0], [2, 8, 9, 0, 0]])
    sizes = torch.tensor([5, 2, 3])
    whole = score_targets(model, source, lengths, target, sizes)
    monkeypatch.setattr("regard.decoding.search.AT_ONCE", 2)
    for one, same in zip(whole, score_targets(model, source, lengths, target, sizes), strict=True):
        assert same.token_log_probs == pytest.approx(one.token_log_probs, abs=1e-6)
    assert [one.token_ids for one in whole] == [[5, 6, 7], [], [8, 9]]
    assert [one.finished for one in whole] == [True, True, False]
    logits = model.lm_head(model(source, lengths, target[:, :-1])).log_softmax(-1)
    assert whole[0].log_prob == pytest.approx(
        sum(logits[0, i, t].item() for i, t in enumerate([5, 6, 7, 3])), abs=1e-5
    )
    assert whole[0].score == pytest.approx(whole[0].log_prob / (9 / 6))


def test_look_gives_every_row_its_own_size():
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
    ("options", "sentence"),
    [
        ({"method": "bream"}, "method must be one of beam, greedy, sample, not 'bream'"),
        ({"length_penalty": "x"}, "length_penalty must be one of wu, power"),
        ({"beam": 0}, "invalid value '0' for beam: must be at least 1"),
        ({"best": 6}, "a beam of 5 cannot give the best 6"),
        ({"alpha": -1}, "alpha must be 0 or more"),
        ({"alpha": math.nan}, "alpha must be 0 or more"),
        ({"patience": 0.5}, "patience must be 1 or more"),
        ({"temperature": 0}, "for temperature: must be at least 0.001"),
        ({"top_p": 0}, "for top_p: must be at least 1e-06"),
        ({"min_length": 8, "max_length": 8}, "do not fit"),
    ],
)
def test_options_are_refused_in_words(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        DecodingConfig(**options)


@pytest.mark.bare
def test_models_are_refused_in_words():
    source, lengths = sources(3, 5)
    with pytest.raises(ValueError, match="no attention to tell"):
        decode(Table(), source, lengths, DecodingConfig(coverage_penalty=0.2))
    with pytest.raises(ValueError, match="not numbers at token 1"):
        decode(Always([0.0, math.nan, 1, 1]), source, lengths)
    deep = Table(vocab=12)
    deep.step = lambda tokens, step=deep.step: step(tokens)[:, None]
    with pytest.raises(
        ValueError, match=r"logits \(rows, vocab\) with 2 rows, but its shape is \(2, 1, 12\)"
    ):
        decode(deep, source, lengths)
    with pytest.raises(ValueError, match=r"shapes are \(2, 5\) and \(1,\)"):
        decode(Table(), source, lengths[:1])
    with pytest.raises(ValueError, match="target 1 has nothing after BOS"):
        score_targets(Translator(), source, lengths, torch.full((2, 2), 3), torch.tensor([2, 1]))
    with pytest.raises(ValueError, match="not 1 of 2"):
        attention_over_hypotheses(Translator(), source, lengths, [Hypothesis([], 0, 0, [])])
    narrow = Translator()
    steps = narrow.start_decoding(source, lengths)
    steps.weights = lambda: steps.seen[:, :2]
    narrow.start_decoding = lambda *args: steps
    with pytest.raises(ValueError, match=r"weights\(\) must be \(rows, source\) = \(2, 5\), but is \(2, 2\)"):
        decode(narrow, source, lengths, DecodingConfig(coverage_penalty=0.2))
