"""What a network said of an image, how surely, and where it looked before: to be drawn or told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from regard.errors import UnsupportedError

if TYPE_CHECKING:
    from regard.viewing.pictures import Picture

SURE = 3  # answers that are told with their probabilities


@dataclass(frozen=True)
class Sight:
    """An answer, the probability of each that is possible, and the weights of each look; None without attention.

    `names` are what the looks are called, `image` is what was seen, as (height, width, 3).
    """

    said: str
    probabilities: dict[str, float]
    names: list[str]
    weights: Float[Tensor, "looks down across"] | None
    image: Float[Tensor, "height width 3"]
    question: str | None = None

    @property
    def title(self) -> str:
        """What was asked, what was said, and how surely."""
        said = f"{self.said} ({self.probabilities[self.said]:.0%})"
        return said if self.question is None else f"{self.question}? {said}"

    def picture(self, title: str | None = None, smooth: bool = True) -> Picture:
        """The image, and for each look the same image, lit where it fell."""
        from regard.viewing import pictures

        return pictures.overlay(
            self.image, self._seen(), self.names, smooth=smooth, title=self.title if title is None else title
        )

    def drawn(self) -> str:
        """For the terminal: the likeliest answers, and the cell of each look with the largest weight."""
        likely = list(self.probabilities.items())[:SURE]
        lines = [f"{name:<14} {share:7.1%}" for name, share in likely]
        if self.weights is not None:
            lines.append("")
            lines += [_look(name, grid) for name, grid in zip(self.names, self.weights, strict=True)]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        asked = {} if self.question is None else {"question": self.question}
        weights = None if self.weights is None else self.weights.tolist()
        return {
            **asked,
            "said": self.said,
            "probabilities": self.probabilities,
            "looks": self.names,
            "weights": weights,
        }

    def _seen(self) -> Float[Tensor, "looks down across"]:
        if self.weights is None:
            raise UnsupportedError("this model has no attention: there is no look to draw")
        return self.weights


def _look(name: str, grid: Float[Tensor, "down across"]) -> str:
    row, column = divmod(int(grid.argmax()), grid.shape[1])
    return f"{name:<14} row {row}, column {column}: {float(grid.max()):.2f}"


def likeliest(scores: Float[Tensor, " answers"], names: tuple[str, ...]) -> dict[str, float]:
    """The probability of each answer, the largest first.

    >>> import torch
    >>> likeliest(torch.tensor([0.0, 9.0]), ("no", "yes"))
    {'yes': 0.9998766183853149, 'no': 0.00012339458044152707}
    """
    shares = scores.float().softmax(-1)
    return {names[place]: float(shares[place]) for place in shares.argsort(descending=True).tolist()}
