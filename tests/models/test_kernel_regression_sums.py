"""Sums of kernel regression against a plain loop: Gauss transform, range sums, sorted neighbors and chunks."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.models import kernel_sums as smoothing
from regard.models.kernel_regression import KernelSmoother, divide_sums
from regard.models.kernel_sums import GaussSums, RangeSums, SortedNeighbors, TrainingPoints

KERNELS = {  # of the distance u and the smallest u: a common factor cancels and keeps the Gaussian above 0
    "average": lambda u, nearest: 1.0,
    "gaussian": lambda u, nearest: math.exp((nearest - u) * (nearest + u) / 2),
    "boxcar": lambda u, nearest: float(u <= 1),
    "epanechnikov": lambda u, nearest: max(0.0, 1 - u * u),
}
NUM_POINTS = {"gaussian": 600, "boxcar": 300, "epanechnikov": 300}  # numbers of points that are sorted


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


def make_points(x, y, weight=None):
    weight = torch.ones(len(x), dtype=torch.float64) if weight is None else weight
    return TrainingPoints.from_targets(x, y, weight)


def reference(kernel, width, query, points, excluded=None):
    """One pair at a time, summed exactly."""
    predictions = []
    widths = width.tolist() if width.dim() else [1.0] * query.shape[1]
    keys, values = points.key.tolist(), points.value.tolist()
    for number, q in enumerate(query.tolist()):
        rows = [row for row in range(len(keys)) if excluded is None or row != int(excluded[number])]
        gaps = [[abs(a - b) / w for a, b, w in zip(q, keys[row], widths, strict=True)] for row in rows]
        us = [math.hypot(*gap) / (1.0 if width.dim() else float(width)) for gap in gaps]
        nearest = min(us, default=0.0)
        weights = [KERNELS[kernel](u, nearest) for u in us]
        columns = zip(*(values[row] for row in rows), strict=True) if rows else [[0.0]] * points.value.shape[1]
        *numerators, denominator = (
            math.fsum(s * v for s, v in zip(weights, column, strict=False)) for column in columns
        )
        predictions.append([part / denominator if denominator else math.nan for part in numerators])
    return torch.tensor(predictions, dtype=torch.float64)


def close(actual, expected, scale=1.0):
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6 * scale, equal_nan=True)


@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize("num_points", [1, 2, 40, 700])
@pytest.mark.parametrize("width", [0.003, 0.4, 30.0])
def test_one_feature(kernel, num_points, width):
    points = make_points(torch.rand(num_points, 1).double() * 5, torch.randn(num_points, 2).double())
    query = torch.cat([torch.rand(10, 1).double() * 6 - 0.5, points.key[:5]])
    width = double(width)[0]
    smoother = KernelSmoother(kernel, width, points)
    assert (smoother.fast_sums is None) == (kernel == "average" or (kernel == "gaussian" and num_points < 700))
    close(divide_sums(smoother.sums(query)), reference(kernel, width, query, points))
    excluded = torch.arange(min(num_points, 10))
    errors = divide_sums(smoother.leave_one_out())[excluded]
    close(errors, reference(kernel, width, points.key[excluded], points, excluded))


@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize("width", [double(1.5)[0], double(1.0, 4.0, 0.7)])
@pytest.mark.parametrize("max_direct", [10, 512])
def test_several_features(kernel, width, max_direct, monkeypatch):
    monkeypatch.setattr(smoothing, "MAX_PAIRS", 500)  # several chunks
    monkeypatch.setattr(smoothing, "MAX_DIRECT_POINTS", max_direct)
    points = make_points(torch.randn(90, 3).double(), torch.randn(90, 1).double(), torch.rand(90).double() + 0.1)
    query = 2 * torch.randn(100, 3).double()
    smoother = KernelSmoother(kernel, width, points)
    assert isinstance(smoother.fast_sums, SortedNeighbors) == (
        max_direct == 10 and kernel in ("boxcar", "epanechnikov")
    )
    close(divide_sums(smoother.sums(query)), reference(kernel, width, query, points))
    excluded = torch.arange(90)
    close(divide_sums(smoother.leave_one_out()), reference(kernel, width, points.key, points, excluded))


@pytest.mark.parametrize("shift", [0, 2**30])
def test_sorted_neighbors_include_the_border(shift):
    key = shift + torch.cartesian_prod(*[torch.arange(30).double()] * 2)
    points = make_points(key, torch.randn(900, 1).double())
    smoother = KernelSmoother("boxcar", double(3.0)[0], points)
    assert isinstance(smoother.fast_sums, SortedNeighbors)
    counts = smoother.sums(key)[:, -1]
    assert torch.equal(counts > 0, torch.ones(900, dtype=torch.bool))
    close(divide_sums(smoother.sums(key[::37])), reference("boxcar", double(3.0)[0], key[::37], points))


@pytest.mark.parametrize("kernel", list(NUM_POINTS))
@pytest.mark.parametrize("shift", [0.0, -1e6, 1e9])
def test_far_from_zero(kernel, shift):
    """Values for which cumulative sums, or |q|^2 - 2 q.k + |k|^2, would lose digits."""
    points = make_points(
        shift + torch.rand(NUM_POINTS[kernel], 1).double(), 1e8 + torch.randn(NUM_POINTS[kernel], 1).double()
    )
    query, width = shift + torch.rand(15, 1).double(), double(0.05)[0]
    close(divide_sums(KernelSmoother(kernel, width, points).sums(query)), reference(kernel, width, query, points))


@pytest.mark.parametrize("kernel", list(NUM_POINTS))
def test_an_extreme_value_affects_only_its_neighbors(kernel):
    x = torch.linspace(0, 100, NUM_POINTS[kernel]).double()[:, None]
    y = x.sin()
    y[100] = 1e15
    points, query, width = make_points(x, y), x[::40] + 0.01, double(1.0)[0]
    actual, expected = (
        divide_sums(KernelSmoother(kernel, width, points).sums(query)),
        reference(kernel, width, query, points),
    )
    is_far = (query - x[100]).abs()[:, 0] > 15
    assert is_far.sum() >= 5
    close(actual[is_far], expected[is_far])


@pytest.mark.parametrize("kernel", list(NUM_POINTS))
@pytest.mark.parametrize("far", [1e9, 1e15, 1e20])
def test_large_range_of_x(kernel, far):
    x = torch.cat([torch.rand(300).double(), 1e9 + torch.rand(300).double(), double(-far, far)])[:, None]
    points, width = make_points(x, torch.randn(len(x), 1).double()), double(0.2)[0]
    query = torch.cat([x[::31] + 1e-3, x[-2:]])
    close(divide_sums(KernelSmoother(kernel, width, points).sums(query)), reference(kernel, width, query, points))


@given(
    keys=st.lists(st.integers(-40, 40), min_size=1, max_size=40),
    queries=st.lists(st.integers(-45, 45), min_size=1, max_size=10),
    unit=st.sampled_from([0.1, 1 / 3, 1.0, 1e-9, 12345.678]),
    width=st.integers(1, 12),
    curved=st.booleans(),
)
def test_border_equals_the_equation(keys, queries, unit, width, curved):
    """On a lattice distances equal the reach up to rounding, which decides on which side they are."""
    key, query = (torch.tensor(part, dtype=torch.float64) * unit for part in (keys, queries))
    width = width * unit
    value = torch.stack([torch.arange(len(key)).double(), torch.ones(len(key)).double()], 1)
    u = (query[:, None] - key).abs() / width
    kernel = (1 - u * u).clamp(min=0) if curved else (u <= 1).double()
    sums, is_inexact = RangeSums(key, value, width, curved).sums(query[:, None])
    torch.testing.assert_close(sums[~is_inexact], (kernel @ value)[~is_inexact], rtol=1e-9, atol=1e-9)
    assert (kernel.mean(-1)[is_inexact] < 1e-5).all()
    if not curved:
        assert (sums[:, -1] == kernel.sum(-1)).all()


def test_points_at_the_edge_of_the_reach():
    """Two kernel values near 1e-12, for which the expanded form would keep four digits."""
    x = torch.cat([double(-1 + 1e-12, 1 - 3e-12), torch.linspace(5, 9, 600).double()])[:, None]
    y = torch.cat([double(0.0, 1.0), torch.zeros(600).double()])[:, None]
    points, width = make_points(x, y), double(1.0)[0]
    smoother = KernelSmoother("epanechnikov", width, points)
    assert smoother.fast_sums.sums(double(0.0)[:, None])[1].item()
    close(
        divide_sums(smoother.sums(double(0.0)[:, None])), reference("epanechnikov", width, double(0.0)[:, None], points)
    )


def test_gaussian_query_far_from_all_points():
    points = make_points(torch.rand(600, 1).double(), torch.randn(600, 1).double())
    query, width = double(-50.0, 50.0)[:, None], double(0.1)[0]
    smoother = KernelSmoother("gaussian", width, points)
    assert smoother.fast_sums.sums(query)[1].all()  # inexact by the Gauss transform
    close(divide_sums(smoother.sums(query)), reference("gaussian", width, query, points))


def test_number_of_terms():
    """The error of a kernel value is that of rounding, over the whole reach."""
    for t in (-0.5, -0.2, 0.5):
        box = GaussSums(double(0.0, t), double(0.0, 1.0)[:, None].expand(2, 2).contiguous(), 1.0)
        query = torch.linspace(-9, 9, 401).double()
        values = box.sums(query[:, None])[0][:, 0]
        assert (values - (-0.5 * (query - t).square()).exp()).abs().max() < 1e-15


def test_scores_are_computed_in_chunks(monkeypatch):
    """At most MAX_PAIRS scores at a time, whatever the number of queries."""
    sizes = []

    def attend(query, key, *others, **more):
        sizes.append(len(query) * len(key))
        return real(query, key, *others, **more)

    real = smoothing.attend
    monkeypatch.setattr(smoothing, "attend", attend)
    monkeypatch.setattr(smoothing, "MAX_PAIRS", 1000)
    points = make_points(torch.randn(100, 2).double(), torch.randn(100, 1).double())
    assert KernelSmoother("boxcar", double(1.0)[0], points).sums(torch.randn(95, 2).double()).shape == (95, 2)
    assert max(sizes) <= 1000
    assert sum(sizes) == 9500
