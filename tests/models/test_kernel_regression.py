"""Kernel regression as an estimator of scikit-learn."""

import csv
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from regard.models import kernel_regression
from regard.models.kernel_regression import KernelRegression, OutOfReachWarning

KERNELS = ("average", "gaussian", "boxcar", "epanechnikov")
REAL = {  # columns; at its best width, that width, and with the mean alone: from the README of the data
    "mcycle": ("times", "accel", 24.41, 0.94, 48.5),
    "faithful": ("eruptions", "waiting", 5.68, 0.26, 13.6),
    "GAGurine": ("Age", "GAG", 4.72, 0.18, 9.0),
}


@pytest.fixture
def curve():
    random = np.random.default_rng(0)
    x = random.uniform(0, 5, 80)
    return x[:, None], 2 * np.sin(x) + x**0.8 + 0.5 * random.standard_normal(80)


def rmse(errors):
    return float(np.sqrt(np.mean(errors**2)))


@pytest.mark.bare
@parametrize_with_checks([KernelRegression(kernel, out_of_reach="nearest") for kernel in KERNELS])
def test_estimator_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks cause warnings and assert those they expect
        check(estimator)


@pytest.mark.bare
@pytest.mark.slow
def test_estimator_checks_with_learned_width():
    # Leave-one-out of two equal points differs from that of one point of weight 2.
    expected = {"check_sample_weight_equivalence_on_dense_data": "widths are learned by leave-one-out"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(KernelRegression(width="learned"), expected_failed_checks=expected, on_skip=None)


def test_models_do_not_import_scikit_learn():
    code = "import regard.models, sys; print('sklearn' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == "False\n"


def test_clone_pickle_pipeline_and_search(curve):
    x, y = curve
    model = make_pipeline(StandardScaler(), KernelRegression(width=0.2))
    assert cross_val_score(clone(model), x, y, cv=4).mean() > 0.6
    grid = {"kernelregression__kernel": KERNELS, "kernelregression__width": [0.05, 0.2, 1.0]}
    model.set_params(kernelregression__out_of_reach="nearest")
    search = GridSearchCV(model, grid, cv=4).fit(x, y)
    assert search.best_params_["kernelregression__kernel"] != "average"
    assert search.best_score_ > 0.6
    copy = pickle.loads(pickle.dumps(search.best_estimator_))
    assert (copy.predict(x) == search.predict(x)).all()


def test_outputs_are_independent(curve):
    x, y = curve
    both = KernelRegression(width=0.3).fit(x, np.stack([y, -3 * y], 1))
    single = KernelRegression(width=0.3).fit(x, y)
    assert both.predict(x).shape == (80, 2)
    np.testing.assert_allclose(both.predict(x), single.predict(x)[:, None] * [1, -3], rtol=1e-12)
    assert both.leave_one_out().shape == (80, 2)


def test_average_kernel(curve):
    x, y = curve
    np.testing.assert_allclose(KernelRegression("average").fit(x, y).predict(x[:3]), y.mean())


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("features", [1, 2])
def test_weights_give_the_prediction(kernel, features, curve):
    x, y = curve
    x = np.hstack([x, np.cos(x)])[:, :features]
    counts = np.random.default_rng(1).integers(0, 4, len(x))
    model = KernelRegression(kernel, 0.8, out_of_reach="nearest").fit(x, y, sample_weight=counts)
    query = np.linspace(-3, 9, 31)[:, None] * np.ones(features)
    weights = model.weights(query)
    assert weights.shape == (31, (counts > 0).sum())
    np.testing.assert_allclose(weights.sum(1), 1)
    np.testing.assert_allclose(weights @ y[counts > 0], model.predict(query), rtol=1e-9)


@pytest.mark.parametrize("kernel", ["boxcar", "epanechnikov"])
def test_query_without_point_within_reach(kernel):
    model = KernelRegression(kernel, 1.0).fit([[0.0], [10.0]], [1.0, 2.0])
    query = [[0.5], [5.0], [-3.0], [10.5]]
    with pytest.warns(OutOfReachWarning, match="^2 of 4 queries have no point within reach") as caught:
        predictions = model.predict(query)
    assert len(caught) == 1
    np.testing.assert_array_equal(predictions, [1, np.nan, np.nan, 2])
    np.testing.assert_array_equal(model.weights(query), [[1, 0], [0, 0], [0, 0], [0, 1]])
    model.set_params(out_of_reach="nearest")
    np.testing.assert_array_equal(model.predict(query), [1, 1, 1, 2])
    np.testing.assert_array_equal(model.weights(query), [[1, 0], [1, 0], [1, 0], [0, 1]])


@pytest.mark.bare
def test_warning_has_the_line_of_the_caller():
    model = KernelRegression("boxcar", 1.0).fit([[0.0], [10.0]], [1.0, 2.0])
    for call in (lambda: model.predict([[5.0]]), lambda: model.leave_one_out()):
        with pytest.warns(OutOfReachWarning) as caught:
            call()
        assert [warning.filename for warning in caught] == [__file__]


def test_leave_one_out_of_an_isolated_point():
    model = KernelRegression("boxcar", 1.0).fit([[0.0], [0.5], [9.0]], [1.0, 2.0, 5.0])
    with pytest.warns(OutOfReachWarning, match="1 of 3"):
        np.testing.assert_array_equal(model.leave_one_out(), [1, -1, np.nan])
    model.set_params(out_of_reach="nearest")
    np.testing.assert_array_equal(model.leave_one_out(), [1, -1, -3])


def test_sample_weights_are_counts(curve):
    x, y = curve
    counts = np.arange(80) % 3
    often = KernelRegression("epanechnikov", 0.4, "nearest").fit(np.repeat(x, counts, 0), np.repeat(y, counts))
    once = KernelRegression("epanechnikov", 0.4, "nearest").fit(x, y, sample_weight=counts)
    np.testing.assert_allclose(once.predict(x), often.predict(x), rtol=1e-9)


@pytest.mark.parametrize("kernel", ["gaussian", "epanechnikov"])
def test_learned_width_is_better_than_a_grid(kernel, curve):
    model = KernelRegression(kernel, "learned", "nearest").fit(*curve)
    best = rmse(model.leave_one_out())
    assert isinstance(model.width_, np.ndarray)
    for width in np.geomspace(0.02, 20, 60):
        other = KernelRegression(kernel, width, "nearest").fit(*curve)
        assert best <= rmse(other.leave_one_out()) + 1e-3


def test_learned_width_of_an_irrelevant_feature_is_large():
    random = np.random.default_rng(0)
    x = random.uniform(0, 5, (150, 2))
    y = np.sin(2 * x[:, 0])
    model = KernelRegression(width="learned").fit(x, y)
    assert model.width_[1] > 10 * model.width_[0]
    assert model.score(x, y) > 0.98


def test_learned_width_scales_with_units(curve):
    x, y = curve
    single = KernelRegression(width="learned").fit(x, np.stack([y, y**2], 1))
    two = KernelRegression(width="learned").fit(1000 * x, np.stack([y, 1e6 * y**2], 1))
    np.testing.assert_allclose(two.width_, 1000 * single.width_, rtol=1e-6)


@pytest.mark.parametrize("name", list(REAL))
def test_leave_one_out_on_real_data(name):
    folder = os.environ.get("REGARD_DATA")
    if not folder:
        pytest.skip("REGARD_DATA is not set to the folder with regression-1d")
    column_x, column_y, error, width, mean = REAL[name]
    with open(Path(folder) / "regression-1d" / f"{name}.csv", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    x, y = (np.array([[float(row[column_x])] for row in rows]), np.array([float(row[column_y]) for row in rows]))
    assert abs(rmse(KernelRegression(width=width).fit(x, y).leave_one_out()) - error) < 0.006
    assert abs(rmse(KernelRegression("average").fit(x, y).leave_one_out()) - mean) < 0.06
    learned = KernelRegression(width="learned").fit(x, y)
    assert rmse(learned.leave_one_out()) < error + 0.005  # GAGurine has a better width than that of the README


def test_example_data():
    with open(Path(__file__).parents[2] / "examples" / "mcycle.csv", encoding="utf-8") as lines:
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    x, y = np.array([[float(row["times"])] for row in rows]), np.array([float(row["accel"]) for row in rows])
    assert abs(rmse(KernelRegression(width="learned").fit(x, y).leave_one_out()) - 24.41) < 0.005


def test_constant_features_and_few_points():
    assert KernelRegression(width="learned").fit([[1.0]], [4.0]).predict([[7.0]]) == 4
    model = KernelRegression(width="learned").fit(np.ones((5, 2)), np.arange(5.0))
    np.testing.assert_allclose(model.predict([[1.0, 1.0]]), 2)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"kernel": "cubic"},
            "invalid value 'cubic' for kernel: must be one of average, gaussian, boxcar, epanechnikov",
        ),
        ({"out_of_reach": 0}, "invalid value 0 for out_of_reach: must be one of nan, nearest"),
        ({"width": 0}, "invalid value 0 for width: must be above 0, a number or one for each of 1 features"),
        ({"width": [1.0, 2.0]}, r"invalid value \[1.0, 2.0\] for width"),
        ({"width": "wide"}, "invalid value 'wide' for width"),
        ({"width": float("nan")}, "invalid value nan for width"),
        ({"width": None}, "invalid value None for width"),
    ],
)
@pytest.mark.bare
def test_invalid_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        KernelRegression(**parameters).fit([[0.0], [1.0]], [0.0, 1.0])


def test_invalid_input(curve, monkeypatch):
    x, y = curve
    with pytest.raises(NotFittedError):
        KernelRegression().leave_one_out()
    with pytest.raises(ValueError, match=r"at least one sample_weight must be above 0|at least one non-zero"):
        KernelRegression().fit(x, y, sample_weight=np.zeros(80))
    with pytest.raises(ValueError, match="Negative values"):
        KernelRegression().fit(x, y, sample_weight=-np.ones(80))
    monkeypatch.setattr(kernel_regression, "MAX_WEIGHTS", 1000)
    with pytest.raises(ValueError, match=r"80 queries x 80 points .* at most 12 queries"):
        KernelRegression().fit(x, y).weights(x)


def test_inputs_are_copied(curve):
    x, y = curve
    model = KernelRegression(width=0.3).fit(x, y)
    before = model.predict(x.copy())
    query = x.copy()
    x += 100
    y += 100
    np.testing.assert_array_equal(model.predict(query), before)
