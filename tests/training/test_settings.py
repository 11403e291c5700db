"""Settings: the learning rate, what is better, and what is refused."""

import math

import pytest

from regard.training import TrainingConfig


def test_inverse_sqrt_rises_to_its_peak_and_falls_with_the_root():
    settings = TrainingConfig(schedule="inverse_sqrt", lr=0.5, warmup_steps=4)
    assert [settings.learning_rate(step) for step in (1, 2, 4, 16, 400)] == pytest.approx(
        [0.125, 0.25, 0.5, 0.25, 0.05]
    )


def test_cosine_reaches_zero_at_the_last_step():
    settings = TrainingConfig(schedule="cosine", lr=0.5, warmup_steps=10, steps=110)
    assert [settings.learning_rate(step) for step in (5, 10, 60, 110)] == pytest.approx(
        [0.25, 0.5, 0.25, 0.0]
    )
    assert settings.learning_rate(35) == pytest.approx(0.25 * (1 + math.cos(math.pi / 4)))
    assert settings.learning_rate(200) == pytest.approx(0.0)


def test_constant_warms_up_too():
    settings = TrainingConfig(schedule="constant", lr=0.5, warmup_steps=2)
    assert [settings.learning_rate(step) for step in (1, 2, 3, 10_000)] == [0.25, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("schedule", ["constant", "inverse_sqrt", "cosine"])
def test_without_warmup_the_first_step_has_the_full_rate(schedule):
    assert TrainingConfig(schedule=schedule, lr=0.5, warmup_steps=0).learning_rate(1) == pytest.approx(
        0.5, rel=1e-4
    )


@pytest.mark.parametrize("watch", ["loss", "perplexity", "aer", "valid_loss", "word_error"])
def test_less_is_better_for_losses_and_errors(watch):
    settings = TrainingConfig(monitor=watch)
    assert settings.is_better(1.0, 2.0)
    assert not settings.is_better(2.0, 1.0)
    assert not settings.is_better(1.0, 1.0)


@pytest.mark.parametrize("watch", ["bleu", "chrf", "exact", "accuracy"])
def test_more_is_better_for_the_others(watch):
    assert TrainingConfig(monitor=watch).is_better(2.0, 1.0)
    assert not TrainingConfig(monitor=watch).is_better(1.0, 2.0)


def test_nan_is_never_better_and_anything_is_better_than_nothing():
    settings = TrainingConfig(monitor="loss")
    assert settings.is_better(5.0, None)
    assert not settings.is_better(math.nan, None)
    assert not settings.is_better(math.nan, 1.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("lr", 0.0),
        ("lr", math.nan),
        ("accumulate", 0),
        ("warmup", -1),
        ("beta2", 1.0),
        ("clip", -1.0),
    ],
)
def test_impossible_values_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f" for {name}: must be "):
        TrainingConfig(**{name: value})


def test_every_setting_has_a_line_of_help():
    assert all(item.help for item in TrainingConfig.options())
    assert TrainingConfig.option("lr").help == "learning rate at its highest"
