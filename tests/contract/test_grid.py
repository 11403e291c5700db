"""One page of laws over every score x normalizer x mask that makes sense.

It runs without the shape checks, which would take three times as long; test_parts.py is with them.
"""

import pytest
import torch

from regard.attention import attend, kernel_sum, softmax
from regard.testing import laws
from regard.testing.inputs import make_inputs
from tests.contract.mechanisms import (
    BATCH,
    LISTED_NORMALIZERS,
    LISTED_SCORES,
    MADE_NORMALIZERS,
    MADE_SCORES,
    MASKS,
    NORMALIZERS,
    SCORES,
    breaks_ties,
    cells,
    kind,
)

pytestmark = pytest.mark.bare
WORLD = make_inputs(5, 6, BATCH)
PAIRS = [
    *cells(LISTED_SCORES, LISTED_NORMALIZERS),
    *cells(MADE_SCORES, ["softmax", "sparsemax", "kernel_sum", "StraightThrough"]),
    *cells(["ScaledDot", "Additive", "Epanechnikov"], MADE_NORMALIZERS),
    ("ScaledDot + RelativeBias", "Temperature, learned"),
    ("ScaledDot + Alibi", "Temperature, each head"),
]
each_pair = pytest.mark.parametrize(("score", "normalize"), PAIRS, ids=[" x ".join(pair) for pair in PAIRS])


def look_at(score, normalize):
    return laws.AttentionUnderTest(SCORES[score](), NORMALIZERS[normalize]())


def modes(look):
    """Training and evaluation, where they differ."""
    yield look.train(True)
    if look.is_random or look.is_dropout_active:
        yield look.train(False)


@each_pair
def test_hidden_keys_have_weight_0_and_reading_changes_nothing(score, normalize):
    for look in modes(look_at(score, normalize)):
        for mask in MASKS.values():
            laws.hidden_keys_have_zero_weight(look, WORLD, mask(5, 6))
            laws.reading_weights_changes_nothing(look, WORLD, mask(5, 6))


@each_pair
def test_the_context_is_the_weighted_sum_of_the_values(score, normalize):
    for look in modes(look_at(score, normalize)):
        for mask in MASKS.values():
            if not look.is_dropout_active:
                laws.context_equals_weighted_sum(look, WORLD, mask(5, 6))


@each_pair
def test_a_batch_is_a_loop_and_empty_axes_are_handled(score, normalize):
    look = look_at(score, normalize).train(False)
    for mask in ("none", "padding", "causal", "around", "dense of each entry"):
        laws.batch_equals_loop(look, WORLD, MASKS[mask](5, 6))
    laws.empty_axes_are_handled(look, WORLD)
    laws.empty_axes_are_handled(look.train(True), WORLD)


def orderly(score, normalize):
    """Whether the order of keys is free: nothing goes by position, and no tie goes to the first key."""
    look = look_at(score, normalize).train(False)
    tied = score == "Constant" and breaks_ties(look.normalize)
    return not (tied or look.is_positional or score == "a function")


ORDERLY = [pair for pair in PAIRS if orderly(*pair)]


@pytest.mark.parametrize(("score", "normalize"), ORDERLY, ids=[" x ".join(pair) for pair in ORDERLY])
def test_the_order_of_keys_and_hidden_keys_are_irrelevant(score, normalize):
    look = look_at(score, normalize).train(False)
    for mask in ("none", "padding", "dense", "window"):
        laws.key_order_is_irrelevant(look, WORLD, MASKS[mask](5, 6))
        laws.hidden_keys_are_irrelevant(look, WORLD, MASKS[mask](5, 6))


@pytest.mark.parametrize("score", SCORES)
def test_every_score_preserves_the_dtype(score):
    for mask in ("none", "padding", "causal"):
        laws.dtypes_agree(laws.AttentionUnderTest(SCORES[score]()), WORLD, MASKS[mask](5, 6))


SMOOTH = [  # the others choose, and between keys that are nearly as good the choice may fall otherwise
    name
    for name, make in NORMALIZERS.items()
    if kind(make()) == "logits"
    and not breaks_ties(laws.AttentionUnderTest(None, make(), torch.float32).train(False).normalize)
]


@pytest.mark.parametrize("normalize", SMOOTH)
def test_every_normalizer_preserves_the_dtype(normalize):
    look = laws.AttentionUnderTest(SCORES["Dot"](), NORMALIZERS[normalize]()).train(False)
    for mask in ("none", "padding", "causal"):
        laws.dtypes_agree(look, WORLD, MASKS[mask](5, 6))


@pytest.mark.parametrize("score", SCORES)
def test_logits_and_kernel_values_are_not_confused(score):
    part = SCORES[score]()
    wrong, right = (softmax, kernel_sum) if kind(part) == "kernel" else (kernel_sum, softmax)
    calls = []
    if isinstance(part, torch.nn.Module):
        part.register_forward_hook(lambda *_: calls.append(1))
    with pytest.raises(ValueError, match=f"but {wrong.__name__} .*take {right.__name__}") as error:
        attend(*WORLD.to(torch.float32), score=part, normalize=wrong)
    assert "\n" not in str(error.value)
    assert not calls
    chosen = attend(*WORLD.to(torch.float32), score=part).weights
    given = attend(*WORLD.to(torch.float32), score=part, normalize=right).weights
    assert torch.equal(chosen, given)


def test_the_grid_is_complete():
    """What the design names is in the grid; a catalogue that lost an entry would be noticed here."""
    scores = "Constant Dot ScaledDot Bilinear Additive Concat Cosine Gaussian Boxcar Epanechnikov Location Energy"
    normalizers = (
        "softmax Temperature sigmoid SigmoidSum sparsemax entmax15 Entmax kernel_sum hardmax Sample "
        "StraightThrough Gumbel TopK Dropout Bell"
    )
    assert set(scores.split()) | {"Rotary", "Alibi", "RelativeBias"} <= set(LISTED_SCORES)
    assert set(normalizers.split()) <= set(LISTED_NORMALIZERS)
    both = {(s, n) for s in LISTED_SCORES for n in LISTED_NORMALIZERS}
    kernels = {s for s in LISTED_SCORES if kind(SCORES[s]()) == "kernel"}
    assert {pair for pair in both if (pair[0] in kernels) == (pair[1] == "kernel_sum")} <= set(PAIRS)
