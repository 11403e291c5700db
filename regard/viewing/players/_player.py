"""What every player is in the end: a page in one file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

from regard.errors import StorageError, UsageError
from regard.viewing.web import page

STYLES = ("base.css", "players.css")
HEIGHT = 780  # pixels in a notebook, where it stands between other things


@dataclass(frozen=True)
class Player:
    """A page in one file, to be saved, sent around, or shown in a notebook.

    >>> Player("<!doctype html>").html
    '<!doctype html>'
    """

    html: str

    @classmethod
    def of(
        cls,
        title: str,
        modules: Iterable[str],
        data: Any,
        blocks: Mapping[str, bytes] | None = None,
        language: str | None = None,
    ) -> Player:
        """The page of these modules and data; `language` ("en" or "zh") is the one it begins in."""
        if language not in (None, "en", "zh"):
            raise UsageError(f"A player speaks 'en' or 'zh', not {language!r}.")
        data = {**data, "language": language}
        return cls(page(title, modules, data, blocks=blocks, styles=STYLES, language=language))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page; the name must end in .html."""
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"A player is an HTML page, so its name must end in .html, not {path.name!r}.")
        try:
            path.write_text(self.html, encoding="utf-8", newline="\n")
        except OSError as error:
            why = error.strerror if path.parent.is_dir() else f"there is no folder {path.parent}"
            raise StorageError(f"The page cannot be written to {path}: {why}.") from None

    def _repr_html_(self) -> str:
        """In a notebook: a frame of its own, so that neither disturbs the other."""
        return (
            f'<iframe srcdoc="{escape(self.html)}" width="100%" height="{HEIGHT}" style="border:0"></iframe>'
        )

    def __repr__(self) -> str:
        return f"Player({len(self.html):,} characters of HTML)"
