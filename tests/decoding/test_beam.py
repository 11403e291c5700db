"""Beam search against exhaustive search, plain loops and greedy search; the coverage penalty."""

import itertools
import math

import pytest
import torch

from regard.decoding import DecodingConfig, beam_search, decode, greedy, score_targets
from tests.decoding.models import EOS, Table, Translator, all_targets, loop_beam_search, scores, sources, token_ids


def make_config(**options):
    """A config that limits lengths by max_length only."""
    return DecodingConfig(max_length_ratio=0, max_length_offset=10**6, **options)


@pytest.mark.parametrize("kind", ["wu", "power"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_a_very_wide_beam_is_exhaustive(kind, alpha):
    table, longest = Table(vocab=6), 4
    config = make_config(
        beam_size=3**longest,
        num_best=20,
        length_penalty_type=kind,
        length_penalty=alpha,
        max_length=longest,
        patience=math.inf,
    )
    source = torch.tensor([[4, EOS], [5, EOS]])
    for first, hypotheses in zip([4, 5], beam_search(table, source, torch.tensor([2, 2]), config), strict=True):
        targets = [(ids, total / config.length_norm(len(ids) + 1)) for ids, total in all_targets(table, first, longest)]
        expected = sorted(targets, key=lambda pair: -pair[1])[:20]
        assert token_ids(hypotheses) == [ids for ids, _ in expected]
        assert scores(hypotheses) == pytest.approx([score for _, score in expected], abs=1e-5)
        assert all(hypothesis.finished for hypothesis in hypotheses)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("patience", [1.0, 2.0, math.inf])
def test_it_equals_loops_that_never_stop_early(seed, patience):
    """So the bound by which a search stops early is exact."""
    config = make_config(
        beam_size=3,
        num_best=1 + seed % 3,
        length_penalty=0.4 * (seed % 4),
        max_length=9,
        patience=patience,
        min_length=seed % 2,
    )
    table = Table(vocab=8, seed=seed, sharpness=1.5)
    source = torch.tensor([[4, EOS], [5, EOS], [6, EOS], [7, EOS]])
    for first, hypotheses in zip([4, 5, 6, 7], beam_search(table, source, torch.full((4,), 2), config), strict=True):
        expected = loop_beam_search(table, first, config, 9)
        finished = [hypothesis for hypothesis in hypotheses if hypothesis.finished]
        assert token_ids(finished) == [ids for ids, _ in expected]
        assert scores(finished) == pytest.approx([score for _, score in expected], abs=1e-5)


def test_the_bound_stops_a_search_before_patience_does():
    table = Table(vocab=8)
    table.logits = lambda prefix: torch.tensor([0.0, 0, 0, 9, 0, 0, 0, 0])  # ending at once is best
    ((best, *_),) = beam_search(
        table, *sources(3, vocab=8), make_config(beam_size=3, length_penalty=0.0, max_length=50, patience=math.inf)
    )
    assert best.token_ids == []
    assert len(table.sizes) == 1


def test_the_bound_allows_for_longer_hypotheses():
    """EOS at once scores log 0.4; another token costs log 0.3, then all is certain until the sixth token."""
    table = Table(vocab=8)
    beginning, middle = torch.tensor([0.0, 0, 0, 0.4, 0.3, 0.1, 0.1, 0.1]), torch.eye(8)
    table.logits = lambda prefix: [beginning, middle[4], middle[3]][(len(prefix) > 2) + (len(prefix) > 6)].log()
    config = make_config(beam_size=2, length_penalty=1.0, length_penalty_type="power", max_length=9, patience=math.inf)
    best = beam_search(table, *sources(3, vocab=8), config)[0][0]
    assert best.token_ids == [4] * 5
    assert best.score == pytest.approx(math.log(0.3) / 6)


@pytest.mark.parametrize("specials", list(itertools.permutations((0, 2, 3))))
def test_unused_places_do_not_finish(specials):
    table = Table(vocab=4)  # 1 is the only other token
    config = make_config(beam_size=3, min_length=9, max_length=11)
    special_tokens = dict(zip(("bos", "eos", "pad"), specials, strict=True))
    for hypotheses in beam_search(table, *sources(3, 2, vocab=5), config, **special_tokens):
        assert hypotheses[0].finished
        assert hypotheses[0].token_ids in ([1] * 9, [1] * 10)


@pytest.mark.parametrize("seed", range(6))
def test_a_beam_of_one_equals_greedy_search(seed):
    torch.manual_seed(seed)
    source, lengths = sources(3, 9, 5, 2)
    for model in (Translator(), Table(vocab=12, seed=seed)):
        config = DecodingConfig(beam_size=1, max_length=15)
        expected = greedy(model, source, lengths, config)
        actual = [best for best, *_ in beam_search(model, source, lengths, config)]
        assert token_ids(actual) == token_ids(expected)
        assert [best.log_prob for best in actual] == pytest.approx([best.log_prob for best in expected])


@pytest.mark.parametrize(
    "config",
    [
        DecodingConfig(beam_size=4, num_best=4, max_length=12),
        DecodingConfig(beam_size=4, num_best=2, coverage_penalty=0.3, max_length=12),
        DecodingConfig(method="greedy", max_length_ratio=1, max_length_offset=2),
    ],
)
def test_other_sentences_of_the_batch_do_not_matter(config):
    model = Translator()
    source, lengths = sources(3, 9, 5, 2, 7)
    together = decode(model, source, lengths, config)
    for row, length in enumerate(lengths.tolist()):
        alone = decode(model, source[row : row + 1, :length], lengths[row : row + 1], config)[0]
        assert token_ids(alone) == token_ids(together[row])
        assert scores(alone) == pytest.approx(scores(together[row]), abs=1e-5)


@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
def test_scores_equal_those_of_score_targets(method):
    model = Translator()
    source, lengths = sources(3, 9, 5)
    config = DecodingConfig(method=method, num_best=1 if method == "greedy" else 3, max_length=12, length_penalty=0.7)
    results = decode(model, source, lengths, config)
    for row, hypotheses in enumerate(results):
        for hypothesis in hypotheses:
            target = torch.tensor([[2, *hypothesis.token_ids, *([EOS] if hypothesis.finished else [])]])
            size = torch.tensor([target.shape[1]])
            forced = score_targets(model, source[row : row + 1], lengths[row : row + 1], target, size, config)[0]
            assert (forced.token_ids, forced.finished) == (hypothesis.token_ids, hypothesis.finished)
            assert forced.length == hypothesis.length
            assert forced.token_log_probs == pytest.approx(hypothesis.token_log_probs, abs=1e-5)
            assert forced.score == pytest.approx(hypothesis.score, abs=1e-5)


def test_hypotheses_are_sorted_and_distinct():
    for hypotheses in beam_search(
        Translator(), *sources(3, 9, 5), DecodingConfig(beam_size=6, num_best=6, max_length=20)
    ):
        finished = [hypothesis for hypothesis in hypotheses if hypothesis.finished]
        assert scores(finished) == sorted(scores(finished), reverse=True)
        assert len({(*hypothesis.token_ids, hypothesis.finished) for hypothesis in hypotheses}) == 6
        assert hypotheses[: len(finished)] == finished


def test_finished_sentences_leave_the_batch():
    class Short(Table):  # EOS after as many tokens as the first source token
        def logits(self, prefix):
            return 9 * torch.nn.functional.one_hot(torch.tensor(3 if len(prefix) > prefix[0] else 4), 8).float()

    table = Short()
    decoded = beam_search(
        table, torch.tensor([[4, 3], [6, 3]]), torch.tensor([2, 2]), make_config(beam_size=2, length_penalty=0.0)
    )
    assert [len(hypotheses[0].token_ids) for hypotheses in decoded] == [3, 5]
    assert table.sizes == [2, 4, 4, 4, 2, 2]

    table.sizes.clear()
    greedy(table, torch.tensor([[4, 3], [6, 3]]), torch.tensor([2, 2]))
    assert table.sizes == [2, 2, 2, 2, 1, 1]


def test_the_coverage_penalty_is_that_of_the_paper():
    model, strength = Translator(), 0.8
    source, lengths = sources(4, 6)
    config = DecodingConfig(beam_size=4, num_best=4, coverage_penalty=strength, max_length=10, patience=math.inf)
    for row, hypotheses in enumerate(beam_search(model, source, lengths, config)):
        for hypothesis in hypotheses:
            target = torch.tensor([[2, *hypothesis.token_ids, *([EOS] if hypothesis.finished else [])]])
            length = int(lengths[row])
            weights = model.attention_weights(source[row : row + 1, :length], lengths[row : row + 1], target)[0][0, 0]
            expected = strength * weights.sum(0).clamp(1e-6, 1).log().sum().item()
            penalty = hypothesis.score - hypothesis.log_prob / config.length_norm(hypothesis.length)
            assert penalty == pytest.approx(expected, abs=1e-4)
            assert expected < -1e-3  # the penalty is not trivial


def test_an_empty_batch_and_half_precision():
    assert decode(Table(), torch.zeros(0, 3, dtype=torch.long), torch.zeros(0, dtype=torch.long)) == []
    source, lengths = sources(3, 5)
    low = Table()
    low.logits = lambda prefix, full=low.logits: full(prefix).bfloat16()
    high = Table()
    high.logits = lambda prefix, full=high.logits: full(prefix).bfloat16().float()
    config = DecodingConfig(max_length=8)
    assert decode(low, source, lengths, config) == decode(high, source, lengths, config)
