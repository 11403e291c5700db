"""Pictures with captions as batches that can be taken up again at any position."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from regard.data.batching import pad_rows
from regard.data.images import read_image
from regard.data.parallel import DataReport
from regard.data.scenes import CAPTION_WORDS, SceneGenerator
from regard.data.segmentation import separate_characters
from regard.data.sources import seeded_generator
from regard.data.text_files import read_lines
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import BOS_ID, EOS_ID
from regard.errors import DataError

POOL_SIZE = 20  # batches whose captions are sorted by length before they are cut apart


DataPosition = dict[str, Any]


@dataclass(frozen=True)
class CaptionBatch:
    """Pictures, and a caption of each as numbers: from BOS to EOS, filled up with PAD; lengths count these."""

    images: Float[Tensor, "rows *picture"]
    target: Int[Tensor, "rows target"]
    target_lengths: Int[Tensor, " rows"]

    @classmethod
    def from_captions(
        cls, images: Float[Tensor, "rows *picture"], captions: Sequence[Sequence[int]]
    ) -> CaptionBatch:
        """Encoded captions, without special tokens."""
        return cls(images, *pad_rows([[BOS_ID, *caption, EOS_ID] for caption in captions]))

    def __len__(self) -> int:
        return len(self.target)

    @property
    def num_tokens(self) -> int:
        """How many words there are to predict."""
        return int(self.target_lengths.sum()) - len(self)

    def to(self, device: torch.device | str) -> CaptionBatch:
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})

    def shard(self, rank: int, world_size: int) -> CaptionBatch:
        """The share of one of `world` processes: every world-th row, without the columns it does not need."""
        lengths = self.target_lengths[rank::world_size]
        longest = int(lengths.max()) if len(lengths) else 0
        return CaptionBatch(self.images[rank::world_size], self.target[rank::world_size, :longest], lengths)


@dataclass(frozen=True)
class ImageArray:
    """Many pictures of one size as small whole numbers; `some` gives those that are asked for as they are meant.

    Images are bytes times 1/255, (channels, height, width) each; a grid of features is (cells, dim).
    """

    values: Shaped[Tensor, "count *picture"]
    scale: float = 1 / 255

    def __len__(self) -> int:
        return len(self.values)

    def select(self, indices: Int[Tensor, " some"] | slice) -> Float[Tensor, "some *picture"]:
        return self.values[indices].float() * self.scale


@dataclass(frozen=True)
class CaptionedImages:
    """Pictures, all captions that are known of each, and where it is known, the boxes of what a caption names.

    A box is (left, top, right, bottom) in pixels; `names` are those of files.
    """

    images: ImageArray
    captions: Sequence[Sequence[str]]
    file_names: Sequence[str] = ()
    boxes: Int[Tensor, "count things 4"] | None = None

    def __len__(self) -> int:
        return len(self.captions)

    def head(self, count: int) -> CaptionedImages:
        """So many of them."""
        pictures = replace(self.images, values=self.images.values[:count])
        boxes = None if self.boxes is None else self.boxes[:count]
        return CaptionedImages(pictures, self.captions[:count], self.file_names[:count], boxes)

    def select(self, indices: Sequence[int]) -> CaptionedImages:
        """Those of these rows."""
        pictures = replace(self.images, values=self.images.values[list(indices)])
        captions, boxes = [self.captions[row] for row in indices], None
        if self.boxes is not None:
            boxes = self.boxes[list(indices)]
        return CaptionedImages(
            pictures, captions, [self.file_names[row] for row in indices if self.file_names], boxes
        )


class CaptionBatches:
    """Captioned pictures held in memory; an epoch is each caption once, in batches of captions of near length.

    A Han character or kana is a word of its own; see `regard.data.segmentation.apart`.

    >>> words = Tokenizer.train(["a dog runs", "a cat"], model_type="word", vocab_size=20)
    >>> two = CaptionedImages(ImageArray(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)), [["a dog runs", "a dog"], ["a cat"]])
    >>> album = CaptionBatches(two, words, batch_size=2)
    >>> batch, position = next(album.batches())
    >>> batch.images.shape, position["batch"], len(album)
    (torch.Size([1, 1, 8, 8]), 1, 3)
    """

    def __init__(
        self,
        captioned_images: CaptionedImages,
        tokenizer: Tokenizer,
        batch_size: int = 64,
        *,
        max_length: int = 50,
        seed: int = 0,
    ) -> None:
        self.images, self.batch_size, self._seed = captioned_images.images, batch_size, seed
        self.report = DataReport(max_length)
        self._captions: list[list[int]] = []
        of: list[int] = []
        for picture, captions in enumerate(captioned_images.captions):
            for caption in captions:
                numbers = tokenizer.encode(separate_characters(caption))
                what = "empty" if not numbers else "long" if len(numbers) > max_length else "used"
                self.report.count_pair(what, picture + 1)
                if what == "used":
                    self._captions.append(numbers)
                    self.report.count_tokens(numbers)
                    of.append(picture)
        if self.report.unknown == self.report.tokens:
            raise DataError(f"No caption can be used: {self.report}")
        self._image_indices, self._lengths = (
            torch.tensor(of),
            torch.tensor([len(one) for one in self._captions]),
        )
        told = repr((len(tokenizer), batch_size, max_length, seed, self._captions, of)).encode()
        self._data_fingerprint = f"{zlib.crc32(told):08x}"

    def __len__(self) -> int:
        return len(self._captions)

    def batches(self, position: DataPosition | None = None) -> Iterator[tuple[CaptionBatch, DataPosition]]:
        """Batches without end, each with the position after it; from a position, exactly what follows it."""
        if position is not None and position.get("data") != self._data_fingerprint:
            raise DataError(
                "the captions or their settings changed since this position was saved; put the old ones back, or"
                " begin a new run."
            )
        epoch, done = (0, 0) if position is None else (position["epoch"], position["batch"])
        while True:
            plan = self._plan_batches(epoch)
            for number in range(done, len(plan)):
                last = number + 1 == len(plan)
                place = {"epoch": epoch + 1, "batch": 0} if last else {"epoch": epoch, "batch": number + 1}
                yield self.make_batch(plan[number]), {**place, "data": self._data_fingerprint}
            epoch, done = epoch + 1, 0

    def iter_eval_batches(self) -> Iterator[CaptionBatch]:
        """Every caption once, as they were read: for evaluation."""
        for which in torch.arange(len(self)).split(self.batch_size):
            yield self.make_batch(which)

    def make_batch(self, indices: Int[Tensor, " some"]) -> CaptionBatch:
        """The captions of these numbers, each with its picture."""
        return CaptionBatch.from_captions(
            self.images.select(self._image_indices[indices]), [self._captions[i] for i in indices.tolist()]
        )

    def _plan_batches(self, epoch: int) -> list[Tensor]:
        """Chance puts captions into pools; within one, they are sorted and cut apart, and chance orders the parts."""
        random = seeded_generator(self._seed, epoch)
        order = torch.randperm(len(self), generator=random)
        parts = [
            part
            for pool in order.split(POOL_SIZE * self.batch_size)
            for part in pool[self._lengths[pool].argsort(stable=True)].split(self.batch_size)
        ]
        return [parts[place] for place in torch.randperm(len(parts), generator=random).tolist()]


class GeneratedCaptionBatches:
    """Scenes without end with their captions; each batch is a function of the seed and its number alone."""

    def __init__(
        self, scenes: SceneGenerator, tokenizer: Tokenizer, batch_size: int = 64, *, seed: int = 0
    ) -> None:
        self.scenes, self.batch_size, self.seed = scenes, batch_size, seed
        self._token_ids = torch.tensor([tokenizer.encode(word)[0] for word in CAPTION_WORDS])

    def batches(self, position: DataPosition | None = None) -> Iterator[tuple[CaptionBatch, DataPosition]]:
        number = 0 if position is None else int(position["batch"])
        while True:
            painted = self.scenes.sample(seeded_generator(self.seed, number), self.batch_size)
            number += 1
            said = torch.nn.functional.pad(self._token_ids[painted.encode_captions()], (1, 1), value=EOS_ID)
            said[:, 0] = BOS_ID
            lengths = torch.full((self.batch_size,), said.shape[1])
            yield CaptionBatch(painted.images[:, None], said, lengths), {"batch": number}


def read_captioned_images(
    files: Sequence[str | PathLike[str]], size: int, color: bool = True
) -> CaptionedImages:
    """The images and captions that .jsonl files name; paths are those from the folder of the file.

    A line is {"image": path, "captions": [text, ...]}, or "caption" with one text. An image that several lines name
    has the captions of all of them. Whatever is wrong is said with its file and line.
    """
    captions: dict[Path, list[str]] = {}
    where: dict[Path, str] = {}
    for file in map(Path, files):
        for number, line in enumerate(read_lines(file), 1):
            if not line.strip():
                continue
            place = f"{file}, line {number}"
            image, told = _parse_caption_record(place, line)
            path = file.parent / image
            captions.setdefault(path, []).extend(told)
            where.setdefault(path, place)
    pixels = []
    for path in captions:
        try:
            pixels.append(read_image(path, size, color))
        except DataError as error:
            raise DataError(f"{where[path]}: {error}") from None
    if not pixels:
        raise DataError(f"There are no captions in {' and '.join(map(str, files))}.")
    return CaptionedImages(
        ImageArray(torch.stack(pixels)), list(captions.values()), [str(path) for path in captions]
    )


def _parse_caption_record(location: str, line: str) -> tuple[str, list[str]]:
    """The image and the captions of one line."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{location}: not JSON ({error}); each line should be one object.") from None
    if not isinstance(record, dict) or not isinstance(image := record.get("image"), str):
        raise DataError(f'{location}: there is no "image", which should be the path of an image.')
    told = record.get("captions", record.get("caption"))
    told = [told] if isinstance(told, str) else told
    if (
        not isinstance(told, list)
        or not told
        or not all(isinstance(one, str) and one.strip() for one in told)
    ):
        raise DataError(f'{location}: "captions" should be a list of texts, and at least one.')
    return image, told
