"""Checks of user-defined scores, normalizers and masks against the laws of attention."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.attention import Dot, Epanechnikov, Mask, PositionGrid, causal, dense, padding, softmax
from regard.attention.normalizers.base import input_kind, is_random
from regard.testing import laws
from regard.testing.laws import AttentionUnderTest, SampleInputs, require

__all__ = [
    "build_with_small_sizes", "check_mask", "check_normalizer", "check_score", "make_hiding_mask", "make_inputs",
]  # fmt: skip

SIZES = {"embed_dim": 4, "query_dim": 4, "key_dim": 4, "hidden_dim": 5, "num_heads": 3, "max_keys": 64}
SETTINGS = {"width": 2.0, "k": 2, "p": 0.5, "temperature": 0.7, "alpha": 1.5, "center": 1.0, "sigma": 1.5}
SMALL_SIZES: dict[str, Any] = {**SIZES, **SETTINGS, "normalize": softmax, "score": Dot()}


def build_with_small_sizes(part: Any, sizes: Mapping[str, Any] = SMALL_SIZES) -> Any:
    """Return the part itself, or an instance of a class with small values for its required arguments.

    Args:
        part: a score, normalizer or mask, or its class
        sizes: the values by name

    Example:
        >>> from regard.attention import Additive
        >>> build_with_small_sizes(Additive).query_proj.in_features
        4
    """
    if not isinstance(part, type):
        return part
    parameters = inspect.signature(part).parameters.values()
    required = {p.name: sizes[p.name] for p in parameters if p.default is p.empty and p.name in sizes}
    try:
        return part(**required)
    except TypeError as error:
        raise TypeError(
            f"{part.__name__} could not be constructed ({error}); pass an instance instead of the class"
        ) from None


def make_inputs(
    num_queries: int = 5,
    num_keys: int = 6,
    batch_shape: tuple[int, ...] = (2, 3),
    query_dim: int = 4,
    key_dim: int = 4,
    dtype: torch.dtype = torch.float64,
) -> SampleInputs:
    """Make normal random inputs, the same in every call; of two batch axes the second may be that of heads.

    Args:
        num_queries, num_keys: lengths
        batch_shape: the batch axes
        query_dim, key_dim: sizes of the vectors; values have 3 features
        dtype: the dtype of all three

    Example:
        >>> [tuple(tensor.shape) for tensor in make_inputs(batch_shape=(2,))]
        [(2, 5, 4), (2, 6, 4), (2, 6, 3)]
    """
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*batch_shape, *shape, generator=generator, dtype=torch.float64).to(dtype)

    return SampleInputs(normal(num_queries, query_dim), normal(num_keys, key_dim), normal(num_keys, 3))


def make_hiding_mask(num_queries: int, num_keys: int) -> Mask:
    """Make a mask that hides some keys of each query, all of the second one, and pads one batch entry.

    Args:
        num_queries, num_keys: lengths

    Example:
        >>> make_hiding_mask(3, 4).materialize(3, 4, 1)[0].sum(-1).tolist()
        [3, 0, 4]
    """
    generator = torch.Generator().manual_seed(1)
    visible = torch.rand(num_queries, num_keys, generator=generator) < 0.7
    visible[:, 0] = True
    visible[1] = False
    return dense(visible) & padding(torch.tensor([num_keys, max(num_keys - 2, 0)]))


def check_score(
    score: Any, *, query_dim: int = 4, key_dim: int = 4, normalize: Any = None, gradient: bool = True
) -> None:
    """Check a score against the laws of attention; raises LawViolation with the law that fails.

    Args:
        score: a score, or a class that is built with small sizes; ``is_positional = True`` exempts it from the laws
            about the order of keys
        query_dim: the size of the queries
        key_dim: the size of the keys
        normalize: the normalizer to test it with; that of the score by default
        gradient: whether to run gradcheck

    >>> from regard.attention import Additive
    >>> check_score(Additive)
    """
    attention = AttentionUnderTest(build_with_small_sizes(score), normalize)
    sample = make_inputs(query_dim=query_dim, key_dim=key_dim)
    with laws.same_random_state():
        shape = tuple(attention.score(sample.query, sample.key).shape)
    shapes = f"query {tuple(sample.query.shape)} and key {tuple(sample.key.shape)}"
    require(shape == (2, 3, 5, 6), f"the scores of {shapes} have shape {shape}, not (2, 3, 5, 6)")
    _check_laws(attention, sample)
    if gradient and not attention.is_random:
        _check_gradient(attention, query_dim=query_dim, key_dim=key_dim)


def check_normalizer(normalize: Any, *, gradient: bool = True) -> None:
    """Check a normalizer against the laws of attention; raises LawViolation with the law that fails.

    Args:
        normalize: a normalizer, or a class that is built with small sizes; with ``is_random = True`` it is compared
            under one state of the random number generator
        gradient: whether to run gradcheck; False for a normalizer whose gradient is an estimate

    >>> from regard.attention import sparsemax
    >>> check_normalizer(sparsemax)
    """
    normalize = build_with_small_sizes(normalize)
    score = Epanechnikov(width=4.0) if input_kind(normalize) == "kernel" else Dot()
    attention = AttentionUnderTest(score, normalize)
    hidden = torch.full((2, 3), -torch.inf, dtype=torch.float64)
    with laws.same_random_state():
        weights = attention.normalize(hidden)
    require(weights.shape == hidden.shape, f"scores (2, 3) became weights {tuple(weights.shape)}")
    require((weights == 0).all(), "where every key is hidden, weights are not 0")
    one_visible = hidden.index_fill(-1, torch.tensor([0]), 1.0)
    with laws.same_random_state():
        require((attention.normalize(one_visible)[:, 1:] == 0).all(), "a hidden key has weight")
    _check_laws(attention, make_inputs())
    if gradient and not is_random(attention.normalize):
        _check_gradient(attention)


def check_mask(mask: Any, *, queries: int = 7, keys: int = 9) -> None:
    """Check a mask against the laws of attention; raises LawViolation with the law that fails.

    For a part of the positions its rule must agree with that for all of them, and its ``band`` must contain all visible
    keys: the fast paths rely on both.

    Args:
        mask: a mask, or a class that is built with small sizes
        queries: the number of queries
        keys: the number of keys

    >>> from regard.attention import window
    >>> check_mask(window(2, 1))
    """
    mask = build_with_small_sizes(mask)
    visible = mask.materialize(queries, keys)
    shape, num_batch_axes = tuple(visible.shape), mask.num_batch_axes()
    require(visible.dtype == torch.bool, f"a mask is bool, not {visible.dtype}")
    require(shape[-2:] == (queries, keys), f"a mask of {queries} queries and {keys} keys has shape {shape}")
    require(len(shape) <= num_batch_axes + 2, f"num_batch_axes() is {num_batch_axes}, but the mask has shape {shape}")
    visible = visible.expand(*(1,) * (num_batch_axes + 2 - len(shape)), *shape)
    for grid in _partial_grids(mask, queries, keys):
        actual, expected = mask.rule(grid), visible[..., grid.query_positions, grid.key_positions]
        is_equal = actual.dim() <= expected.dim() and torch.equal(actual.expand_as(expected), expected)
        require(is_equal, "for a part of the positions the rule differs from that for all positions")
    low, high = mask.band(queries, keys)
    step = torch.arange(keys) - torch.arange(queries)[:, None]
    require(not (visible & ((step < low) | (step > high))).any(), "a key outside of the band is visible")
    _check_algebra(mask, visible)
    attention = AttentionUnderTest(Dot())
    _check_unconditional_laws(attention, make_inputs(queries, keys, visible.shape[:-2]), mask)
    heads = (*visible.shape[:-2], 3)
    with_heads = mask.materialize(queries, keys, len(heads)).shape[:-2]
    if all(actual in (1, size) for actual, size in zip(with_heads[::-1], heads[::-1], strict=False)):
        _check_unconditional_laws(attention, make_inputs(queries, keys, heads), mask)


def _partial_grids(mask: Mask, queries: int, keys: int) -> list[PositionGrid]:
    """The parts of fast paths: a rectangle, two blocks of a band, and keys that are gathered for each query."""
    query, key = torch.arange(queries), torch.arange(keys)
    width = min(4, keys)
    first = (query * 3 % max(keys - width + 1, 1))[:, None, None]
    block = torch.arange(min(2, queries, keys))[:, None, None]
    grid = partial(PositionGrid, queries, keys, mask.num_batch_axes())
    return [
        grid(query[1:5, None], key[None, 1:6]),
        grid(block + query[: queries - 1, None], block + key[: keys - 1], num_inner_axes=1),
        grid(query[:, None, None], first + key[:width], num_inner_axes=1),
    ]


def _check_algebra(mask: Mask, visible: Tensor) -> None:
    queries, keys = visible.shape[-2:]
    past = causal().materialize(queries, keys)
    for law, combined, expected in (
        ("~mask is not the complement", ~mask, ~visible),
        ("mask & causal() is not the intersection", mask & causal(), visible & past),
        ("mask | causal() is not the union", mask | causal(), visible | past),
    ):
        require(torch.equal(combined.materialize(queries, keys).expand_as(expected), expected), law)
    grid = PositionGrid.full(queries, keys, mask.num_batch_axes())
    prefix = mask.prefix_lengths(grid)
    if prefix is not None:
        is_equal = torch.equal((grid.key_positions < prefix).expand_as(visible), visible)
        require(is_equal, "prefix_lengths() is not the number of visible keys")
    count = mask.count_visible(grid).expand(*visible.shape[:-1], 1)
    require(torch.equal(count, visible.sum(-1, keepdim=True)), "count_visible() is not the number of visible keys")


def _check_laws(attention: AttentionUnderTest, sample: SampleInputs) -> None:
    masks = (None, make_hiding_mask(sample.num_queries, sample.num_keys), causal())
    has_modes = attention.is_random or attention.is_dropout_active
    for mode in (True, False) if has_modes else (True,):
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
    """The laws without exceptions."""
    laws.hidden_keys_have_zero_weight(attention, sample, mask)
    laws.reading_weights_changes_nothing(attention, sample, mask)
    if not attention.is_dropout_active:
        laws.context_equals_weighted_sum(attention, sample, mask)


def _check_gradient(attention: AttentionUnderTest, **sizes: int) -> None:
    small = make_inputs(num_queries=2, num_keys=3, batch_shape=(3,), **sizes)  # type: ignore[arg-type]
    laws.gradients_are_correct(attention, small, padding(torch.tensor([2, 3, 0])))
