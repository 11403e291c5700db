"""Where the data of a recipe lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from regard.errors import ConfigError
from regard.recipes._task import DOWNLOAD


def folder(data: str | None, what: str, download: Callable[[], Path] | None = None) -> Path:
    """The folder of a recipe's data, or a sentence that says what it should hold and how to get it."""
    if data == DOWNLOAD and download is not None:
        return download()
    if data is None:
        other = f", or data={DOWNLOAD} to fetch it" if download else ""
        raise ConfigError(f"the recipe needs its data: data=FOLDER with {what}{other}")
    if not (path := Path(data)).is_dir():
        raise ConfigError(f"data={data}: there is no such folder; it should hold {what}")
    return path


def named(directory: Path, stem: str) -> Path:
    """A file of this name, packed or not."""
    for suffix in ("", ".xz", ".gz"):
        if (path := directory / f"{stem}{suffix}").is_file():
            return path
    return directory / stem  # the reader says that it is missing, and what is there
