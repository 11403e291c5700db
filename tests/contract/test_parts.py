"""What `regard.testing` promises, on every part of the catalogue and on some that are made of them."""

import pytest
import torch

from regard.attention import Mask
from regard.catalogue import ENTRIES
from regard.testing import check_mask, check_normalizer, check_score
from tests.contract.parts import LISTED_SCORES, MASKS, NORMALIZERS

NO_SLOPE = {"StraightThrough", "StraightThrough Sample", "StraightThrough Gumbel"}  # an estimate on purpose


def heads(score):
    """Alibi and RelativeBias of the catalogue are for 2 heads; the world of the checks has 3."""
    for module in score.modules() if isinstance(score, torch.nn.Module) else ():
        if getattr(module, "heads", 3) != 3:
            return module.heads
    return 3


@pytest.mark.parametrize("name", [name for name in LISTED_SCORES if heads(LISTED_SCORES[name]()) == 3])
def test_scores(name):
    check_score(LISTED_SCORES[name]())


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizers(name):
    if "each head" not in name:
        check_normalizer(NORMALIZERS[name](), gradient=name not in NO_SLOPE)


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.kind == "mask"], ids=lambda e: e.name)
def test_listed_masks(entry):
    assert isinstance(entry.example(), Mask)
    check_mask(entry.example(), queries=16, keys=16)


@pytest.mark.parametrize("name", [name for name in MASKS if name != "none"])
def test_masks(name):
    check_mask(MASKS[name](7, 9))
