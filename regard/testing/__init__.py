"""Does a mechanism of your own keep the laws? Three functions that say so, or which law it breaks.

from regard.testing import check_score
check_score(MyScore)
"""

from __future__ import annotations

from typing import Any

import torch

from regard.attention import Dot, Epanechnikov, Grid, Mask, causal, padding
from regard.attention.normalizers import is_random, takes
from regard.testing import laws
from regard.testing._world import World, blinding, built, world
from regard.testing.laws import LawViolation as LawViolation
from regard.testing.laws import Look, hold

__all__ = ["LawViolation", "check_mask", "check_normalizer", "check_score"]


def check_score(
    score: Any, *, query_dim: int = 4, key_dim: int = 4, normalize: Any = None, gradient: bool = True
) -> None:
    """Run the laws of the equation on a score; raises LawViolation with one sentence.

    ``score`` is an object, or a class that is made with small sizes. A score that goes by position says
    ``positional = True`` and is excused from the laws about order; ``gradient=False`` excuses from gradcheck.

    >>> from regard.attention import Additive
    >>> check_score(Additive)
    """
    look = Look(built(score), normalize)
    w = world(query_dim=query_dim, key_dim=key_dim)
    with laws.same_chance():
        shape = tuple(look.score(w.query, w.key).shape)
    given = f"query {tuple(w.query.shape)} and key {tuple(w.key.shape)}"
    hold(shape == (2, 3, 5, 6), f"the scores of {given} have shape {shape}, not (2, 3, 5, 6)")
    _check(look, w)
    if gradient and not look.random:
        _check_gradient(look, query_dim=query_dim, key_dim=key_dim)


def check_normalizer(normalize: Any, *, gradient: bool = True) -> None:
    """Run the laws of the equation on a normalizer; raises LawViolation with one sentence.

    One that draws random numbers says ``random = True`` and is compared under one state of the generator;
    ``gradient=False`` excuses from gradcheck one whose gradient is an estimate on purpose.

    >>> from regard.attention import sparsemax
    >>> check_normalizer(sparsemax)
    """
    normalize = built(normalize)
    score = Epanechnikov(width=4.0) if takes(normalize) == "kernel" else Dot()
    look = Look(score, normalize)
    hidden = torch.full((2, 3), -torch.inf, dtype=torch.float64)
    with laws.same_chance():
        weights = look.normalize(hidden)
    hold(weights.shape == hidden.shape, f"scores (2, 3) became weights {tuple(weights.shape)}")
    hold((weights == 0).all(), "where every key is hidden, weights are not 0")
    some = hidden.index_fill(-1, torch.tensor([0]), 1.0)
    with laws.same_chance():
        hold((look.normalize(some)[:, 1:] == 0).all(), "a hidden key has weight")
    _check(look, world())
    if gradient and not is_random(look.normalize):
        _check_gradient(look)


def check_mask(mask: Any, *, queries: int = 7, keys: int = 9) -> None:
    """Run the laws of the equation on a mask; raises LawViolation with one sentence.

    Asked about a part of the positions it must answer as it does about all of them, and its ``band`` must not
    promise too little: the fast paths rely on both.

    >>> from regard.attention import window
    >>> check_mask(window(2, 1))
    """
    mask = built(mask)
    seen = mask.materialize(queries, keys)
    shape = tuple(seen.shape)
    hold(seen.dtype == torch.bool, f"a mask is bool, not {seen.dtype}")
    hold(shape[-2:] == (queries, keys), f"a mask of {queries} queries and {keys} keys has shape {shape}")
    hold(len(shape) <= mask.axes() + 2, f"axes() is {mask.axes()}, but the mask has shape {shape}")
    seen = seen.expand(*(1,) * (mask.axes() + 2 - len(shape)), *shape)
    for part in _parts(mask, queries, keys):
        told, want = mask.rule(part), seen[..., part.query_at, part.key_at]
        fits = told.dim() <= want.dim() and torch.equal(told.expand_as(want), want)
        hold(fits, "asked about some positions, the mask answers otherwise than about all")
    low, high = mask.band(queries, keys)
    step = torch.arange(keys) - torch.arange(queries)[:, None]
    hold(not (seen & ((step < low) | (step > high))).any(), "the mask shows keys outside of its band")
    _check_sums(mask, seen)
    _check_everywhere(Look(Dot()), world(queries, keys, seen.shape[:-2]), mask)
    heads = (*seen.shape[:-2], 3)
    headed = mask.materialize(queries, keys, len(heads)).shape[:-2]
    if all(have in (1, size) for have, size in zip(headed[::-1], heads[::-1], strict=False)):
        _check_everywhere(Look(Dot()), world(queries, keys, heads), mask)


def _parts(mask: Mask, queries: int, keys: int) -> list[Grid]:
    """A rectangle, two blocks of a band, and neighborhoods gathered query by query: what fast paths ask."""
    query, key = torch.arange(queries), torch.arange(keys)
    wide = min(4, keys)
    first = (query * 3 % max(keys - wide + 1, 1))[:, None, None]
    two = torch.arange(min(2, queries, keys))[:, None, None]
    return [
        Grid(queries, keys, mask.axes(), query[1:5, None], key[None, 1:6]),
        Grid(queries, keys, mask.axes(), two + query[: queries - 1, None], two + key[: keys - 1], inner=1),
        Grid(queries, keys, mask.axes(), query[:, None, None], first + key[:wide], inner=1),
    ]


def _check_sums(mask: Mask, seen: torch.Tensor) -> None:
    queries, keys = seen.shape[-2:]
    past = causal().materialize(queries, keys)
    for what, joined, want in (
        ("~mask is not the opposite", ~mask, ~seen),
        ("mask & causal() is not both", mask & causal(), seen & past),
        ("mask | causal() is not either", mask | causal(), seen | past),
    ):
        hold(torch.equal(joined.materialize(queries, keys).expand_as(want), want), what)
    grid = Grid.full(queries, keys, mask.axes())
    prefix = mask.prefix(grid)
    if prefix is not None:
        fits = torch.equal((grid.key_at < prefix).expand_as(seen), seen)
        hold(fits, "prefix() does not say how many keys are visible")
    count = mask.count(grid).expand(*seen.shape[:-1], 1)
    hold(torch.equal(count, seen.sum(-1, keepdim=True)), "count() is not the number of visible keys")


def _check(look: Look, w: World) -> None:
    masks = (None, blinding(w.queries, w.keys), causal())
    chance = look.random or look.dropping
    for mode in (True, False) if chance else (True,):
        look.train(mode)
        for mask in masks:
            _check_everywhere(look, w, mask)
        for mask in masks if not look.random else ():
            laws.batch_is_a_loop(look, w, mask)
            laws.dtypes_agree(look, w, mask)
            if not look.positional:
                laws.order_is_free(look, w, mask)
                laws.hidden_keys_are_free(look, w, mask)
        laws.empty_is_fine(look, w)
    look.train(True)


def _check_everywhere(look: Look, w: World, mask: Mask | None) -> None:
    """The laws that nothing is excused from."""
    laws.hidden_is_zero(look, w, mask)
    laws.reading_changes_nothing(look, w, mask)
    if not look.dropping:
        laws.weights_make_the_context(look, w, mask)


def _check_gradient(look: Look, **sizes: int) -> None:
    small = world(queries=2, keys=3, batch=(3,), **sizes)  # type: ignore[arg-type]
    laws.gradient_is_right(look, small, padding(torch.tensor([2, 3, 0])))
