"""Does a mechanism of your own keep the laws? Three functions that say so, or which law it breaks.

from regard.testing import check_score
check_score(MyScore)
"""

from __future__ import annotations

from typing import Any

import torch

from regard.attention import Dot, Epanechnikov, Mask, PositionGrid, causal, padding
from regard.attention.normalizers import input_kind, is_random
from regard.testing import laws
from regard.testing.inputs import SampleInputs, build_with_small_sizes, make_hiding_mask, make_inputs
from regard.testing.laws import AttentionUnderTest, require


def check_score(
    score: Any, *, query_dim: int = 4, key_dim: int = 4, normalize: Any = None, gradient: bool = True
) -> None:
    """Run the laws of the equation on a score; raises LawViolation with one sentence.

    ``score`` is an object, or a class that is made with small sizes. A score that goes by position says
    ``positional = True`` and is excused from the laws about order; ``gradient=False`` excuses from gradcheck.

    >>> from regard.attention import Additive
    >>> check_score(Additive)
    """
    look = AttentionUnderTest(build_with_small_sizes(score), normalize)
    w = make_inputs(query_dim=query_dim, key_dim=key_dim)
    with laws.same_random_state():
        shape = tuple(look.score(w.query, w.key).shape)
    given = f"query {tuple(w.query.shape)} and key {tuple(w.key.shape)}"
    require(shape == (2, 3, 5, 6), f"the scores of {given} have shape {shape}, not (2, 3, 5, 6)")
    _check_laws(look, w)
    if gradient and not look.is_random:
        _check_gradient(look, query_dim=query_dim, key_dim=key_dim)


def check_normalizer(normalize: Any, *, gradient: bool = True) -> None:
    """Run the laws of the equation on a normalizer; raises LawViolation with one sentence.

    One that draws random numbers says ``random = True`` and is compared under one state of the generator;
    ``gradient=False`` excuses from gradcheck one whose gradient is an estimate on purpose.

    >>> from regard.attention import sparsemax
    >>> check_normalizer(sparsemax)
    """
    normalize = build_with_small_sizes(normalize)
    score = Epanechnikov(width=4.0) if input_kind(normalize) == "kernel" else Dot()
    look = AttentionUnderTest(score, normalize)
    hidden = torch.full((2, 3), -torch.inf, dtype=torch.float64)
    with laws.same_random_state():
        weights = look.normalize(hidden)
    require(weights.shape == hidden.shape, f"scores (2, 3) became weights {tuple(weights.shape)}")
    require((weights == 0).all(), "where every key is hidden, weights are not 0")
    some = hidden.index_fill(-1, torch.tensor([0]), 1.0)
    with laws.same_random_state():
        require((look.normalize(some)[:, 1:] == 0).all(), "a hidden key has weight")
    _check_laws(look, make_inputs())
    if gradient and not is_random(look.normalize):
        _check_gradient(look)


def check_mask(mask: Any, *, queries: int = 7, keys: int = 9) -> None:
    """Run the laws of the equation on a mask; raises LawViolation with one sentence.

    Asked about a part of the positions it must answer as it does about all of them, and its ``band`` must not
    promise too little: the fast paths rely on both.

    >>> from regard.attention import window
    >>> check_mask(window(2, 1))
    """
    mask = build_with_small_sizes(mask)
    seen = mask.materialize(queries, keys)
    shape = tuple(seen.shape)
    require(seen.dtype == torch.bool, f"a mask is bool, not {seen.dtype}")
    require(shape[-2:] == (queries, keys), f"a mask of {queries} queries and {keys} keys has shape {shape}")
    require(len(shape) <= mask.axes() + 2, f"axes() is {mask.axes()}, but the mask has shape {shape}")
    seen = seen.expand(*(1,) * (mask.axes() + 2 - len(shape)), *shape)
    for part in _partial_grids(mask, queries, keys):
        told, want = mask.rule(part), seen[..., part.query_positions, part.key_positions]
        fits = told.dim() <= want.dim() and torch.equal(told.expand_as(want), want)
        require(fits, "asked about some positions, the mask answers otherwise than about all")
    low, high = mask.band(queries, keys)
    step = torch.arange(keys) - torch.arange(queries)[:, None]
    require(not (seen & ((step < low) | (step > high))).any(), "the mask shows keys outside of its band")
    _check_algebra(mask, seen)
    _check_unconditional_laws(AttentionUnderTest(Dot()), make_inputs(queries, keys, seen.shape[:-2]), mask)
    heads = (*seen.shape[:-2], 3)
    headed = mask.materialize(queries, keys, len(heads)).shape[:-2]
    if all(have in (1, size) for have, size in zip(headed[::-1], heads[::-1], strict=False)):
        _check_unconditional_laws(AttentionUnderTest(Dot()), make_inputs(queries, keys, heads), mask)


