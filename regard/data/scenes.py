"""Generated scenes of handwritten digits, with captions that name the digits from left to right.

    large 3 above , small 7 below , small 1 above

Digits have any position and size, and do not touch; between them are distractors, pieces of other digits. Each digit
has a word for its size and one for its position, so that a model has to attend to one digit after another.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from regard.data.images import Digits
from regard.data.sources import BatchWithLabels, TensorRows
from regard.errors import UsageError

__all__ = ["CAPTION_WORDS", "PLACES", "SIZES", "WORDS_PER_DIGIT", "ImageBatch", "RenderedScenes", "SceneGenerator"]

SIZES, PLACES, SEPARATOR = ("small", "large"), ("above", "below"), ","
CAPTION_WORDS = (*SIZES, *PLACES, SEPARATOR, *map(str, range(10)))
WORDS_PER_DIGIT = 4  # with the comma after it
PerDigit = Int[Tensor, "count digits"]
AxisWeights = Float[Tensor, "count things size source"]
Placement = tuple[Tensor, Tensor, Tensor]  # side, left edge and top edge of each digit (count, digits), in pixels


@dataclass(frozen=True)
class RenderedScenes(TensorRows):
    """Images of scenes with their contents; digits are in order from left to right.

    Args:
        images: the images, from 0 to 1.
        labels: the digits.
        boxes: (left, top, right, bottom) of each digit in pixels, the last two exclusive.
        is_large: whether a digit is large.

    Shape:
        images: (count, size, size), labels and is_large: (count, digits), boxes: (count, digits, 4).

    Example:
        >>> scenes = SceneGenerator(Digits(torch.rand(5, 8, 8), torch.arange(5))).sample(torch.Generator(), 2)
        >>> scenes.boxes.shape, len(scenes.head(1))
        (torch.Size([2, 3, 4]), 1)
    """

    images: Float[Tensor, "count size size"]
    labels: PerDigit
    boxes: Int[Tensor, "count digits 4"]
    is_large: Bool[Tensor, "count digits"]

    @property
    def horizontal_centers(self) -> PerDigit:
        """Twice the horizontal center of each digit, in pixels."""
        return self.boxes[..., 0] + self.boxes[..., 2]

    @property
    def is_below(self) -> Bool[Tensor, "count digits"]:
        """Whether the center of a digit is below the center of the scene."""
        return self.boxes[..., 1] + self.boxes[..., 3] > self.images.shape[-1]

    def encode_captions(self) -> Int[Tensor, "count words"]:
        """Return the caption of each scene as indices of `CAPTION_WORDS`.

        Returns:
            The captions.

        Shape:
            (count, 4 digits - 1).
        """
        size, place = self.is_large.long(), len(SIZES) + self.is_below.long()
        digit = CAPTION_WORDS.index("0") + self.labels
        comma = torch.full_like(digit, CAPTION_WORDS.index(SEPARATOR))
        return torch.stack((size, digit, place, comma), -1).flatten(1)[:, :-1]

    def format_captions(self) -> list[str]:
        """Return the caption of each scene as text.

        Returns:
            The captions.
        """
        return [" ".join(CAPTION_WORDS[word] for word in row) for row in self.encode_captions().tolist()]


@dataclass(frozen=True)
class SceneGenerator:
    """Generates random scenes, a whole batch at once.

    Args:
        digits: the images of digits that scenes are made of.
        size: the side of a scene in pixels.
        digit_sizes: the smallest and largest side of a digit in pixels.
        num_digits: digits of a scene.
        num_distractors: pieces of other digits in a scene.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> digits = Digits(torch.rand(5, 8, 8), torch.arange(5))
        >>> scenes = SceneGenerator(digits).sample(generator, 2)
        >>> scenes.images.shape, scenes.format_captions()[0]
        (torch.Size([2, 64, 64]), 'small 2 above , small 0 below , large 1 above')
    """

    digits: Digits
    size: int = 64
    digit_sizes: tuple[int, int] = (8, 16)
    num_digits: int = 3
    num_distractors: int = 8

    def __post_init__(self) -> None:
        smallest, largest = self.digit_sizes
        if not 2 <= smallest < largest - 1 or self.num_digits * largest > self.size:
            digits = f"{self.num_digits} digits of {smallest} to {largest} pixels"
            remedy = "choose fewer or smaller digits, or a larger scene"
            raise UsageError(f"{digits} do not fit into a scene of {self.size}; {remedy}")

    @property
    def min_separation(self) -> int:
        """The smallest distance of two centers in pixels, so that left, right, above and below are unambiguous."""
        return max(1, self.size // 16)

    def sample(self, generator: Generator, batch_size: int, digit_indices: PerDigit | None = None) -> RenderedScenes:
        """Generate scenes.

        Args:
            generator: the source of randomness.
            batch_size: the number of scenes.
            digit_indices: the digits of each scene from left to right, as indices of `digits`; random by default.

        Returns:
            The scenes.
        """
        side, left, top = self._sample_placement(generator, batch_size)
        order = (2 * left + side).argsort(1)
        side, left, top = (value.gather(1, order) for value in (side, left, top))
        if digit_indices is None:
            digit_indices = torch.randint(len(self.digits), (batch_size, self.num_digits), generator=generator)
        rows, columns = (self._resampling_weights(start, side) for start in (top, left))
        digits = _render(rows, self.digits.images[digit_indices], columns)
        free = 1 - _render(rows.sum(-1, keepdim=True), None, columns.sum(-1, keepdim=True)).clamp(max=1)
        images = digits + free * self._render_distractors(generator, batch_size)
        boxes = torch.stack((left, top, left + side, top + side), -1)
        is_large = 2 * side > sum(self.digit_sizes)
        return RenderedScenes(images.clamp(0, 1), self.digits.labels[digit_indices], boxes, is_large)

    def _sample_placement(self, generator: Generator, batch_size: int) -> Placement:
        """Draw the placement of each digit, again until no scene is ambiguous."""
        placement = self._draw_placement(generator, batch_size)
        while len(ambiguous := self._is_ambiguous(*placement).nonzero().squeeze(1)):
            for values, new in zip(placement, self._draw_placement(generator, len(ambiguous)), strict=True):
                values[ambiguous] = new
        return placement

    def _draw_placement(self, generator: Generator, batch_size: int) -> Placement:
        smallest, largest = self.digit_sizes
        side = torch.randint(smallest, largest, (batch_size, self.num_digits), generator=generator)
        side = side + (2 * side >= smallest + largest)  # skips the size that is neither small nor large
        left, top = (torch.rand(2, batch_size, self.num_digits, generator=generator) * (self.size + 1 - side)).long()
        return side, left, top

    def _is_ambiguous(self, side: Tensor, left: Tensor, top: Tensor) -> Bool[Tensor, " count"]:
        x, y = 2 * left + side, 2 * top + side  # twice the centers
        min_distance = side[:, :, None] + side[:, None] + 2  # twice the distance, with a pixel between the digits
        dx, dy = ((center[:, :, None] - center[:, None]).abs() for center in (x, y))
        is_near = (dx < min_distance) & (dy < min_distance) | (dx < 2 * self.min_separation)
        is_other = ~torch.eye(self.num_digits, dtype=torch.bool)
        is_central = (y - self.size).abs() < 2 * self.min_separation
        return (is_near & is_other).flatten(1).any(1) | is_central.any(1)

    def _render_distractors(self, generator: Generator, batch_size: int) -> Float[Tensor, "count size size"]:
        """Render pieces of half a side, cut out of digits, at random positions."""
        smallest, largest = (side // 2 for side in self.digit_sizes)
        shape = batch_size, self.num_distractors
        side = torch.randint(smallest, largest + 1, shape, generator=generator)
        left, top = (torch.rand(2, *shape, generator=generator) * (self.size + 1 - side)).long()
        indices = torch.randint(len(self.digits), shape, generator=generator)
        half = self.digits.side // 2
        cuts = torch.randint(self.digits.side - half + 1, (2, *shape), generator=generator)
        starts = zip((top, left), cuts, strict=True)
        rows, columns = (self._resampling_weights(start, side, cut, half) for start, cut in starts)
        return _render(rows, self.digits.images[indices], columns).clamp(max=1)

    def _resampling_weights(
        self, start: Tensor, side: Tensor, cut: Tensor | int = 0, length: int | None = None
    ) -> AxisWeights:
        """Return the weight of each source pixel in each pixel of a scene, along one axis.

        `length` source pixels from `cut` on become `side` pixels from `start` on, with a triangle filter as wide as a
        pixel of the coarser of both.
        """
        length = self.digits.side if length is None else length
        start, side = start[..., None], side[..., None]
        cut = cut[..., None] if isinstance(cut, Tensor) else cut
        pixel = torch.arange(self.size) - start
        ratio = length / side
        center = cut + ((pixel + 0.5) * ratio - 0.5).clamp(0, length - 1)
        distance = (center[..., None] - torch.arange(self.digits.side)).abs() / ratio.clamp(min=1)[..., None]
        weights = (1 - distance).clamp(min=0)
        inside = (pixel >= 0) & (pixel < side)
        return weights / weights.sum(-1, keepdim=True) * inside[..., None]


def _render(
    row_weights: AxisWeights, images: Float[Tensor, "count things source source"] | None, column_weights: AxisWeights
) -> Float[Tensor, "count size size"]:
    """Return the sum of all things, each resampled to the scene along both axes."""
    rows = row_weights if images is None else row_weights @ images
    return rows.transpose(1, 2).flatten(2) @ column_weights.transpose(1, 2).flatten(2).mT


@dataclass(frozen=True)
class ImageBatch(BatchWithLabels):
    """Images with one label each.

    Args:
        images: the images.
        labels: their classes.

    Shape:
        images: (batch, channels, height, width), labels: (batch,).

    Example:
        >>> scenes = SceneGenerator(Digits(torch.rand(5, 8, 8), torch.arange(5)), num_digits=1)
        >>> ImageBatch.from_scenes(scenes.sample(torch.Generator(), 3)).images.shape
        torch.Size([3, 1, 64, 64])
    """

    images: Float[Tensor, "batch channels height width"]
    labels: Int[Tensor, " batch"]

    @classmethod
    def from_scenes(cls, scenes: RenderedScenes) -> ImageBatch:
        """Convert scenes of one digit to a batch.

        Args:
            scenes: the scenes.

        Returns:
            The batch; labels are the digits.
        """
        return cls(scenes.images[:, None], scenes.labels[:, 0])
