"""Each mask against a plain loop, and the algebra of masks."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention import Mask, PositionGrid, around, attend, causal, dense, documents, padding, window
from regard.attention.masks.base import as_mask
from regard.errors import ShapeError
from tests.attention import reference_loops as loops

SIZES = [(1, 1), (5, 5), (3, 6), (6, 3), (1, 7), (0, 4), (4, 0)]
each_size = pytest.mark.parametrize(("queries", "keys"), SIZES)


@each_size
@pytest.mark.parametrize("offset", [None, 0, 2, -2, 100, -100])
def test_causal(queries, keys, offset):
    shift = keys - queries if offset is None else offset
    expected = loops.mask(lambda i, j: j <= i + shift, queries, keys)
    assert torch.equal(causal(offset).materialize(queries, keys), expected)


@each_size
@pytest.mark.parametrize("offset", [None, 0, 3, -1])
@pytest.mark.parametrize(("left", "right"), [(0, 0), (1, 2), (3, 0), (0, 9)])
def test_window(queries, keys, offset, left, right):
    shift = keys - queries if offset is None else offset
    expected = loops.mask(lambda i, j: -left <= j - (i + shift) <= right, queries, keys)
    assert torch.equal(window(left, right, offset).materialize(queries, keys), expected)


@each_size
def test_padding(queries, keys):
    lengths = [[0, min(1, keys), keys], [keys, min(2, keys), 0]]
    visible = padding(torch.tensor(lengths)).materialize(queries, keys)
    for a in range(2):
        for b in range(3):
            expected = loops.mask(lambda i, j, n=lengths[a][b]: j < n, queries, keys)
            assert torch.equal(visible[a, b], expected)
    one = min(2, keys)
    assert torch.equal(padding(one).materialize(queries, keys), loops.mask(lambda i, j: j < 2, queries, keys))


@each_size
@pytest.mark.parametrize("radius", [0, 1, 1.5, math.inf])
def test_around(queries, keys, radius):
    center = torch.linspace(-2, keys + 1, 2 * max(queries, 1)).reshape(2, -1)[:, :queries]
    visible = around(center, radius).materialize(queries, keys)
    for b in range(2):
        expected = loops.mask(lambda i, j, b=b: abs(j - center[b, i].item()) <= radius, queries, keys)
        assert torch.equal(visible[b], expected)
    alone = around(1.25, radius).materialize(queries, keys)
    assert torch.equal(alone, loops.mask(lambda i, j: abs(j - 1.25) <= radius, queries, keys))


def test_documents():
    query_ids, key_ids = torch.tensor([[0, 1, 1], [5, 5, 7]]), torch.tensor([[0, 0, 1, 2], [7, 7, 7, 5]])
    visible = documents(query_ids, key_ids).materialize(3, 4)
    for b in range(2):
        expected = loops.mask(lambda i, j, b=b: query_ids[b, i] == key_ids[b, j], 3, 4)
        assert torch.equal(visible[b], expected)
    packed = documents(key_ids[0]).materialize(4, 4)
    assert torch.equal(packed, loops.mask(lambda i, j: key_ids[0, i] == key_ids[0, j], 4, 4))


@pytest.mark.parametrize("shape", [(3, 4), (4,), (1, 4), (3, 1), (2, 3, 4), (2, 1, 1, 4), ()])
def test_dense(shape):
    tensor = torch.rand(shape) < 0.5
    visible = dense(tensor).materialize(3, 4)
    assert torch.equal(visible, tensor.expand(*shape[:-2], 3, 4))
    assert dense(tensor).materialize(3, 4).dtype == torch.bool


# ---- alignment


def weights_of(mask, *batch, queries=3, keys=4):
    query, key = torch.zeros(*batch, queries, 2), torch.zeros(*batch, keys, 2)
    return attend(query, key, key, mask).weights


@pytest.mark.parametrize(("batch", "heads"), [(2, 5), (2, 2)])
def test_lengths_are_for_the_leading_axes_and_dense_tensors_for_the_last(batch, heads):
    """With as many heads as batch entries a mistake would go unnoticed by shape."""
    lengths = torch.tensor([1, 3])
    weights = weights_of(padding(lengths), batch, heads)
    for b in range(batch):
        assert (weights[b, :, :, : lengths[b]] > 0).all()
        assert (weights[b, :, :, lengths[b] :] == 0).all()
    by_head = torch.rand(heads, 3, 4) < 0.5
    for mask in (by_head[None], by_head) if batch != heads else (by_head[None],):
        weights = weights_of(mask, batch, heads)
        for h in range(heads):
            assert torch.equal(weights[:, h] > 0, by_head[h].expand(batch, 3, 4))
    if batch == heads:
        with pytest.raises(ShapeError, match=r"mask\[:, None\] .* mask\[None\]"):
            weights_of(by_head, batch, heads)


@pytest.mark.parametrize(("batch", "heads"), [(2, 5), (2, 2)])
def test_centers_and_documents_are_for_the_leading_axes(batch, heads):
    center = torch.tensor([[0.0, 1.0, 2.0], [3.0, 3.0, 0.0]])
    weights = weights_of(around(center, 0), batch, heads)
    ids, key_ids = torch.tensor([[0, 0, 1], [1, 0, 1]]), torch.tensor([[0, 1, 0, 1], [1, 1, 1, 0]])
    packed = weights_of(documents(ids, key_ids), batch, heads)
    for b in range(batch):
        for h in range(heads):
            assert weights[b, h].argmax(-1).tolist() == center[b].tolist()
            assert torch.equal(packed[b, h] > 0, ids[b][:, None] == key_ids[b])


def test_masks_with_different_axes_broadcast():
    lengths, center = torch.tensor([[4, 2], [1, 3]]), torch.tensor([[0.0, 1.0, 2.0], [3.0, 2.0, 1.0]])
    by_head = torch.rand(2, 3, 4) < 0.8
    weights = weights_of(padding(lengths) & around(center, 1) & by_head[None] & causal(), 2, 2)
    for b in range(2):
        for h in range(2):
            expected = loops.mask(
                lambda i, j, b=b, h=h: (
                    j < lengths[b, h] and abs(j - center[b, i]) <= 1 and by_head[h, i, j] and j <= i + 1
                ),
                3,
                4,
            )
            assert torch.equal(weights[b, h] > 0, expected)


def test_a_mask_with_more_batch_axes_than_the_inputs():
    output = attend(torch.zeros(3, 2), torch.zeros(4, 2), torch.arange(4.0)[:, None], padding([1, 2, 4]))
    assert output.context.shape == (3, 3, 1)
    assert output.context[:, 0, 0].tolist() == [0.0, 0.5, 1.5]


# ---- algebra


@st.composite
def mask_builders(draw, queries=6, keys=7, depth=2):
    """Functions that build a mask; the test calls them, because the shape checks draw random numbers."""
    number = st.integers(-2, 9)
    if depth and draw(st.booleans()):
        left, right = draw(mask_builders(queries, keys, depth - 1)), draw(mask_builders(queries, keys, depth - 1))
        combinations = [lambda: left() & right(), lambda: left() | right(), lambda: ~left()]
        return draw(st.sampled_from(combinations))
    name = draw(st.sampled_from(["causal", "window", "padding", "around", "documents", "dense"]))
    if name == "causal":
        offset = draw(st.none() | number)
        return lambda: causal(offset)
    if name == "window":
        left, right, offset = draw(st.integers(0, 4)), draw(st.integers(0, 4)), draw(st.none() | number)
        return lambda: window(left, right, offset)
    if name == "padding":
        length = st.integers(0, keys)
        lengths = draw(length | st.lists(length, min_size=2, max_size=2))
        return lambda: padding(lengths)
    if name == "around":
        lead, radius = draw(st.sampled_from([(), (2,)])), draw(st.floats(0, 4))
        count = math.prod(lead) * queries
        centers = draw(st.lists(st.floats(-2, 9), min_size=count, max_size=count))
        return lambda: around(torch.tensor(centers).reshape(*lead, queries), radius)
    if name == "documents":
        ids = draw(st.lists(st.integers(0, 2), min_size=queries + keys, max_size=queries + keys))
        return lambda: documents(torch.tensor(ids[:queries]), torch.tensor(ids[queries:]))
    bits = draw(st.lists(st.booleans(), min_size=queries * keys, max_size=queries * keys))
    return lambda: dense(torch.tensor(bits).reshape(queries, keys))


def full_mask(mask):
    return mask.materialize(6, 7, 1).expand(2, 6, 7)


@settings(max_examples=60)
@given(mask_builders(), mask_builders())
def test_combined_masks_follow_set_algebra(make, other):
    left, right = make(), other()
    a, b = full_mask(left), full_mask(right)
    assert torch.equal(full_mask(left & right), a & b)
    assert torch.equal(full_mask(left | right), a | b)
    assert torch.equal(full_mask(~left), ~a)
    assert torch.equal(full_mask(~(left & right)), full_mask(~left | ~right))
    assert torch.equal(full_mask(~(left | right)), full_mask(~left & ~right))
    assert torch.equal(full_mask(~~left), a)


@settings(max_examples=60)
@given(mask_builders())
def test_no_key_outside_of_the_band_is_visible(make):
    low, high = make().band(6, 7)
    step = torch.arange(7) - torch.arange(6)[:, None]
    assert not (full_mask(make()) & ((step < low) | (step > high))).any()


@settings(max_examples=60)
@given(mask_builders())
def test_prefix_lengths_and_count_visible(make):
    mask, grid = make(), PositionGrid.full(6, 7, 1)
    output = full_mask(mask)
    assert torch.equal(mask.count_visible(grid).expand(2, 6, 1), output.sum(-1, keepdim=True))
    prefix = mask.prefix_lengths(grid)
    if prefix is not None:
        assert torch.equal((grid.key_positions < prefix).expand(2, 6, 7), output)


@settings(max_examples=60)
@given(mask_builders(), st.integers(0, 5), st.integers(0, 6), st.integers(1, 6), st.integers(1, 7))
def test_a_part_of_the_grid_is_a_slice_of_the_full_mask(make, first_query, first_key, queries, keys):
    queries = torch.arange(first_query, min(first_query + queries, 6))
    keys = torch.arange(first_key, min(first_key + keys, 7))
    output = make().rule(PositionGrid(6, 7, 1, queries[:, None], keys[None, :])).expand(2, len(queries), len(keys))
    assert torch.equal(output, full_mask(make())[:, queries][:, :, keys])


@settings(max_examples=60)
@given(mask_builders(), st.lists(st.integers(0, 4), min_size=12, max_size=12))
def test_gathered_positions_agree_with_the_full_mask(make, starts):
    key_at = torch.tensor(starts).reshape(2, 6, 1, 1) + torch.arange(3)
    grid = PositionGrid(6, 7, 1, torch.arange(6)[:, None, None], key_at, num_inner_axes=1)
    output = make().rule(grid).expand(2, 6, 1, 3).squeeze(-2)
    assert torch.equal(output, full_mask(make()).gather(-1, key_at.squeeze(-2)))


@settings(max_examples=40)
@given(mask_builders())
def test_is_query_independent(make):
    if make().is_query_independent:
        output = full_mask(make())
        assert torch.equal(output, output[:, :1].expand(2, 6, 7))


# ---- messages


def test_masks_have_no_truth_value():
    with pytest.raises(TypeError, match=r"join masks with & \| ~"):
        bool(causal())
    with pytest.raises(TypeError, match="join masks"):
        causal() and padding(2)
    assert isinstance(torch.ones(2, 2, dtype=torch.bool) & causal(), Mask)
    assert isinstance(torch.ones(2, 2, dtype=torch.bool) | causal(), Mask)


@pytest.mark.parametrize(
    "mask",
    [causal(), window(1, 2), padding([1, 2]), around(1.0, 2), documents(torch.arange(3)), dense(torch.ones(1) > 0)],
    ids=lambda mask: type(mask).__name__,
)
def test_masks_have_a_short_repr(mask):
    for combined in (mask, ~mask, mask & causal(), mask | causal()):
        assert len(repr(combined)) < 80
        assert "\n" not in repr(combined)


@pytest.mark.bare
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: dense(torch.zeros(3, 4)), "bool tensor, True where .* got torch.float32; write mask.bool"),
        (lambda: dense(torch.zeros(3, 4, dtype=torch.long)), "got torch.int64; .* padding"),
        (lambda: as_mask([[True]]), "got list"),
        (lambda: padding(torch.tensor([1.0])), "lengths must be whole numbers, got torch.float32"),
        (lambda: padding(torch.tensor([True])), "a mask already"),
        (lambda: window(-1, 2), "window: left must be a whole number of at least 0, got -1"),
        (lambda: window(1, 2.5), "window: right must be a whole number of at least 0, got 2.5"),
        (lambda: window(1, True), "window: right"),
        (lambda: causal(offset=0.5), "causal: offset must be a whole number, got 0.5"),
        (lambda: around(1.0, -1), "around: radius must be at least 0, got -1"),
        (lambda: documents(torch.tensor(1)), "documents: ids must have one entry for each position"),
    ],
)
def test_invalid_masks_raise_one_line(wrong, words):
    with pytest.raises((TypeError, ValueError), match=words) as error:
        wrong()
    assert "\n" not in str(error.value)


@pytest.mark.bare
@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (dense(torch.ones(3, 5) > 0), r"mask \(3, 5\) does not broadcast to .* = \(2, 3, 4\)"),
        (dense(torch.ones(5, 3, 4) > 0), r"mask \(5, 3, 4\) does not broadcast"),
        (padding([1, 2, 3]), r"lengths \(3,\) must have the leading batch axes .* these are \(2,\)"),
        (around(torch.zeros(2, 4), 1), r"center \(2, 4\) must end in the number of queries, which is 3"),
        (around(torch.zeros(3, 3), 1), r"center \(3, 3\) must have the leading batch axes"),
        (documents(torch.zeros(3, dtype=torch.long)), r"key_ids \(3,\) must end in the number of key"),
        (causal() & padding([1, 2, 3]), r"lengths \(3,\)"),
        (~padding([1, 2, 3]), r"lengths \(3,\)"),
    ],
)
def test_masks_that_do_not_fit_raise_one_line(mask, words):
    with pytest.raises(ValueError, match=words) as error:
        attend(torch.zeros(2, 3, 2), torch.zeros(2, 4, 2), torch.zeros(2, 4, 1), mask)
    assert "\n" not in str(error.value)


def test_a_user_defined_mask_needs_a_rule_only():
    class Even(Mask):
        def rule(self, grid):
            return grid.key_positions % 2 == 0

    weights = weights_of(Even() & causal(), 2)
    expected = loops.mask(lambda i, j: j % 2 == 0 and j <= i + 1, 3, 4)
    assert torch.equal(weights[0] > 0, expected)
    with pytest.raises(NotImplementedError, match=r"implement rule\(grid\)"):
        Mask().materialize(1, 1)
