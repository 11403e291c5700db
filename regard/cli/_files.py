"""Files that a recipe is trained, chosen and tested with, as options."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from regard.errors import UsageError

FILES = (
    "Source and target file, or one .tsv or .jsonl; also packed (.gz, .xz). Documents: .tsv, .csv or .jsonl."
)
FROM_FILES = ("translation", "documents", "mixed", "language", "masked-language", "captions")

TrainFiles = Annotated[
    list[str] | None, typer.Option("--train", metavar="FILE...", help=f"Text to train on. {FILES}")
]
ValidFiles = Annotated[
    list[str] | None, typer.Option("--valid", metavar="FILE...", help="Text to choose the best by.")
]
TestFiles = Annotated[
    list[str] | None, typer.Option("--test", metavar="FILE...", help="Text for `regard evaluate`.")
]


def check_files(recipe: str, settings: dict[str, Any]) -> None:
    """Refuse files for a recipe that brings its own."""
    named = [name for name in ("train_files", "valid_files", "test_files") if settings.get(name)]
    if named and recipe not in FROM_FILES:
        known = f"{', '.join(FROM_FILES[:-1])} or {FROM_FILES[-1]}"
        raise UsageError(
            f"--{named[0].removesuffix('_files')} is for the recipe {known}; {recipe} brings its own text."
        )
