"""The laws of attention for every valid combination of score, normalizer and mask.

These tests run without the shape checks, which would take three times as long; test_parts.py runs with them.
"""

import pytest
import torch

from regard.attention import attend, kernel_sum, softmax
from regard.testing import laws
from regard.testing.checks import make_inputs
from tests.contract.mechanisms import (
    BATCH,
    COMBINED_NORMALIZERS,
    COMBINED_SCORES,
    LISTED_NORMALIZERS,
    LISTED_SCORES,
    MASKS,
    NORMALIZERS,
    SCORES,
    breaks_ties,
    kind,
    matching_pairs,
)

pytestmark = pytest.mark.bare
SAMPLE = make_inputs(5, 6, BATCH)
PAIRS = [
    *matching_pairs(LISTED_SCORES, LISTED_NORMALIZERS),
    *matching_pairs(COMBINED_SCORES, ["softmax", "sparsemax", "kernel_sum", "StraightThrough"]),
    *matching_pairs(["ScaledDot", "Additive", "Epanechnikov"], COMBINED_NORMALIZERS),
    ("ScaledDot + RelativeBias", "Temperature, learned"),
    ("ScaledDot + Alibi", "Temperature, each head"),
]
each_pair = pytest.mark.parametrize(("score", "normalize"), PAIRS, ids=[" x ".join(pair) for pair in PAIRS])


def build_attention(score, normalize):
    return laws.AttentionUnderTest(SCORES[score](), NORMALIZERS[normalize]())


def both_modes(attention):
    """Training and evaluation, where they differ."""
    yield attention.train(True)
    if attention.is_random or attention.is_dropout_active:
        yield attention.train(False)


@each_pair
def test_hidden_keys_have_weight_0_and_reading_changes_nothing(score, normalize):
    for attention in both_modes(build_attention(score, normalize)):
        for mask in MASKS.values():
            laws.hidden_keys_have_zero_weight(attention, SAMPLE, mask(5, 6))
            laws.reading_weights_changes_nothing(attention, SAMPLE, mask(5, 6))


@each_pair
def test_the_context_is_the_weighted_sum_of_the_values(score, normalize):
    for attention in both_modes(build_attention(score, normalize)):
        for mask in MASKS.values():
            if not attention.is_dropout_active:
                laws.context_equals_weighted_sum(attention, SAMPLE, mask(5, 6))


@each_pair
def test_a_batch_is_a_loop_and_empty_axes_are_handled(score, normalize):
    attention = build_attention(score, normalize).train(False)
    for mask in ("none", "padding", "causal", "around", "dense of each entry"):
        laws.batch_equals_loop(attention, SAMPLE, MASKS[mask](5, 6))
    laws.empty_axes_are_handled(attention, SAMPLE)
    laws.empty_axes_are_handled(attention.train(True), SAMPLE)


def is_order_free(score, normalize):
    """Whether the order of keys is irrelevant: nothing depends on positions, and no tie goes to the first key."""
    attention = build_attention(score, normalize).train(False)
    tied = score == "Constant" and breaks_ties(attention.normalize)
    return not (tied or attention.is_positional or score == "a function")


ORDER_FREE = [pair for pair in PAIRS if is_order_free(*pair)]


@pytest.mark.parametrize(("score", "normalize"), ORDER_FREE, ids=[" x ".join(pair) for pair in ORDER_FREE])
def test_the_order_of_keys_and_hidden_keys_are_irrelevant(score, normalize):
    attention = build_attention(score, normalize).train(False)
    for mask in ("none", "padding", "dense", "window"):
        laws.key_order_is_irrelevant(attention, SAMPLE, MASKS[mask](5, 6))
        laws.hidden_keys_are_irrelevant(attention, SAMPLE, MASKS[mask](5, 6))


@pytest.mark.parametrize("score", SCORES)
def test_every_score_preserves_the_dtype(score):
    for mask in ("none", "padding", "causal"):
        laws.dtypes_agree(laws.AttentionUnderTest(SCORES[score]()), SAMPLE, MASKS[mask](5, 6))


SMOOTH = [  # the others select keys, and rounding may change the selection
    name
    for name, make in NORMALIZERS.items()
    if kind(make()) == "logits"
    and not breaks_ties(laws.AttentionUnderTest(None, make(), torch.float32).train(False).normalize)
]


@pytest.mark.parametrize("normalize", SMOOTH)
def test_every_normalizer_preserves_the_dtype(normalize):
    attention = laws.AttentionUnderTest(SCORES["Dot"](), NORMALIZERS[normalize]()).train(False)
    for mask in ("none", "padding", "causal"):
        laws.dtypes_agree(attention, SAMPLE, MASKS[mask](5, 6))


@pytest.mark.parametrize("score", SCORES)
def test_logits_and_kernel_values_are_not_confused(score):
    part = SCORES[score]()
    wrong, right = (softmax, kernel_sum) if kind(part) == "kernel" else (kernel_sum, softmax)
    calls = []
    if isinstance(part, torch.nn.Module):
        part.register_forward_hook(lambda *_: calls.append(1))
    with pytest.raises(ValueError, match=f"but {wrong.__name__} .*use {right.__name__}") as error:
        attend(*SAMPLE.to(torch.float32), score=part, normalize=wrong)
    assert "\n" not in str(error.value)
    assert not calls
    default = attend(*SAMPLE.to(torch.float32), score=part).weights
    explicit = attend(*SAMPLE.to(torch.float32), score=part, normalize=right).weights
    assert torch.equal(default, explicit)


def test_the_grid_is_complete():
    """The names are listed here, so that an entry missing from the catalogue is noticed."""
    scores = (
        "Constant Dot ScaledDot Bilinear Additive Concat Cosine Gaussian Boxcar Epanechnikov Location SoftCap Energy"
    )
    normalizers = (
        "softmax Temperature sigmoid SigmoidSum sparsemax entmax15 Entmax kernel_sum hardmax Sample "
        "StraightThrough Gumbel TopK Dropout WithSink GaussianWindow"
    )
    assert set(scores.split()) | {"Rotary", "Alibi", "RelativeBias"} <= set(LISTED_SCORES)
    assert set(normalizers.split()) <= set(LISTED_NORMALIZERS)
    both = {(s, n) for s in LISTED_SCORES for n in LISTED_NORMALIZERS}
    kernels = {s for s in LISTED_SCORES if kind(SCORES[s]()) == "kernel"}
    assert {pair for pair in both if (pair[0] in kernels) == (pair[1] == "kernel_sum")} <= set(PAIRS)
