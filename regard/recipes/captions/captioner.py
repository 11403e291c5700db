"""A trained network that describes pictures: what it says, how sure it is, and where it looked for each word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import Constant
from regard.data import BOS, UNK, Tokenizer
from regard.data.words import together
from regard.decoding import Decoding, Hypothesis, decode
from regard.errors import InputError, UnsupportedError, UsageError
from regard.models.captioner import ShowAttendTell, Steps
from regard.recipes._images import AT_ONCE, Image, shown, taken
from regard.recipes.captions.settings import Captioning

if TYPE_CHECKING:
    from regard.viewing.pictures import Picture
    from regard.viewing.players import Player


@dataclass(frozen=True)
class Looked:
    """A caption with the weight of each cell of the grid for each of its words; None without attention.

    `image` is what was described, as (height, width, 3); of a grid of features, nothing is there to be seen.
    """

    words: list[str]
    weights: Float[Tensor, "words down across"] | None
    probabilities: list[float]
    image: Float[Tensor, "height width 3"]

    @property
    def caption(self) -> str:
        return together(" ".join(self.words))

    def picture(self, title: str | None = None, smooth: bool = True) -> Picture:
        """The image, and for each word the same image, lit where it looked."""
        from regard.viewing import pictures

        return pictures.overlay(self.image, self._seen(), self.words, smooth=smooth, title=title)

    def player(self, title: str | None = None, language: str | None = None) -> Player:
        """A page in one file: the image, lit word by word."""
        from regard.viewing import players

        return players.caption(
            self.image, self.words, self.weights, self.probabilities, title=title, language=language
        )

    def drawn(self) -> str:
        """For the terminal: each word, how sure it was, and the row and column of the cell with the largest weight."""
        seen = self._seen()
        rows = []
        for word, share, grid in zip(self.words, self.probabilities, seen, strict=True):
            cell = int(grid.argmax())
            row, column = divmod(cell, grid.shape[1])
            rows.append(f"{word:<12} {share:7.1%}   row {row}, column {column}: {float(grid.max()):.2f}")
        return "\n".join(rows)

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        seen = None if self.weights is None else self.weights.tolist()
        return {
            "caption": self.caption,
            "words": self.words,
            "probabilities": self.probabilities,
            "weights": seen,
        }

    def _seen(self) -> Float[Tensor, "words down across"]:
        if self.weights is None:
            raise UnsupportedError("this model has no attention: it sees the mean of the grid for every word")
        return self.weights


class Captioner:
    """A model with its words. `regard.load(RUN)` gives one."""

    def __init__(self, model: ShowAttendTell, words: Tokenizer, settings: Captioning):
        self.model, self.words, self.settings = model.eval(), words, settings

    @property
    def device(self) -> torch.device:
        return self.model.output.weight.device

    @property
    def attends(self) -> bool:
        """Whether there are weights to look at."""
        return not isinstance(self.model.attention.score, Constant)

    def decoding(self, **changes: Any) -> Decoding:
        """The search that the settings ask for, or another."""
        settings = self.settings
        usual = {
            "method": "greedy" if settings.beam == 1 else "beam",
            "beam": settings.beam,
            "alpha": settings.length_penalty,
            "max_length": settings.max_length + 1,
        }
        if "beam" in changes:
            usual["method"] = "greedy" if changes["beam"] == 1 else "beam"
        return Decoding(length_ratio=0.0, length_extra=settings.max_length + 1, **{**usual, **changes})

    def caption(self, images: Sequence[Image], options: Decoding | None = None) -> list[str]:
        """What there is to say of each image: a path, or an array (height, width) or (height, width, 3)."""
        if isinstance(images, str | Path):
            raise TypeError("caption takes many images: caption([image])")
        found = []
        for start in range(0, len(images), AT_ONCE):
            some = torch.stack([self.pictured(image) for image in images[start : start + AT_ONCE]])
            found += [self.text(best) for best in self.search(some, options)]
        return found

    def look(self, image: Image, options: Decoding | None = None) -> Looked:
        """What there is to say of an image, with the weights of its grid for each word."""
        picture = self.pictured(image)[None]
        (best,) = self.search(picture, options)
        return self.looked(picture, best, self.shown(image))

    def looked(self, picture: Tensor, best: Hypothesis, image: Tensor) -> Looked:
        """A caption that was found, with the weights of its words."""
        seen = None
        if self.attends and best.ids:
            weights = self.weights(picture, torch.tensor([[BOS, *best.ids]]))[0]
            seen = weights.unflatten(-1, self.grid(weights.shape[-1]))
        shares = [math.exp(told) for told in best.log_probs[: len(best.ids)]]
        words = [token.removeprefix("▁") for token in self.words.tokens(best.ids)]
        return Looked(words, seen, shares, image)

    def search(
        self, pictures: Float[Tensor, "rows *picture"], options: Decoding | None = None
    ) -> list[Hypothesis]:
        """The best caption of each picture, as the network is given them: see `pictured`."""
        options, found = options or self.decoding(), []
        for some in pictures.split(AT_ONCE):
            rows = torch.arange(len(some), device=self.device)[:, None]
            lengths = torch.ones(len(some), dtype=torch.long, device=self.device)
            found += [
                best[0] for best in decode(Before(self.model, some.to(self.device)), rows, lengths, options)
            ]
        return found

    @torch.no_grad()
    def weights(
        self, pictures: Float[Tensor, "rows *picture"], captions: Int[Tensor, "rows words"]
    ) -> Float[Tensor, "rows words-1 cells"]:
        """Where each word of captions looked that begin with BOS."""
        return self.model.looks(pictures.to(self.device), captions.to(self.device)).cpu()

    def text(self, best: Hypothesis) -> str:
        return together(self.words.decode(best.ids))

    def grid(self, cells: int) -> tuple[int, int]:
        """How many rows and columns of cells there are: pictures are square."""
        side = math.isqrt(cells)
        if side * side != cells:
            raise UsageError(f"{cells} cells are no square grid")
        return side, side

    def pictured(self, image: Image) -> Float[Tensor, "..."]:
        """An image as the network takes it; a grid of features, (cells, dim), for one that was trained on these."""
        if self.model.eyes is None:
            if isinstance(image, str | Path) or np.ndim(image) != 2:
                raise InputError(
                    "this model was trained on ready features and cannot see images; give it grids (cells,"
                    f" {self.model.grid_dim})"
                )
            return torch.as_tensor(image, dtype=torch.float32)
        return taken(image, self.settings.size, self.settings.color)

    def shown(self, image: Image) -> Float[Tensor, "height width 3"]:
        """The image as people see it; plain gray for a grid of features."""
        if self.model.eyes is None:
            return torch.full((56, 56, 3), 0.8)
        return shown(image)


@dataclass(frozen=True)
class Before:
    """A model before pictures, as a search wants it: its sources are the numbers of their rows."""

    model: ShowAttendTell
    pictures: Float[Tensor, "rows *picture"]

    def begin(self, source: Tensor, lengths: Tensor) -> Known:
        return Known(self.model.begin(self.pictures[source[:, 0]]))


@dataclass(frozen=True)
class Known:
    """Steps that never write a word that is not known."""

    steps: Steps

    def step(self, words: Tensor) -> Tensor:
        scores = self.steps.step(words)
        scores[:, UNK] = -torch.inf
        return scores

    def select(self, rows: Tensor) -> None:
        self.steps.select(rows)
