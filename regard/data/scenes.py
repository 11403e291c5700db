"""Scenes made of real handwritten digits, and captions that name what is in them from left to right.

    large 3 above , small 7 below , small 1 above

Digits stand anywhere, in any size, and do not touch; between them lies clutter, which is pieces of other digits. A
word for the size and one for the place go with each, so that who writes a caption has to look at one after another.

Images with one label each as batches that can be taken up again: scenes of one digit among clutter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from regard.data.images import Digits
from regard.data.sources import seeded_generator
from regard.errors import UsageError

SIZES, PLACES, SEPARATOR = ("small", "large"), ("above", "below"), ","


CAPTION_WORDS = (*SIZES, *PLACES, SEPARATOR, *map(str, range(10)))


WORDS_PER_DIGIT = 4  # words of a digit, with the comma behind it


@dataclass(frozen=True)
class RenderedScenes:
    """Scenes with all that is known of them; digits from left to right.

    A box is (left, top, right, bottom) in pixels, the last two just outside of it.
    """

    images: Float[Tensor, "rows size size"]
    labels: Int[Tensor, "rows digits"]
    boxes: Int[Tensor, "rows digits 4"]
    is_large: Bool[Tensor, "rows digits"]

    def __len__(self) -> int:
        return len(self.images)

    @property
    def is_below(self) -> Bool[Tensor, "rows digits"]:
        """Which digits have their middle below the middle of the scene."""
        return self.boxes[..., 1] + self.boxes[..., 3] > self.images.shape[-1]

    def encode_captions(self) -> Int[Tensor, "rows words"]:
        """What there is to say, as places in `WORDS`."""
        size, place = self.is_large.long(), len(SIZES) + self.is_below.long()
        digit = CAPTION_WORDS.index("0") + self.labels
        comma = torch.full_like(digit, CAPTION_WORDS.index(SEPARATOR))
        return torch.stack((size, digit, place, comma), -1).flatten(1)[:, :-1]

    def format_captions(self) -> list[str]:
        return [" ".join(CAPTION_WORDS[word] for word in row) for row in self.encode_captions().tolist()]


@dataclass(frozen=True)
class SceneGenerator:
    """Scenes by chance: `make` paints as many as one asks for, all at once.

    >>> random = torch.Generator().manual_seed(0)
    >>> digits = Digits(torch.rand(5, 8, 8), torch.arange(5))
    >>> painted = SceneGenerator(digits).sample(random, 2)
    >>> painted.images.shape, painted.format_captions()[0]
    (torch.Size([2, 64, 64]), 'small 2 above , small 0 below , large 1 above')
    """

    digits: Digits
    size: int = 64
    digit_sizes: tuple[int, int] = (8, 16)  # of a digit, in pixels
    num_digits: int = 3
    num_distractors: int = 8

    def __post_init__(self) -> None:
        least, most = self.digit_sizes
        if not 2 <= least < most - 1 or self.num_digits * most > self.size:
            raise UsageError(
                f"{self.num_digits} digits of {least} to {most} pixels have no room in a scene of {self.size};"
                " take fewer, smaller or a larger scene"
            )

    @property
    def min_separation(self) -> int:
        """Pixels by which middles differ, so that left and right, above and below are beyond doubt."""
        return max(1, self.size // 16)

    def sample(
        self, generator: Generator, batch_size: int, digit_indices: Int[Tensor, "rows digits"] | None = None
    ) -> RenderedScenes:
        """So many scenes; of any digits, or of those whose numbers are given, from left to right."""
        side, left, top = self._sample_placement(generator, batch_size)
        order = (2 * left + side).argsort(1)
        side, left, top = (told.gather(1, order) for told in (side, left, top))
        if digit_indices is None:
            digit_indices = torch.randint(
                len(self.digits), (batch_size, self.num_digits), generator=generator
            )
        down, across = (self._resampling_weights(start, side) for start in (top, left))
        digits = _render(down, self.digits.images[digit_indices], across)
        free = 1 - _render(down.sum(-1, keepdim=True), None, across.sum(-1, keepdim=True)).clamp(max=1)
        images = digits + free * self._render_distractors(generator, batch_size)
        boxes = torch.stack((left, top, left + side, top + side), -1)
        return RenderedScenes(
            images.clamp(0, 1), self.digits.labels[digit_indices], boxes, 2 * side > sum(self.digit_sizes)
        )

    def _sample_placement(self, generator: Generator, batch_size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Side, left and top of each digit: drawn again until nothing is in doubt."""
        drawn = self._draw_placement(generator, batch_size)
        while len(doubtful := self._is_ambiguous(*drawn).nonzero().squeeze(1)):
            for kept, new in zip(drawn, self._draw_placement(generator, len(doubtful)), strict=True):
                kept[doubtful] = new
        return drawn

    def _draw_placement(self, generator: Generator, batch_size: int) -> ScenePlacement:
        least, most = self.digit_sizes
        side = torch.randint(least, most, (batch_size, self.num_digits), generator=generator)
        side = side + (2 * side >= least + most)  # neither small nor large is left out
        left, top = (
            torch.rand(2, batch_size, self.num_digits, generator=generator) * (self.size + 1 - side)
        ).long()
        return ScenePlacement(side, left, top)

    def _is_ambiguous(self, side: Tensor, left: Tensor, top: Tensor) -> Bool[Tensor, " rows"]:
        x, y = 2 * left + side, 2 * top + side  # twice the middles
        apart = side[:, :, None] + side[:, None] + 2  # twice, and a pixel between them
        across, down = ((middle[:, :, None] - middle[:, None]).abs() for middle in (x, y))
        near = (across < apart) & (down < apart) | (across < 2 * self.min_separation)
        other = ~torch.eye(self.num_digits, dtype=torch.bool)
        middling = (y - self.size).abs() < 2 * self.min_separation
        return (near & other).flatten(1).any(1) | middling.any(1)

    def _render_distractors(self, generator: Generator, batch_size: int) -> Float[Tensor, "rows size size"]:
        """Pieces of half a side, cut out of digits, anywhere."""
        least, most = (side // 2 for side in self.digit_sizes)
        side = torch.randint(least, most + 1, (batch_size, self.num_distractors), generator=generator)
        left, top = (
            torch.rand(2, batch_size, self.num_distractors, generator=generator) * (self.size + 1 - side)
        ).long()
        which = torch.randint(len(self.digits), (batch_size, self.num_distractors), generator=generator)
        half = self.digits.side // 2
        cuts = torch.randint(
            self.digits.side - half + 1, (2, batch_size, self.num_distractors), generator=generator
        )
        down, across = (
            self._resampling_weights(start, side, cut, half)
            for start, cut in zip((top, left), cuts, strict=True)
        )
        return _render(down, self.digits.images[which], across).clamp(max=1)

    def _resampling_weights(
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


class ScenePlacement(NamedTuple):
    """Where digits stand."""

    side: Int[Tensor, "rows digits"]
    left: Int[Tensor, "rows digits"]
    top: Int[Tensor, "rows digits"]


def _render(
    row_weights: Float[Tensor, "rows things size source"],
    images: Float[Tensor, "rows things source source"] | None,
    column_weights: Float[Tensor, "rows things size source"],
) -> Float[Tensor, "rows size size"]:
    """The sum of all things, each spread over the scene along both axes."""
    rows = row_weights if images is None else row_weights @ images
    return rows.transpose(1, 2).flatten(2) @ column_weights.transpose(1, 2).flatten(2).mT


@dataclass(frozen=True)
class ImageBatch:
    """Images, and which class each belongs to."""

    images: Float[Tensor, "rows channels height width"]
    labels: Int[Tensor, " rows"]

    @classmethod
    def from_scenes(cls, scenes: RenderedScenes) -> ImageBatch:
        """Scenes of one digit."""
        return cls(scenes.images[:, None], scenes.labels[:, 0])

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_tokens(self) -> int:
        """How many images there are."""
        return len(self)

    @property
    def model_inputs(self) -> tuple[Tensor, ...]:
        """What a model sees."""
        return (self.images,)

    @property
    def targets(self) -> Int[Tensor, " rows"]:
        """What it should say."""
        return self.labels

    def to(self, device: torch.device | str) -> ImageBatch:
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})

    def shard(self, rank: int, world_size: int) -> ImageBatch:
        """The share of one of `world` processes: every world-th row."""
        return replace(self, **{name: value[rank::world_size] for name, value in vars(self).items()})


class GeneratedImageBatches:
    """Scenes of one digit without end; each batch is a function of the seed and its number alone.

    >>> from regard.data.images import Digits
    >>> scenes = SceneGenerator(Digits(torch.rand(5, 8, 8), torch.arange(5)), num_digits=1)
    >>> batch, position = next(GeneratedImageBatches(scenes, batch_size=3).batches())
    >>> batch.images.shape, batch.labels.shape, position
    (torch.Size([3, 1, 64, 64]), torch.Size([3]), {'batch': 1})
    """

    def __init__(self, scenes: SceneGenerator, batch_size: int = 32, *, seed: int = 0):
        self.scenes, self.batch_size, self.seed = scenes, batch_size, seed

    def batches(self, position: dict[str, Any] | None = None) -> Iterator[tuple[ImageBatch, dict[str, Any]]]:
        number = 0 if position is None else int(position["batch"])
        while True:
            painted = self.scenes.sample(seeded_generator(self.seed, number), self.batch_size)
            number += 1
            yield ImageBatch.from_scenes(painted), {"batch": number}


def select_first_scenes(scenes: RenderedScenes, count: int) -> RenderedScenes:
    """So many scenes of many."""
    return RenderedScenes(*(told[:count] for told in vars(scenes).values()))
