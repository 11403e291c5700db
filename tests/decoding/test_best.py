"""The few best continuations against a plain ranking of all of them."""

import math

import pytest
import torch

from regard.decoding.ranking import ContinuationRanker
from regard.decoding.types import SpecialTokens

NAMES = SpecialTokens()
CPU = torch.device("cpu")


def ranked(logits, total, count, hidden):
    """All words of all rows of a sentence in one sorted list."""
    own = logits.double().log_softmax(-1)
    own[:, hidden] = -math.inf
    sentences, width = total.shape
    every = (own.view(sentences, width, -1) + total.double()[:, :, None]).flatten(1)
    best = every.topk(count)
    vocab = logits.shape[1]
    own = own.view(sentences, -1).gather(1, best.indices)
    return best.values, best.indices % vocab, best.indices // vocab, own


@pytest.mark.parametrize("vocab", [7, 64, 65, 300, 1000])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("shift", [0.0, 500.0, -500.0])
def test_it_ranks_as_a_sorted_list_does(vocab, width, shift):
    torch.manual_seed(vocab + width)
    best, count = ContinuationRanker(NAMES, min_length=1, device=CPU), min(6, vocab - 4)
    for length, sentences in ((1, 5), (2, 5), (3, 2)):  # one object serves all steps of a search
        logits = 3 * torch.randn(sentences * width, vocab) + shift
        kept = logits.clone()
        total = -torch.rand(sentences, width)
        found = best(logits, total, count, length)
        hidden = [NAMES.pad, NAMES.bos] + ([NAMES.eos] if length <= 1 else [])
        values, tokens, parents, own = ranked(logits, total, count, hidden)
        assert torch.equal(found.token, tokens)
        assert torch.equal(found.parent, parents)
        torch.testing.assert_close(found.total.double(), values, atol=3e-4 if shift else 1e-5, rtol=0)
        torch.testing.assert_close(found.log_prob.double(), own, atol=3e-4 if shift else 1e-5, rtol=0)
        assert torch.equal(logits, kept)  # they are the model's


def test_where_words_are_too_few_places_are_empty_but_words():
    found = ContinuationRanker(NAMES, 0, CPU)(torch.randn(2, 5), torch.zeros(2, 1), 6, 1)
    assert (found.total[:, 3:] == -math.inf).all()  # 1, 3 and 4 can be written
    assert (found.token < 5).all()


def test_words_that_cannot_be_are_no_numbers_to_fear():
    logits = torch.full((1, 200), -math.inf)
    logits[0, 150] = 7.0
    found = ContinuationRanker(NAMES, 0, CPU)(logits, torch.zeros(1, 1), 2, 1)
    assert found.token[0, 0] == 150
    assert found.log_prob[0].tolist() == [0.0, -math.inf]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_numbers_are_refused(bad):
    logits = torch.randn(3, 90)
    logits[1, 70] = bad
    with pytest.raises(ValueError, match="not numbers at token 4"):
        ContinuationRanker(NAMES, 0, CPU)(logits, torch.zeros(3, 1), 2, 4)
