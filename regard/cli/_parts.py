"""Texts to judge by: those of the run's recipe, or files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli._limit import Limit
from regard.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from regard.data import SentencePair
    from regard.tasks import TranslationConfig

Parts = dict[str, "list[SentencePair]"]


def from_recipe(recipe: str, settings: TranslationConfig, wanted: str | None = None) -> Parts:
    """All tests of a recipe by name, or the part that is wanted: one of them, or "valid"."""
    from regard.tasks import RECIPES

    material = RECIPES[recipe].load_data(settings)
    known: dict[str, Any] = {**material.tests, "valid": material.valid}
    if wanted is None:
        if not material.tests:
            raise UsageError("The run has no text to test with: name files, or take --split valid.")
        return {name: _pairs(part) for name, part in material.tests.items()}
    if wanted not in known:
        raise UnknownNameError.among("split", wanted, known)
    return {wanted: _pairs(known[wanted])}


def to_translate(recipe: str, settings: TranslationConfig) -> list[str]:
    """Sources of the recipe's tests; where it has none, those of the validation part."""
    from regard.tasks import RECIPES

    parts = from_recipe(recipe, settings, None if RECIPES[recipe].load_data(settings).tests else "valid")
    return [pair.source for part in parts.values() for pair in part]


def from_files(
    files: Sequence[Path | str], settings: TranslationConfig, columns: str | None = None
) -> list[SentencePair]:
    """The pairs in files, read as the recipe `translation` reads them."""
    from regard.tasks import RECIPES

    names = tuple(map(str, files))
    chosen = () if columns is None else tuple(column.strip() for column in columns.split(","))
    asked = replace(
        settings, train_files=names, valid_files=names, test_files=names, columns=chosen or settings.columns
    )
    return _pairs(RECIPES["translation"].load_data(asked).tests["test"])


def fitting(limit: Limit, pairs: Sequence[SentencePair]) -> list[SentencePair]:
    """Pairs whose sources the model can take; one that was cut has lost its gold links."""
    texts = limit.fitted([pair.source for pair in pairs])
    return [
        pair if text == pair.source else replace(pair, source=text, sure_links=None, possible_links=None)
        for text, pair in zip(texts, pairs, strict=True)
    ]


def _pairs(part: Any) -> list[SentencePair]:
    from regard.data import ParallelFiles

    return [pair for pair, _ in part] if isinstance(part, ParallelFiles) else list(part)
