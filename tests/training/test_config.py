"""TrainingConfig: the learning rate and invalid values."""

import math

import pytest

from regard.errors import ConfigError
from regard.training import TrainingConfig


def test_inverse_sqrt_rises_to_its_peak_and_falls_with_the_root():
    config = TrainingConfig(schedule="inverse_sqrt", lr=0.5, warmup_steps=4)
    assert [config.learning_rate(step) for step in (1, 2, 4, 16, 400)] == pytest.approx([0.125, 0.25, 0.5, 0.25, 0.05])


def test_cosine_reaches_zero_at_the_last_step():
    config = TrainingConfig(schedule="cosine", lr=0.5, warmup_steps=10, steps=110)
    assert [config.learning_rate(step) for step in (5, 10, 60, 110)] == pytest.approx([0.25, 0.5, 0.25, 0.0])
    assert config.learning_rate(35) == pytest.approx(0.25 * (1 + math.cos(math.pi / 4)))
    assert config.learning_rate(200) == pytest.approx(0.0)


def test_constant_has_a_warm_up_too():
    config = TrainingConfig(schedule="constant", lr=0.5, warmup_steps=2)
    assert [config.learning_rate(step) for step in (1, 2, 3, 10_000)] == [0.25, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("schedule", ["constant", "inverse_sqrt", "cosine"])
def test_without_warm_up_the_first_step_has_the_peak_rate(schedule):
    config = TrainingConfig(schedule=schedule, lr=0.5, warmup_steps=0)
    assert config.learning_rate(1) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("lr", 0.0),
        ("lr", math.nan),
        ("grad_accumulation", 0),
        ("warmup_steps", -1),
        ("beta2", 1.0),
        ("max_grad_norm", -1.0),
        ("seed", 1 << 63),
    ],
)
def test_invalid_values_are_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=rf"invalid value '{value}' for {name}: must be "):
        TrainingConfig(**{name: value})


def test_every_option_has_help():
    assert all(option.help for option in TrainingConfig.options())
    assert TrainingConfig.option("lr").help == "peak learning rate"
