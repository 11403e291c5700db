"""The plain text of a recipe: what to train on, to choose by, and to judge by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from regard.data.passages import PlainText
from regard.data.words import CUTS
from regard.errors import ConfigError
from regard.recipes._held import held_out, without_held
from regard.recipes.texts.settings import Text

Part = Callable[[], Iterable[str]]  # read when it is asked for


@dataclass(frozen=True)
class Texts:
    """Where the documents come from: to train on, to choose by, and tests by name."""

    train: Part
    valid: Part
    tests: Mapping[str, Part] = field(default_factory=dict)

    @property
    def parts(self) -> dict[str, Part]:
        """All that can be judged by, the usual one first."""
        return {**self.tests, "valid": self.valid}


def from_files(settings: Text) -> Texts:
    """Files that somebody names."""
    if not settings.train:
        raise ConfigError("the recipe needs text to train on: --train a.txt, which may be packed (.gz, .xz)")
    train = PlainText(settings.train, settings.apart)
    tests: dict[str, Part] = {}
    if settings.test:
        test = PlainText(settings.test, settings.apart)
        tests = {"test": lambda: test}
    if settings.valid:
        valid = PlainText(settings.valid, settings.apart)
        return Texts(lambda: train, lambda: valid, tests)
    return Texts(lambda: without_held(train), lambda: held_out(train), tests)


def spaced(tokenizer: str) -> Callable[[str], str]:
    """Text with spaces between all words or characters, as the recipes of documents cut it.

    >>> spaced("word")("It's well-made.")
    "It's well - made ."
    """
    cut = CUTS[tokenizer]
    return lambda text: " ".join(cut(text))
