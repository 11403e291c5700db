"""ContinuationRanker against a sorted list of all continuations."""

import math

import pytest
import torch

from regard.decoding.beam import ContinuationRanker
from regard.decoding.types import SpecialTokens

SPECIALS = SpecialTokens()
CPU = torch.device("cpu")


def rank(logits, total, count, length):
    ranker = ContinuationRanker(SPECIALS, 0, CPU)
    return ranker.rank(ranker.to_base2(logits), total, count, length)


def rank_all(logits, total, count, forbidden):
    """The best of all tokens of all rows of a sentence."""
    log_probs = logits.double().log_softmax(-1)
    log_probs[:, forbidden] = -math.inf
    sentences, width = total.shape
    totals = (log_probs.view(sentences, width, -1) + total.double()[:, :, None]).flatten(1)
    best = totals.topk(count)
    vocab = logits.shape[1]
    log_prob = log_probs.view(sentences, -1).gather(1, best.indices)
    return best.values, best.indices % vocab, best.indices // vocab, log_prob


@pytest.mark.parametrize("vocab", [7, 64, 65, 300, 1000])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("shift", [0.0, 500.0, -500.0])
def test_ranking_equals_a_sorted_list(vocab, width, shift):
    torch.manual_seed(vocab + width)
    ranker, count = ContinuationRanker(SPECIALS, min_length=1, device=CPU), min(6, vocab - 4)
    for length, sentences in ((1, 5), (2, 5), (3, 2)):  # one object serves all steps of a search
        logits = 3 * torch.randn(sentences * width, vocab) + shift
        before = logits.clone()
        total = -torch.rand(sentences, width)
        ranked = ranker.rank(ranker.to_base2(logits), total, count, length)
        forbidden = [SPECIALS.pad, SPECIALS.bos] + ([SPECIALS.eos] if length <= 1 else [])
        values, tokens, parents, log_prob = rank_all(logits, total, count, forbidden)
        assert torch.equal(ranked.token, tokens)
        assert torch.equal(ranked.parent, parents)
        torch.testing.assert_close(ranked.total.double(), values, atol=3e-4 if shift else 1e-5, rtol=0)
        torch.testing.assert_close(ranked.log_prob.double(), log_prob, atol=3e-4 if shift else 1e-5, rtol=0)
        assert torch.equal(logits, before), "the logits belong to the model"


def test_places_beyond_the_vocabulary_are_empty_and_valid_tokens():
    ranked = rank(torch.randn(2, 5), torch.zeros(2, 1), 6, 1)
    assert (ranked.total[:, 3:] == -math.inf).all()  # 1, 3 and 4 are allowed
    assert (ranked.token < 5).all()


def test_logits_of_minus_infinity_are_allowed():
    logits = torch.full((1, 200), -math.inf)
    logits[0, 150] = 7.0
    ranked = rank(logits, torch.zeros(1, 1), 2, 1)
    assert ranked.token[0, 0] == 150
    assert ranked.log_prob[0].tolist() == [0.0, -math.inf]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_and_infinity_are_refused(bad):
    logits = torch.randn(3, 90)
    logits[1, 70] = bad
    with pytest.raises(ValueError, match="the logits of token 4 are not finite"):
        rank(logits, torch.zeros(3, 1), 2, 4)
