"""Trainings that differ in a few settings: which there are, and what came out of one of them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

ONE_VALUE = ("train", "valid", "test", "columns")  # lists themselves: a comma in them is no alternative


def combinations(words: Sequence[str]) -> tuple[list[str], list[dict[str, str]]]:
    """The settings that all share, and every combination of those with alternatives.

    >>> combinations(["steps=30", "score=dot,additive"])
    (['steps=30'], [{'score': 'dot'}, {'score': 'additive'}])
    """
    shared: list[str] = []
    choices: dict[str, list[str]] = {}
    for word in words:
        name, value = name_of(word), word.partition("=")[2]
        values = list(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        if name in ONE_VALUE or len(values) < 2:
            shared.append(word)
        else:
            choices[name] = values
    return shared, [dict(zip(choices, some, strict=True)) for some in product(*choices.values())]


def name_of(word: str) -> str:
    """The setting that a word sets."""
    return word.partition("=")[0].strip().replace("-", "_")


def folder_of(choice: dict[str, str]) -> str:
    """The name of a combination's folder.

    >>> folder_of({"score": "dot", "normalize": "topk(4)"})
    'score=dot,normalize=topk(4)'
    """
    return re.sub(r"[^\w.=,()+-]", "_", ",".join(f"{name}={value}" for name, value in choice.items()))


def result_of(recipe: str, words: Sequence[str], folder: Path) -> dict[str, Any]:
    """What came out of one combination, trained or gone on with; or why it cannot be trained."""
    from regard.errors import ConfigError, DivergedError, InputTooLongError
    from regard.studies.runner import run_trial
    from regard.tasks import make_config

    _clear(folder)
    try:
        settings = make_config(recipe, words)
        given = {name: _whole(name, getattr(settings, name)) for name in map(name_of, words)}
        row = run_trial(recipe, folder, **given)
    except (ConfigError, InputTooLongError, DivergedError) as error:
        return {"refused": str(error)}
    return {name: value for name, value in row.items() if name != "by_length"}


def _whole(name: str, value: Any) -> Any:
    """Paths from the root on, as a run keeps them, so that it is known again from another folder."""
    if name in ("train_files", "valid_files", "test_files"):
        return tuple(str(Path(file).resolve()) for file in value)
    return str(Path(value).resolve()) if name == "data" and value is not None else value


def _clear(folder: Path) -> None:
    """Remove what a training left that was killed before it began."""
    if folder.is_dir() and {path.name for path in folder.iterdir()} <= {"source.json", "target.json"}:
        shutil.rmtree(folder)
