"""A finished picture: to save, to show in a notebook, to change before that."""

from __future__ import annotations

import io
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any

from regard._imports import require_extra
from regard.errors import StorageError, UsageError

_one_at_a_time = Lock()  # matplotlib's settings, which writing has to touch, are the same for all threads


class Picture:
    """A picture that saves itself as PNG or SVG and shows itself in a notebook.

    The same input gives the same bytes. `figure` is matplotlib's, to change whatever you like. Letters in SVG are
    shapes, which look the same everywhere; after `matplotlib.rcParams["svg.fonttype"] = "none"` they are text.

    >>> from regard.viewing import pictures
    >>> pictures.heat(torch.eye(3)).png()[1:4]
    b'PNG'
    """

    def __init__(self, figure: Any) -> None:
        self.figure = figure

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the picture into a file that ends in .png or .svg."""
        path = Path(path)
        ending = path.suffix.lower()
        if ending not in (".png", ".svg"):
            raise UsageError(f"A picture is saved as .png or .svg, not as {path.name!r}.")
        content = self.png() if ending == ".png" else self.svg().encode()
        try:
            path.write_bytes(content)
        except OSError as error:
            why = error.strerror if path.parent.is_dir() else f"there is no folder {path.parent}"
            raise StorageError(f"The picture cannot be written to {path}: {why}.") from None
        return path

    def png(self) -> bytes:
        return self._written("png", {"Software": None})

    def svg(self) -> str:
        return self._written("svg", {"Date": None, "Creator": None}).decode()

    def _written(self, kind: str, metadata: dict[str, Any]) -> bytes:
        content = io.BytesIO()
        with _one_at_a_time, require_extra("matplotlib", extra="draw").rc_context({"svg.hashsalt": "regard"}):
            own = {"dpi": self.figure.dpi, "facecolor": self.figure.get_facecolor()}  # not those of a style
            self.figure.savefig(content, format=kind, metadata=metadata, **own)
        return content.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png()

    def __repr__(self) -> str:
        across, down = (round(side * self.figure.dpi) for side in self.figure.get_size_inches())
        return f"Picture({across} x {down} pixels)"
