"""The scenes of each recipe of images: what to train on, to choose by, and to judge by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from regard.data.algorithms import chance
from regard.data.digits import Digits, mnist, sklearn_digits
from regard.data.questions import Asked, Asking
from regard.data.scenes import Painted, Scenes
from regard.recipes._files import folder
from regard.recipes.captions._material import HELD
from regard.recipes.sights.settings import Answering, Glancing, Seeing

CHOOSING, TESTING = 500, 2000  # scenes
MNIST = "the four files of MNIST, such as train-images-idx3-ubyte.gz"
Source = Callable[[Any], Digits]  # from the name of a part to its digits


@dataclass(frozen=True)
class Sights:
    """Where scenes come from: made by chance to train on, always the same ones to choose by and to test."""

    train: Callable[[], Scenes | Asking]
    valid: Callable[[], Painted | Asked]
    tests: Mapping[str, Callable[[], Painted | Asked]]

    @property
    def parts(self) -> dict[str, Callable[[], Painted | Asked]]:
        """All that can be judged by, the usual one first."""
        return {**self.tests, "valid": self.valid}


def digits(settings: Glancing) -> Sights:
    """One of scikit-learn's digits among clutter."""
    return _sights(lambda part: _small(settings, part, 1))


def mnist_cluttered(settings: Glancing) -> Sights:
    """One of MNIST's digits among clutter."""
    root = folder(settings.data, MNIST)
    sides = settings.size * 7 // 48, settings.size * 7 // 24  # 14 to 28 pixels of 96
    return _sights(lambda part: Scenes(mnist(root, part), settings.size, sides, 1, settings.clutter))


def digit_questions(settings: Answering) -> Sights:
    """Three of scikit-learn's digits among clutter, and a question about them."""
    return _sights(lambda part: Asking(_small(settings, part, 3)))


def _small(settings: Seeing, part: Any, count: int) -> Scenes:
    sides = settings.size // 8, settings.size // 4
    return Scenes(sklearn_digits(part), settings.size, sides, count, settings.clutter)


def _sights(maker: Callable[[Any], Scenes | Asking]) -> Sights:
    def held(part: str, count: int) -> Callable[[], Painted | Asked]:
        return lambda: maker(part).make(chance(HELD[part]), count)

    return Sights(lambda: maker("train"), held("valid", CHOOSING), {"test": held("test", TESTING)})
