"""The checks of `regard.testing`, for every mechanism of the catalogue."""

import pytest

from regard.attention import Mask
from regard.catalogue import MECHANISMS
from regard.testing import check_mask, check_normalizer, check_score
from tests.contract.mechanisms import LISTED_NORMALIZERS, LISTED_SCORES, MASKS


@pytest.mark.parametrize("name", LISTED_SCORES)
def test_scores(name):
    score = LISTED_SCORES[name]()
    if getattr(score, "num_heads", 3) != 3:
        score = type(score)(num_heads=3)  # the number of heads of the sample inputs
    check_score(score)


@pytest.mark.parametrize("name", LISTED_NORMALIZERS)
def test_normalizers(name):
    check_normalizer(LISTED_NORMALIZERS[name](), gradient=name != "StraightThrough")  # its gradient is an estimate


@pytest.mark.parametrize("entry", [entry for entry in MECHANISMS if entry.kind == "mask"], ids=lambda e: e.name)
def test_listed_masks(entry):
    assert isinstance(entry.example(), Mask)
    check_mask(entry.example(), queries=16, keys=16)


@pytest.mark.parametrize("name", [name for name in MASKS if name != "none"])
def test_masks(name):
    check_mask(MASKS[name](7, 9))
