"""Pictures with captions as batches that can be taken up again at any position."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from regard.data.algorithms import chance
from regard.data.batch import BOS, EOS, filled
from regard.data.report import Report
from regard.data.scenes import WORDS, Scenes
from regard.data.tokenizer import Tokenizer
from regard.data.words import apart
from regard.errors import DataError

POOL = 20  # batches whose captions are sorted by length before they are cut apart
Position = dict[str, Any]


@dataclass(frozen=True)
class CaptionBatch:
    """Pictures, and a caption of each as numbers: from BOS to EOS, filled up with PAD; lengths count these."""

    pictures: Float[Tensor, "rows *picture"]
    target: Int[Tensor, "rows target"]
    target_lengths: Int[Tensor, " rows"]

    @classmethod
    def of(cls, pictures: Float[Tensor, "rows *picture"], captions: Sequence[Sequence[int]]) -> CaptionBatch:
        """Encoded captions, without special tokens."""
        return cls(pictures, *filled([[BOS, *caption, EOS] for caption in captions]))

    def __len__(self) -> int:
        return len(self.target)

    @property
    def tokens(self) -> int:
        """How many words there are to predict."""
        return int(self.target_lengths.sum()) - len(self)

    def to(self, device: torch.device | str) -> CaptionBatch:
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})

    def part(self, rank: int, world: int) -> CaptionBatch:
        """The share of one of `world` processes: every world-th row, without the columns it does not need."""
        lengths = self.target_lengths[rank::world]
        longest = int(lengths.max()) if len(lengths) else 0
        return CaptionBatch(self.pictures[rank::world], self.target[rank::world, :longest], lengths)


@dataclass(frozen=True)
class Pictures:
    """Many pictures of one size as small whole numbers; `some` gives those that are asked for as they are meant.

    Images are bytes times 1/255, (channels, height, width) each; a grid of features is (cells, dim).
    """

    numbers: Shaped[Tensor, "count *picture"]
    step: float = 1 / 255

    def __len__(self) -> int:
        return len(self.numbers)

    def some(self, which: Int[Tensor, " some"] | slice) -> Float[Tensor, "some *picture"]:
        return self.numbers[which].float() * self.step


@dataclass(frozen=True)
class Captioned:
    """Pictures, all captions that are known of each, and where it is known, the boxes of what a caption names.

    A box is (left, top, right, bottom) in pixels; `names` are those of files.
    """

    pictures: Pictures
    captions: Sequence[Sequence[str]]
    names: Sequence[str] = ()
    boxes: Int[Tensor, "count things 4"] | None = None

    def __len__(self) -> int:
        return len(self.captions)

    def first(self, count: int) -> Captioned:
        """So many of them."""
        pictures = replace(self.pictures, numbers=self.pictures.numbers[:count])
        boxes = None if self.boxes is None else self.boxes[:count]
        return Captioned(pictures, self.captions[:count], self.names[:count], boxes)

    def some(self, rows: Sequence[int]) -> Captioned:
        """Those of these rows."""
        pictures = replace(self.pictures, numbers=self.pictures.numbers[list(rows)])
        captions, boxes = [self.captions[row] for row in rows], None
        if self.boxes is not None:
            boxes = self.boxes[list(rows)]
        return Captioned(pictures, captions, [self.names[row] for row in rows if self.names], boxes)


class Album:
    """Captioned pictures held in memory; an epoch is each caption once, in batches of captions of near length.

    A Han character or kana is a word of its own; see `regard.data.words.apart`.

    >>> words = Tokenizer.learn(["a dog runs", "a cat"], kind="word", size=20)
    >>> two = Captioned(Pictures(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)), [["a dog runs", "a dog"], ["a cat"]])
    >>> album = Album(two, words, rows=2)
    >>> batch, position = next(album.batches())
    >>> batch.pictures.shape, position["batch"], len(album)
    (torch.Size([1, 1, 8, 8]), 1, 3)
    """

    def __init__(
        self,
        captioned: Captioned,
        tokenizer: Tokenizer,
        rows: int = 64,
        *,
        max_length: int = 50,
        seed: int = 0,
    ) -> None:
        self.pictures, self.rows, self._seed = captioned.pictures, rows, seed
        self.report = Report(max_length)
        self._captions: list[list[int]] = []
        of: list[int] = []
        for picture, captions in enumerate(captioned.captions):
            for caption in captions:
                numbers = tokenizer.encode(apart(caption))
                what = "empty" if not numbers else "long" if len(numbers) > max_length else "used"
                self.report.note(what, picture + 1)
                if what == "used":
                    self._captions.append(numbers)
                    self.report.count(numbers)
                    of.append(picture)
        if self.report.unknown == self.report.tokens:
            raise DataError(f"No caption can be used: {self.report}")
        self._of, self._lengths = torch.tensor(of), torch.tensor([len(one) for one in self._captions])
        told = repr((len(tokenizer), rows, max_length, seed, self._captions, of)).encode()
        self._mark = f"{zlib.crc32(told):08x}"

    def __len__(self) -> int:
        return len(self._captions)

    def batches(self, position: Position | None = None) -> Iterator[tuple[CaptionBatch, Position]]:
        """Batches without end, each with the position after it; from a position, exactly what follows it."""
        if position is not None and position.get("data") != self._mark:
            raise DataError(
                "the captions or their settings changed since this position was saved; put the old ones back, or"
                " begin a new run."
            )
        epoch, done = (0, 0) if position is None else (position["epoch"], position["batch"])
        while True:
            plan = self._plan(epoch)
            for number in range(done, len(plan)):
                last = number + 1 == len(plan)
                place = {"epoch": epoch + 1, "batch": 0} if last else {"epoch": epoch, "batch": number + 1}
                yield self.batch(plan[number]), {**place, "data": self._mark}
            epoch, done = epoch + 1, 0

    def in_order(self) -> Iterator[CaptionBatch]:
        """Every caption once, as they were read: for evaluation."""
        for which in torch.arange(len(self)).split(self.rows):
            yield self.batch(which)

    def batch(self, which: Int[Tensor, " some"]) -> CaptionBatch:
        """The captions of these numbers, each with its picture."""
        return CaptionBatch.of(
            self.pictures.some(self._of[which]), [self._captions[i] for i in which.tolist()]
        )

    def _plan(self, epoch: int) -> list[Tensor]:
        """Chance puts captions into pools; within one, they are sorted and cut apart, and chance orders the parts."""
        random = chance(self._seed, epoch)
        order = torch.randperm(len(self), generator=random)
        parts = [
            part
            for pool in order.split(POOL * self.rows)
            for part in pool[self._lengths[pool].argsort(stable=True)].split(self.rows)
        ]
        return [parts[place] for place in torch.randperm(len(parts), generator=random).tolist()]


class Painting:
    """Scenes without end with their captions; each batch is a function of the seed and its number alone."""

    def __init__(self, scenes: Scenes, tokenizer: Tokenizer, rows: int = 64, *, seed: int = 0) -> None:
        self.scenes, self.rows, self.seed = scenes, rows, seed
        self._numbers = torch.tensor([tokenizer.encode(word)[0] for word in WORDS])

    def batches(self, position: Position | None = None) -> Iterator[tuple[CaptionBatch, Position]]:
        number = 0 if position is None else int(position["batch"])
        while True:
            painted = self.scenes.make(chance(self.seed, number), self.rows)
            number += 1
            said = torch.nn.functional.pad(self._numbers[painted.captions()], (1, 1), value=EOS)
            said[:, 0] = BOS
            lengths = torch.full((self.rows,), said.shape[1])
            yield CaptionBatch(painted.images[:, None], said, lengths), {"batch": number}
