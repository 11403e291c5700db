"""Beam search against exhaustive search, against loops, and against itself."""

import itertools
import math

import pytest
import torch

from regard.decoding import DecodingConfig, beam_search, decode, greedy, score_targets
from tests.decoding.models import EOS, Table, Translator, every_translation, plain_beam, sources


def free(**options):
    """Options whose limit is max_length alone."""
    return DecodingConfig(max_length_ratio=0, max_length_offset=10**6, **options)


@pytest.mark.parametrize("kind", ["wu", "power"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_a_beam_as_wide_as_everything_is_exhaustive(kind, alpha):
    table, longest = Table(vocab=6), 4
    options = free(
        beam=3**longest, best=20, length_penalty=kind, alpha=alpha, max_length=longest, patience=math.inf
    )
    source = torch.tensor([[4, EOS], [5, EOS]])
    for first, found in zip([4, 5], beam_search(table, source, torch.tensor([2, 2]), options), strict=True):
        every = [
            (ids, total / options.length_norm(len(ids) + 1))
            for ids, total in every_translation(table, first, longest)
        ]
        wanted = sorted(every, key=lambda one: -one[1])[:20]
        assert [one.token_ids for one in found] == [ids for ids, _ in wanted]
        assert [one.score for one in found] == pytest.approx([score for _, score in wanted], abs=1e-5)
        assert all(one.finished for one in found)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("patience", [1.0, 2.0, math.inf])
def test_it_finds_what_loops_find_that_never_stop_early(seed, patience):
    """So the bound, by which a sentence leaves before its limit, changes nothing."""
    options = free(
        beam=3,
        best=1 + seed % 3,
        alpha=0.4 * (seed % 4),
        max_length=9,
        patience=patience,
        min_length=seed % 2,
    )
    table = Table(vocab=8, seed=seed, sharpness=1.5)
    source = torch.tensor([[4, EOS], [5, EOS], [6, EOS], [7, EOS]])
    for first, found in zip(
        [4, 5, 6, 7], beam_search(table, source, torch.full((4,), 2), options), strict=True
    ):
        wanted = plain_beam(table, first, options, 9)
        ended = [one for one in found if one.finished]
        assert [one.token_ids for one in ended] == [ids for ids, _ in wanted]
        assert [one.score for one in ended] == pytest.approx([score for _, score in wanted], abs=1e-5)


def test_the_bound_ends_a_search_that_patience_would_not():
    table = Table(vocab=8)
    table.logits = lambda prefix: torch.tensor([0.0, 0, 0, 9, 0, 0, 0, 0])  # nothing beats ending at once
    found = beam_search(
        table, *sources(3, vocab=8), free(beam=3, alpha=0.0, max_length=50, patience=math.inf)
    )
    assert found[0][0].token_ids == []
    assert len(table.sizes) == 1


def test_the_bound_waits_for_what_a_long_translation_can_still_win():
    """Ending at once scores log 0.4; going on costs log 0.3, and then is sure until the sixth token."""
    table = Table(vocab=8)
    beginning, middle = torch.tensor([0.0, 0, 0, 0.4, 0.3, 0.1, 0.1, 0.1]), torch.eye(8)
    table.logits = lambda prefix: [beginning, middle[4], middle[3]][
        (len(prefix) > 2) + (len(prefix) > 6)
    ].log()
    options = free(beam=2, alpha=1.0, length_penalty="power", max_length=9, patience=math.inf)
    best = beam_search(table, *sources(3, vocab=8), options)[0][0]
    assert best.token_ids == [4] * 5
    assert best.score == pytest.approx(math.log(0.3) / 6)


@pytest.mark.parametrize("specials", list(itertools.permutations((0, 2, 3))))
def test_empty_places_do_not_end(specials):
    table = Table(vocab=4)  # 1 is the only word
    options = free(beam=3, min_length=9, max_length=11)
    names = dict(zip(("bos", "eos", "pad"), specials, strict=True))
    for several in beam_search(table, *sources(3, 2, vocab=5), options, **names):
        assert several[0].finished
        assert several[0].token_ids in ([1] * 9, [1] * 10)


@pytest.mark.parametrize("seed", range(6))
def test_a_beam_of_one_is_greedy(seed):
    torch.manual_seed(seed)
    source, lengths = sources(3, 9, 5, 2)
    for model in (Translator(), Table(vocab=12, seed=seed)):
        options = DecodingConfig(beam_size=1, max_length=15)
        alone = greedy(model, source, lengths, options)
        assert [several[0].token_ids for several in beam_search(model, source, lengths, options)] == [
            one.token_ids for one in alone
        ]
        assert [
            several[0].log_prob for several in beam_search(model, source, lengths, options)
        ] == pytest.approx([one.log_prob for one in alone])


@pytest.mark.parametrize(
    "options",
    [
        DecodingConfig(beam_size=4, num_best=4, max_length=12),
        DecodingConfig(beam_size=4, num_best=2, coverage_penalty=0.3, max_length=12),
        DecodingConfig(method="greedy", max_length_ratio=1, max_length_offset=2),
    ],
)
def test_neighbors_do_not_matter(options):
    model = Translator()
    source, lengths = sources(3, 9, 5, 2, 7)
    together = decode(model, source, lengths, options)
    for row, length in enumerate(lengths.tolist()):
        alone = decode(model, source[row : row + 1, :length], lengths[row : row + 1], options)[0]
        assert [one.token_ids for one in alone] == [one.token_ids for one in together[row]]
        assert [one.score for one in alone] == pytest.approx([one.score for one in together[row]], abs=1e-5)


@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
def test_scores_are_those_of_forced_decoding(method):
    model = Translator()
    source, lengths = sources(3, 9, 5)
    options = DecodingConfig(
        method=method, num_best=1 if method == "greedy" else 3, max_length=12, length_penalty=0.7
    )
    found = decode(model, source, lengths, options)
    for row, several in enumerate(found):
        for one in several:
            target = torch.tensor([[2, *one.token_ids, *([EOS] if one.finished else [])]])
            size = torch.tensor([target.shape[1]])
            forced = score_targets(
                model, source[row : row + 1], lengths[row : row + 1], target, size, options
            )[0]
            assert (forced.token_ids, forced.finished, forced.length) == (
                one.token_ids,
                one.finished,
                one.length,
            )
            assert forced.token_log_probs == pytest.approx(one.token_log_probs, abs=1e-5)
            assert forced.score == pytest.approx(one.score, abs=1e-5)


def test_hypotheses_come_best_first_and_differ():
    for several in beam_search(
        Translator(), *sources(3, 9, 5), DecodingConfig(beam_size=6, num_best=6, max_length=20)
    ):
        finished = [one for one in several if one.finished]
        assert [one.score for one in finished] == sorted((one.score for one in finished), reverse=True)
        assert len({(*one.token_ids, one.finished) for one in several}) == 6
        assert several[: len(finished)] == finished


def test_sentences_leave_the_batch_when_they_are_done():
    class Short(Table):  # ends after as many tokens as its source's first token says
        def logits(self, prefix):
            return (
                9 * torch.nn.functional.one_hot(torch.tensor(3 if len(prefix) > prefix[0] else 4), 8).float()
            )

    table = Short()
    found = beam_search(table, torch.tensor([[4, 3], [6, 3]]), torch.tensor([2, 2]), free(beam=2, alpha=0.0))
    assert [len(several[0].token_ids) for several in found] == [3, 5]
    assert table.sizes == [2, 4, 4, 4, 2, 2]

    table.sizes.clear()
    greedy(table, torch.tensor([[4, 3], [6, 3]]), torch.tensor([2, 2]))
    assert table.sizes == [2, 2, 2, 2, 1, 1]


def test_coverage_is_computed_as_published():
    model, strength = Translator(), 0.8
    source, lengths = sources(4, 6)
    options = DecodingConfig(
        beam_size=4, num_best=4, coverage_penalty=strength, max_length=10, patience=math.inf
    )
    for row, several in enumerate(beam_search(model, source, lengths, options)):
        for one in several:
            target = torch.tensor([[2, *one.token_ids, *([EOS] if one.finished else [])]])
            length = int(lengths[row])
            seen = model.attention_weights(source[row : row + 1, :length], lengths[row : row + 1], target)[0][
                0, 0
            ]
            wanted = strength * seen.sum(0).clamp(1e-6, 1).log().sum().item()
            assert one.score - one.log_prob / options.length_norm(one.length) == pytest.approx(
                wanted, abs=1e-4
            )
            assert wanted < -1e-3  # it had something to say


def test_an_empty_batch_and_half_precision():
    assert decode(Table(), torch.zeros(0, 3, dtype=torch.long), torch.zeros(0, dtype=torch.long)) == []
    source, lengths = sources(3, 5)
    low = Table()
    low.logits = lambda prefix, full=low.logits: full(prefix).bfloat16()
    high = Table()
    high.logits = lambda prefix, full=high.logits: full(prefix).bfloat16().float()
    options = DecodingConfig(max_length=8)
    assert decode(low, source, lengths, options) == decode(high, source, lengths, options)
