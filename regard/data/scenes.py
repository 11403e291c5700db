"""Scenes made of real handwritten digits, and captions that name what is in them from left to right.

    large 3 above , small 7 below , small 1 above

Digits stand anywhere, in any size, and do not touch; between them lies clutter, which is pieces of other digits. A
word for the size and one for the place go with each, so that who writes a caption has to look at one after another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from regard.data.digits import Digits
from regard.errors import UsageError

SIZES, PLACES, BETWEEN = ("small", "large"), ("above", "below"), ","
WORDS = (*SIZES, *PLACES, BETWEEN, *map(str, range(10)))
EACH = 4  # words of a digit, with the comma behind it


@dataclass(frozen=True)
class Painted:
    """Scenes with all that is known of them; digits from left to right.

    A box is (left, top, right, bottom) in pixels, the last two just outside of it.
    """

    images: Float[Tensor, "rows size size"]
    labels: Int[Tensor, "rows digits"]
    boxes: Int[Tensor, "rows digits 4"]
    large: Bool[Tensor, "rows digits"]

    def __len__(self) -> int:
        return len(self.images)

    @property
    def below(self) -> Bool[Tensor, "rows digits"]:
        """Which digits have their middle below the middle of the scene."""
        return self.boxes[..., 1] + self.boxes[..., 3] > self.images.shape[-1]

    def captions(self) -> Int[Tensor, "rows words"]:
        """What there is to say, as places in `WORDS`."""
        size, place = self.large.long(), len(SIZES) + self.below.long()
        digit = WORDS.index("0") + self.labels
        comma = torch.full_like(digit, WORDS.index(BETWEEN))
        return torch.stack((size, digit, place, comma), -1).flatten(1)[:, :-1]

    def texts(self) -> list[str]:
        return [" ".join(WORDS[word] for word in row) for row in self.captions().tolist()]


@dataclass(frozen=True)
class Scenes:
    """Scenes by chance: `make` paints as many as one asks for, all at once.

    >>> random = torch.Generator().manual_seed(0)
    >>> digits = Digits(torch.rand(5, 8, 8), torch.arange(5))
    >>> painted = Scenes(digits).make(random, 2)
    >>> painted.images.shape, painted.texts()[0]
    (torch.Size([2, 64, 64]), 'small 2 above , small 0 below , large 1 above')
    """

    digits: Digits
    size: int = 64
    sides: tuple[int, int] = (8, 16)  # of a digit, in pixels
    count: int = 3
    clutter: int = 8

    def __post_init__(self) -> None:
        least, most = self.sides
        if not 2 <= least < most - 1 or self.count * most > self.size:
            raise UsageError(
                f"{self.count} digits of {least} to {most} pixels have no room in a scene of {self.size};"
                " take fewer, smaller or a larger scene"
            )

    @property
    def clear(self) -> int:
        """Pixels by which middles differ, so that left and right, above and below are beyond doubt."""
        return max(1, self.size // 16)

    def make(self, random: Generator, rows: int, which: Int[Tensor, "rows digits"] | None = None) -> Painted:
        """So many scenes; of any digits, or of those whose numbers are given, from left to right."""
        side, left, top = self._placed(random, rows)
        order = (2 * left + side).argsort(1)
        side, left, top = (told.gather(1, order) for told in (side, left, top))
        if which is None:
            which = torch.randint(len(self.digits), (rows, self.count), generator=random)
        down, across = (self._spread(start, side) for start in (top, left))
        digits = _painted(down, self.digits.images[which], across)
        free = 1 - _painted(down.sum(-1, keepdim=True), None, across.sum(-1, keepdim=True)).clamp(max=1)
        images = digits + free * self._clutter(random, rows)
        boxes = torch.stack((left, top, left + side, top + side), -1)
        return Painted(images.clamp(0, 1), self.digits.labels[which], boxes, 2 * side > sum(self.sides))

    def _placed(self, random: Generator, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Side, left and top of each digit: drawn again until nothing is in doubt."""
        drawn = self._drawn(random, rows)
        while len(doubtful := self._doubtful(*drawn).nonzero().squeeze(1)):
            for kept, new in zip(drawn, self._drawn(random, len(doubtful)), strict=True):
                kept[doubtful] = new
        return drawn

    def _drawn(self, random: Generator, rows: int) -> Place:
        least, most = self.sides
        side = torch.randint(least, most, (rows, self.count), generator=random)
        side = side + (2 * side >= least + most)  # neither small nor large is left out
        left, top = (torch.rand(2, rows, self.count, generator=random) * (self.size + 1 - side)).long()
        return Place(side, left, top)

    def _doubtful(self, side: Tensor, left: Tensor, top: Tensor) -> Bool[Tensor, " rows"]:
        x, y = 2 * left + side, 2 * top + side  # twice the middles
        apart = side[:, :, None] + side[:, None] + 2  # twice, and a pixel between them
        across, down = ((middle[:, :, None] - middle[:, None]).abs() for middle in (x, y))
        near = (across < apart) & (down < apart) | (across < 2 * self.clear)
        other = ~torch.eye(self.count, dtype=torch.bool)
        middling = (y - self.size).abs() < 2 * self.clear
        return (near & other).flatten(1).any(1) | middling.any(1)

    def _clutter(self, random: Generator, rows: int) -> Float[Tensor, "rows size size"]:
        """Pieces of half a side, cut out of digits, anywhere."""
        least, most = (side // 2 for side in self.sides)
        side = torch.randint(least, most + 1, (rows, self.clutter), generator=random)
        left, top = (torch.rand(2, rows, self.clutter, generator=random) * (self.size + 1 - side)).long()
        which = torch.randint(len(self.digits), (rows, self.clutter), generator=random)
        half = self.digits.side // 2
        cuts = torch.randint(self.digits.side - half + 1, (2, rows, self.clutter), generator=random)
        down, across = (
            self._spread(start, side, cut, half) for start, cut in zip((top, left), cuts, strict=True)
        )
        return _painted(down, self.digits.images[which], across).clamp(max=1)

    def _spread(
        self, start: Tensor, side: Tensor, cut: Tensor | int = 0, length: int | None = None
    ) -> Float[Tensor, "rows things size source"]:
        """How much each pixel of a scene takes of each pixel of a source, along one axis.

        `length` pixels of the source from `cut` on become `side` pixels from `start` on, by triangles as wide as
        a pixel of the coarser of both.
        """
        length = self.digits.side if length is None else length
        start, side = start[..., None], side[..., None]
        cut = cut[..., None] if isinstance(cut, Tensor) else cut
        pixel = torch.arange(self.size) - start
        ratio = length / side
        place = cut + ((pixel + 0.5) * ratio - 0.5).clamp(0, length - 1)
        far = (place[..., None] - torch.arange(self.digits.side)).abs() / ratio.clamp(min=1)[..., None]
        taken = (1 - far).clamp(min=0)
        inside = (pixel >= 0) & (pixel < side)
        return taken / taken.sum(-1, keepdim=True) * inside[..., None]


class Place(NamedTuple):
    """Where digits stand."""

    side: Int[Tensor, "rows digits"]
    left: Int[Tensor, "rows digits"]
    top: Int[Tensor, "rows digits"]


def _painted(
    down: Float[Tensor, "rows things size source"],
    by: Float[Tensor, "rows things source source"] | None,
    across: Float[Tensor, "rows things size source"],
) -> Float[Tensor, "rows size size"]:
    """The sum of all things, each spread over the scene along both axes."""
    rows = down if by is None else down @ by
    return rows.transpose(1, 2).flatten(2) @ across.transpose(1, 2).flatten(2).mT