def _partial_grids(mask: Mask, queries: int, keys: int) -> list[PositionGrid]:
    """A rectangle, two blocks of a band, and neighborhoods gathered query by query: what fast paths ask."""
    query, key = torch.arange(queries), torch.arange(keys)
    wide = min(4, keys)
    first = (query * 3 % max(keys - wide + 1, 1))[:, None, None]
    two = torch.arange(min(2, queries, keys))[:, None, None]
    return [
        PositionGrid(queries, keys, mask.num_batch_axes(), query[1:5, None], key[None, 1:6]),
        PositionGrid(
            queries,
            keys,
            mask.num_batch_axes(),
            two + query[: queries - 1, None],
            two + key[: keys - 1],
            num_inner_axes=1,
        ),
        PositionGrid(
            queries, keys, mask.num_batch_axes(), query[:, None, None], first + key[:wide], num_inner_axes=1
        ),
    ]


def _check_algebra(mask: Mask, visible: torch.Tensor) -> None:
    queries, keys = visible.shape[-2:]
    past = causal().materialize(queries, keys)
    for what, joined, want in (
        ("~mask is not the opposite", ~mask, ~visible),
        ("mask & causal() is not both", mask & causal(), visible & past),
        ("mask | causal() is not either", mask | causal(), visible | past),
    ):
        require(torch.equal(joined.materialize(queries, keys).expand_as(want), want), what)
    grid = PositionGrid.full(queries, keys, mask.num_batch_axes())
    prefix = mask.prefix_lengths(grid)
    if prefix is not None:
        fits = torch.equal((grid.key_positions < prefix).expand_as(visible), visible)
        require(fits, "prefix() does not say how many keys are visible")
    count = mask.count_visible(grid).expand(*visible.shape[:-1], 1)
    require(torch.equal(count, visible.sum(-1, keepdim=True)), "count() is not the number of visible keys")


def _check_laws(attention: AttentionUnderTest, sample: SampleInputs) -> None:
    masks = (None, make_hiding_mask(sample.num_queries, sample.num_keys), causal())
    chance = attention.is_random or attention.is_dropout_active
    for mode in (True, False) if chance else (True,):
        attention.train(mode)
        for mask in masks:
            _check_unconditional_laws(attention, sample, mask)
        for mask in masks if not attention.is_random else ():
            laws.batch_equals_loop(attention, sample, mask)
            laws.dtypes_agree(attention, sample, mask)
            if not attention.is_positional:
                laws.key_order_is_irrelevant(attention, sample, mask)
                laws.hidden_keys_are_irrelevant(attention, sample, mask)
        laws.empty_axes_are_handled(attention, sample)
    attention.train(True)


def _check_unconditional_laws(attention: AttentionUnderTest, sample: SampleInputs, mask: Mask | None) -> None:
    """The laws that nothing is excused from."""
    laws.hidden_keys_have_zero_weight(attention, sample, mask)
    laws.reading_weights_changes_nothing(attention, sample, mask)
    if not attention.is_dropout_active:
        laws.context_equals_weighted_sum(attention, sample, mask)


def _check_gradient(attention: AttentionUnderTest, **sizes: int) -> None:
    small = make_inputs(num_queries=2, num_keys=3, batch_shape=(3,), **sizes)  # type: ignore[arg-type]
    laws.gradients_are_correct(attention, small, padding(torch.tensor([2, 3, 0])))
