"""How far a training has come, and what it remembers of its gradients."""

import json

import pytest

from regard.training import TrainingConfig
from regard.training.progress import Progress


def felt(lengths, **given):
    progress, settings = Progress(), TrainingConfig(**given)
    limits = []
    for length in lengths:
        limits.append(progress.longest(settings))
        progress.felt(length, limits[-1])
    return progress, limits


def test_a_gradient_may_surprise_only_so_much():
    progress, limits = felt([0.1, 0.1, 5.0, 0.1], clip=1.0, surprise=2.0)
    assert limits == [1.0, pytest.approx(0.2), pytest.approx(0.2), pytest.approx(0.21)]
    # the long one counts as long as it was allowed to be
    assert progress.usual == pytest.approx(0.95 * 0.105 + 0.05 * 0.1)


def test_what_is_usual_can_grow():
    """Ten times as long for good: allowed again after some steps."""
    _, limits = felt([0.01] * 5 + [0.1] * 100, clip=None, surprise=2.0)
    assert limits[6] < 0.1 < limits[-1]


@pytest.mark.parametrize(("clip", "surprise"), [(None, None), (0.5, None)])
def test_without_it_only_the_clip_counts(clip, surprise):
    _, limits = felt([0.1, 3.0, 0.1], clip=clip, surprise=surprise)
    assert limits == [clip] * 3


def test_it_is_kept_to_the_last_bit_and_old_checkpoints_have_none():
    progress, _ = felt([0.1, 1 / 3], surprise=2.0)
    state = json.loads(json.dumps(progress.to_json()))
    assert Progress.from_json(state) == progress
    del state["usual"]
    assert Progress.from_json(state).usual is None
