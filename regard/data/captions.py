"""Captioned images: arrays of images, batches, and lists of image files with captions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from regard.data import parallel, segmentation, text_files
from regard.data.images import read_image
from regard.data.scenes import CAPTION_WORDS, RenderedScenes
from regard.data.sources import ResumableBatches, TensorBatch, TensorRows, data_fingerprint, seeded_generator
from regard.data.tokenizer import Tokenizer, pad_rows
from regard.data.vocabulary import BOS_ID, EOS_ID
from regard.errors import DataError

__all__ = [
    "CaptionBatch", "CaptionBatches", "CaptionedImages", "ImageArray", "SceneCaptionCollator",
    "read_captioned_images",
]  # fmt: skip

POOL_SIZE = 20  # batches whose captions are sorted by length before they are split


@dataclass(frozen=True)
class CaptionBatch(TensorBatch):
    """Images with one caption each, from `BOS_ID` to `EOS_ID`, padded with `PAD_ID`; lengths count these.

    Args:
        images: images, or grids of features.
        target: the captions.
        target_lengths: their lengths.

    Shape:
        images: (batch, channels, height, width) or (batch, cells, dim); target: (batch, tgt_len); target_lengths:
        (batch,).

    Example:
        >>> CaptionBatch.from_captions(torch.rand(2, 1, 8, 8), [[7, 8], [9]]).target.tolist()
        [[2, 7, 8, 3], [2, 9, 3, 0]]
    """

    images: Float[Tensor, "batch *image"]
    target: Int[Tensor, "batch tgt_len"]
    target_lengths: Int[Tensor, " batch"]
    padded: ClassVar[Mapping[str, str]] = {"target": "target_lengths"}

    @classmethod
    def from_captions(cls, images: Float[Tensor, "batch *image"], captions: Sequence[Sequence[int]]) -> CaptionBatch:
        """Collate images and encoded captions.

        Args:
            images: the images.
            captions: the token ids of each caption, without special tokens.

        Returns:
            The batch.
        """
        return cls(images, *pad_rows([[BOS_ID, *caption, EOS_ID] for caption in captions]))


@dataclass(frozen=True)
class ImageArray(TensorRows):
    """Images of one size, stored as small integers.

    Args:
        values: the images, such as bytes of shape (channels, height, width), or grids of features (cells, dim).
        scale: the factor that converts values to floats.

    Example:
        >>> ImageArray(torch.full((2, 1, 4, 4), 255, dtype=torch.uint8)).select(slice(1)).mean().item()
        1.0
    """

    values: Shaped[Tensor, "count *image"]
    scale: float = 1 / 255

    def select(self, indices: Int[Tensor, " selected"] | slice) -> Float[Tensor, "selected *image"]:
        """Return some images as floats.

        Args:
            indices: their indices.

        Returns:
            The images.
        """
        return self.values[indices].float() * self.scale


@dataclass(frozen=True)
class CaptionedImages(TensorRows):
    """Images with all their captions, and the boxes of the things that captions name, where they are known.

    Args:
        images: the images.
        captions: the captions of each image.
        file_names: the file of each image.
        boxes: (left, top, right, bottom) of each thing, in pixels.
        baselines: a caption of each image that a model has to surpass.

    Example:
        >>> captioned = CaptionedImages(ImageArray(torch.zeros(2, 1, 8, 8)), [["a dog"], ["a cat", "the cat"]])
        >>> captioned.head(1).captions
        [['a dog']]
    """

    images: ImageArray
    captions: Sequence[Sequence[str]]
    file_names: Sequence[str] = ()
    boxes: Int[Tensor, "count things 4"] | None = None
    baselines: Sequence[str] = ()

    def select(self, indices: Sequence[int]) -> CaptionedImages:
        """Return some images.

        Args:
            indices: their indices, at least one.

        Returns:
            The images with their captions.
        """
        return self.concatenate([self[index] for index in indices])


class CaptionBatches(ResumableBatches[CaptionBatch]):
    """Captioned images in memory; an epoch is each caption once, in batches of captions of similar length.

    A Han character or kana is a word of its own; see `regard.data.segmentation.separate_characters`.

    Args:
        data: the images and captions.
        tokenizer: the tokenizer of the captions.
        batch_size: captions per batch.
        max_length: the limit on the tokens of a caption; longer ones are left out and counted.
        seed: seed of the order.

    Raises:
        DataError: no caption can be used.

    Example:
        >>> tokenizer = Tokenizer.train(["a dog runs", "a cat"], model_type="word", vocab_size=20)
        >>> images = ImageArray(torch.zeros(2, 1, 8, 8, dtype=torch.uint8))
        >>> captioned = CaptionedImages(images, [["a dog runs", "a dog"], ["a cat"]])
        >>> data = CaptionBatches(captioned, tokenizer, batch_size=2)
        >>> batch, position = next(data.batches())
        >>> batch.images.shape, position["batch"], len(data)
        (torch.Size([1, 1, 8, 8]), 1, 3)
    """

    def __init__(
        self, data: CaptionedImages, tokenizer: Tokenizer, batch_size: int = 64, *, max_length: int = 50, seed: int = 0
    ) -> None:
        self.name, self.report = "the captions", parallel.DataReport(max_length)
        self.images, self.batch_size, self._seed = data.images, batch_size, seed
        captions, image_indices = [], []
        for image, texts in enumerate(data.captions):
            for ids in map(tokenizer.encode, map(segmentation.separate_characters, texts)):
                outcome = "empty" if not ids else "dropped" if len(ids) > max_length else "used"
                self.report.count_pair(outcome, image + 1)
                if outcome == "used":
                    captions.append(ids)
                    self.report.count_tokens(ids)
                    image_indices.append(image)
        if self.report.unknown == self.report.tokens:
            raise DataError(f"No caption can be used: {self.report}")
        self._captions, self._image_indices = captions, torch.tensor(image_indices)
        self._lengths = torch.tensor([len(ids) for ids in self._captions])
        options = {"vocab_size": len(tokenizer), "batch_size": batch_size, "max_length": max_length, "seed": seed}
        examples = {"captions": self._captions, "image_indices": self._image_indices}
        self.fingerprint = data_fingerprint(options | examples)

    def __len__(self) -> int:
        return len(self._captions)

    def iter_eval_batches(self) -> Iterator[CaptionBatch]:
        """Iterate over every caption once, in the order of the data, for evaluation.

        Returns:
            An iterator over batches.
        """
        return map(self.make_batch, torch.arange(len(self)).split(self.batch_size))

    def make_batch(self, indices: Int[Tensor, " batch"]) -> CaptionBatch:
        """Collate the captions of these indices with their images."""
        images = self.images.select(self._image_indices[indices])
        return CaptionBatch.from_captions(images, [self._captions[i] for i in indices.tolist()])

    def _plan_batches(self, epoch: int) -> list[Tensor]:
        """Shuffle captions into pools, sort each pool by length, split it into batches, and shuffle all batches."""
        generator = seeded_generator(self._seed, epoch)
        order = torch.randperm(len(self), generator=generator)
        pools = (pool[self._lengths[pool].argsort(stable=True)] for pool in order.split(POOL_SIZE * self.batch_size))
        batches = [batch for pool in pools for batch in pool.split(self.batch_size)]
        return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


class SceneCaptionCollator:
    """Converts rendered scenes to batches of images and captions, for `GeneratedBatches`.

    Args:
        tokenizer: a tokenizer of model type `word` that has the words of captions.

    Example:
        >>> from regard.data.images import Digits
        >>> from regard.data.scenes import SceneGenerator
        >>> from regard.data.sources import GeneratedBatches
        >>> tokenizer = Tokenizer.train([" ".join(CAPTION_WORDS)], model_type="word", vocab_size=30)
        >>> scenes = SceneGenerator(Digits(torch.rand(5, 8, 8), torch.arange(5)))
        >>> source = GeneratedBatches(scenes.sample, SceneCaptionCollator(tokenizer), batch_size=2)
        >>> next(source.batches())[0].target.shape
        torch.Size([2, 13])
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._token_ids = torch.tensor([tokenizer.encode(word)[0] for word in CAPTION_WORDS])

    def __call__(self, scenes: RenderedScenes) -> CaptionBatch:
        target = torch.nn.functional.pad(self._token_ids[scenes.encode_captions()], (1, 1), value=EOS_ID)
        target[:, 0] = BOS_ID
        return CaptionBatch(scenes.images[:, None], target, torch.full((len(scenes),), target.shape[1]))


