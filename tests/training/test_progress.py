"""Progress: the best value of a metric, and what a checkpoint stores of it."""

import json
import math

import pytest

from regard.training.run import Progress, is_better


def test_lower_is_better():
    assert is_better(1.0, 2.0, lower_is_better=True)
    assert not is_better(2.0, 1.0, lower_is_better=True)
    assert not is_better(1.0, 1.0, lower_is_better=True)


def test_higher_is_better():
    assert is_better(2.0, 1.0, lower_is_better=False)
    assert not is_better(1.0, 2.0, lower_is_better=False)


def test_nan_is_never_better_and_the_first_number_always():
    assert is_better(5.0, None, lower_is_better=True)
    assert not is_better(math.nan, None, lower_is_better=True)
    assert not is_better(math.nan, 1.0, lower_is_better=True)


@pytest.mark.parametrize(("lower_is_better", "best"), [(True, 0.5), (False, 0.9)])
def test_the_best_value_and_the_validations_since(lower_is_better, best):
    progress = Progress()
    for step, value in enumerate((0.7, 0.5, 0.9, math.nan), 1):
        progress.step = step
        progress.record_validation({"metric": value}, "metric", lower_is_better)
    assert (progress.best, progress.best_step) == (best, 2 if lower_is_better else 3)
    assert progress.validations_since_best == (2 if lower_is_better else 1)
    assert progress.last_validated_step == 4


def test_it_is_stored_to_the_last_bit():
    progress = Progress(step=3, data_position={"epoch": 1}, seconds=0.1 + 1 / 3, best=1 / 3, scores={"loss": 2 / 3})
    state = json.loads(json.dumps({**progress.to_json(), "seed": 0}))
    assert Progress.from_json(state) == progress
