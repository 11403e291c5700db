"""Kernel regression by boxes, by windows and by parts: all of them the same as a plain loop."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.models.kernel_regression import smoothing as _kernels
from regard.models.kernel_regression import smoothing as _parts
from regard.models.kernel_regression import sums_1d as _boxes
from regard.models.kernel_regression.smoothing import (
    KernelSmoother,
    SortedNeighbors,
    TrainingPoints,
    divide_sums,
)
from regard.models.kernel_regression.sums_1d import RangeSums

KERNELS = {  # of the distance u, and of the smallest u: a common factor cancels, and keeps the Gaussian above 0
    "average": lambda u, nearest: 1.0,
    "gaussian": lambda u, nearest: math.exp((nearest - u) * (nearest + u) / 2),
    "boxcar": lambda u, nearest: float(u <= 1),
    "epanechnikov": lambda u, nearest: max(0.0, 1 - u * u),
}
NEAR = {"gaussian": 600, "boxcar": 300, "epanechnikov": 300}  # points, enough to be sorted


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


def known_of(x, y, weight=None):
    weight = torch.ones(len(x), dtype=torch.float64) if weight is None else weight
    return TrainingPoints.from_targets(x, y, weight)


def plain(kernel, width, query, known, itself=None):
    """One pair after the other, summed without rounding."""
    answers = []
    each = width.tolist() if width.dim() else [1.0] * query.shape[1]
    keys, values = known.key.tolist(), known.value.tolist()
    for number, q in enumerate(query.tolist()):
        rows = [row for row in range(len(keys)) if itself is None or row != int(itself[number])]
        gaps = [[abs(a - b) / w for a, b, w in zip(q, keys[row], each, strict=True)] for row in rows]
        us = [math.hypot(*gap) / (1.0 if width.dim() else float(width)) for gap in gaps]
        nearest = min(us, default=0.0)
        shares = [KERNELS[kernel](u, nearest) for u in us]
        columns = zip(*(values[row] for row in rows), strict=True) if rows else [[0.0]] * known.value.shape[1]
        *above, below = (math.fsum(s * v for s, v in zip(shares, column, strict=False)) for column in columns)
        answers.append([part / below if below else math.nan for part in above])
    return torch.tensor(answers, dtype=torch.float64)


def close(found, wanted, scale=1.0):
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6 * scale, equal_nan=True)


@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize("points", [1, 2, 40, 700])
@pytest.mark.parametrize("width", [0.003, 0.4, 30.0])
def test_on_a_line(kernel, points, width):
    known = known_of(torch.rand(points, 1).double() * 5, torch.randn(points, 2).double())
    query = torch.cat([torch.rand(10, 1).double() * 6 - 0.5, known.key[:5]])
    width = double(width)[0]
    smoother = KernelSmoother(kernel, width, known)
    assert (smoother.fast_sums is None) == (kernel == "average" or (kernel == "gaussian" and points < 700))
    close(divide_sums(smoother.sums(query)), plain(kernel, width, query, known))
    itself = torch.arange(min(points, 10))
    left = divide_sums(smoother.leave_one_out())[itself]
    close(left, plain(kernel, width, known.key[itself], known, itself))


@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize("width", [double(1.5)[0], double(1.0, 4.0, 0.7)])
@pytest.mark.parametrize("few", [10, 512])
def test_in_space(kernel, width, few, monkeypatch):
    monkeypatch.setattr(_parts, "PAIRS", 500)  # several parts
    monkeypatch.setattr(_kernels, "FEW", few)
    known = known_of(torch.randn(90, 3).double(), torch.randn(90, 1).double(), torch.rand(90).double() + 0.1)
    query = 2 * torch.randn(100, 3).double()
    smoother = KernelSmoother(kernel, width, known)
    assert isinstance(smoother.fast_sums, SortedNeighbors) == (
        few == 10 and kernel in ("boxcar", "epanechnikov")
    )
    close(divide_sums(smoother.sums(query)), plain(kernel, width, query, known))
    itself = torch.arange(90)
    close(divide_sums(smoother.leave_one_out()), plain(kernel, width, known.key, known, itself))


@pytest.mark.parametrize("shift", [0, 2**30])
def test_slabs_leave_nobody_out_who_stands_on_the_border(shift):
    key = shift + torch.cartesian_prod(*[torch.arange(30).double()] * 2)
    known = known_of(key, torch.randn(900, 1).double())
    smoother = KernelSmoother("boxcar", double(3.0)[0], known)
    assert isinstance(smoother.fast_sums, SortedNeighbors)
    counts = smoother.sums(key)[:, -1]
    assert torch.equal(counts > 0, torch.ones(900, dtype=torch.bool))
    close(divide_sums(smoother.sums(key[::37])), plain("boxcar", double(3.0)[0], key[::37], known))


@pytest.mark.parametrize("kernel", list(NEAR))
@pytest.mark.parametrize("shift", [0.0, -1e6, 1e9])
def test_far_from_zero(kernel, shift):
    """Numbers that a running sum, or |q|^2 - 2 q.k + |k|^2, would lose the digits of."""
    known = known_of(
        shift + torch.rand(NEAR[kernel], 1).double(), 1e8 + torch.randn(NEAR[kernel], 1).double()
    )
    query, width = shift + torch.rand(15, 1).double(), double(0.05)[0]
    close(divide_sums(KernelSmoother(kernel, width, known).sums(query)), plain(kernel, width, query, known))


@pytest.mark.parametrize("kernel", list(NEAR))
def test_one_wild_value_spoils_only_its_neighbors(kernel):
    x = torch.linspace(0, 100, NEAR[kernel]).double()[:, None]
    y = x.sin()
    y[100] = 1e15
    known, query, width = known_of(x, y), x[::40] + 0.01, double(1.0)[0]
    found, wanted = (
        divide_sums(KernelSmoother(kernel, width, known).sums(query)),
        plain(kernel, width, query, known),
    )
    calm = (query - x[100]).abs()[:, 0] > 15
    assert calm.sum() >= 5
    close(found[calm], wanted[calm])


@pytest.mark.parametrize("kernel", list(NEAR))
@pytest.mark.parametrize("far", [1e9, 1e15, 1e20])
def test_a_huge_spread_of_x(kernel, far):
    x = torch.cat([torch.rand(300).double(), 1e9 + torch.rand(300).double(), double(-far, far)])[:, None]
    known, width = known_of(x, torch.randn(len(x), 1).double()), double(0.2)[0]
    query = torch.cat([x[::31] + 1e-3, x[-2:]])
    close(divide_sums(KernelSmoother(kernel, width, known).sums(query)), plain(kernel, width, query, known))


@given(
    keys=st.lists(st.integers(-40, 40), min_size=1, max_size=40),
    queries=st.lists(st.integers(-45, 45), min_size=1, max_size=10),
    unit=st.sampled_from([0.1, 1 / 3, 1.0, 1e-9, 12345.678]),
    width=st.integers(1, 12),
    curved=st.booleans(),
)
def test_the_border_is_where_the_equation_has_it(keys, queries, unit, width, curved):
    """Numbers on a lattice stand exactly on the border of the reach, and rounding decides on which side."""
    key, query = (torch.tensor(part, dtype=torch.float64) * unit for part in (keys, queries))
    width = width * unit
    value = torch.stack([torch.arange(len(key)).double(), torch.ones(len(key)).double()], 1)
    u = (query[:, None] - key).abs() / width
    kernel = (1 - u * u).clamp(min=0) if curved else (u <= 1).double()
    found, unsure = RangeSums(key, value, width, curved).sums(query[:, None])
    torch.testing.assert_close(found[~unsure], (kernel @ value)[~unsure], rtol=1e-9, atol=1e-9)
    assert (kernel.mean(-1)[unsure] < 1e-5).all()
    if not curved:
        assert (found[:, -1] == kernel.sum(-1)).all()


def test_points_at_the_edge_of_the_reach_are_weighed_by_the_equation():
    """Two kernel values near 1e-12: taken apart they would keep four digits."""
    x = torch.cat([double(-1 + 1e-12, 1 - 3e-12), torch.linspace(5, 9, 600).double()])[:, None]
    y = torch.cat([double(0.0, 1.0), torch.zeros(600).double()])[:, None]
    known, width = known_of(x, y), double(1.0)[0]
    smoother = KernelSmoother("epanechnikov", width, known)
    assert smoother.fast_sums.sums(double(0.0)[:, None])[1].item()
    close(
        divide_sums(smoother.sums(double(0.0)[:, None])),
        plain("epanechnikov", width, double(0.0)[:, None], known),
    )


def test_a_query_far_from_all_points_still_looks_at_the_nearest_under_the_gaussian():
    known = known_of(torch.rand(600, 1).double(), torch.randn(600, 1).double())
    query, width = double(-50.0, 50.0)[:, None], double(0.1)[0]
    smoother = KernelSmoother("gaussian", width, known)
    assert smoother.fast_sums.sums(query)[1].all()  # which the boxes cannot say
    close(divide_sums(smoother.sums(query)), plain("gaussian", width, query, known))


def test_the_terms_of_the_gaussian_are_enough():
    """The error of a kernel value, all over the reach, is that of rounding."""
    for t in (-0.5, -0.2, 0.5):
        box = _boxes.GaussSums(double(0.0, t), double(0.0, 1.0)[:, None].expand(2, 2).contiguous(), 1.0)
        query = torch.linspace(-9, 9, 401).double()
        found = box.sums(query[:, None])[0][:, 0]
        assert (found - (-0.5 * (query - t).square()).exp()).abs().max() < 1e-15


def test_no_matrix_is_made(monkeypatch):
    """At most PAIRS scores at a time, whatever the number of queries."""
    seen = []

    def attend(query, key, *others, **more):
        seen.append(len(query) * len(key))
        return real(query, key, *others, **more)

    real = _parts.attend
    monkeypatch.setattr(_parts, "attend", attend)
    monkeypatch.setattr(_parts, "PAIRS", 1000)
    known = known_of(torch.randn(100, 2).double(), torch.randn(100, 1).double())
    assert KernelSmoother("boxcar", double(1.0)[0], known).sums(torch.randn(95, 2).double()).shape == (95, 2)
    assert max(seen) <= 1000
    assert sum(seen) == 9500