def read_captioned_images(files: text_files.Paths, size: int, color: bool = True) -> CaptionedImages:
    """Read the images and captions that .jsonl files list.

    A line is {"image": path, "captions": [text, ...]}, or has "caption" with one text. Paths are relative to the folder
    of the file. An image on several lines has the captions of all of them.

    Args:
        files: the .jsonl files.
        size: images are resized to squares of this many pixels.
        color: whether to keep colors; otherwise images are gray.

    Returns:
        The images and captions.

    Raises:
        DataError: a line or an image cannot be read; the message names file and line.

    Example:
        >>> read_captioned_images(["train.jsonl"], size=64)  # doctest: +SKIP
    """
    captions: dict[Path, list[str]] = {}
    locations: dict[Path, str] = {}
    for file in map(Path, files):
        for line_number, line in enumerate(text_files.read_lines(file), 1):
            if line.strip():
                image, texts = _parse_caption_record(file, line_number, line)
                captions.setdefault(file.parent / image, []).extend(texts)
                locations.setdefault(file.parent / image, f"{file}, line {line_number}")
    if not captions:
        raise DataError(f"There are no captions in {' and '.join(map(str, files))}.")
    pixels = []
    for path, location in locations.items():
        try:
            pixels.append(read_image(path, size, color))
        except DataError as error:
            raise DataError(f"{location}: {error}") from None
    return CaptionedImages(ImageArray(torch.stack(pixels)), list(captions.values()), list(map(str, captions)))


def _parse_caption_record(path: Path, line_number: int, line: str) -> tuple[str, list[str]]:
    record = text_files.parse_json(path, line_number, line)
    if not isinstance(record, dict) or not isinstance(image := record.get("image"), str):
        raise text_files.line_error(path, line_number, 'there is no "image", which must be the path of an image')
    captions: Any = record.get("captions", record.get("caption"))
    captions = [captions] if isinstance(captions, str) else captions
    if not isinstance(captions, list) or not captions or not all(isinstance(c, str) and c.strip() for c in captions):
        raise text_files.line_error(path, line_number, '"captions" must be a list of texts, and at least one')
    return image, captions
