"""The images and captions of each recipe, to train on, to validate and to test with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from regard.data.captions import CaptionedImages, ImageArray, read_captioned_images
from regard.data.parallel import pluralize
from regard.data.scenes import RenderedScenes
from regard.data.text_files import read_lines
from regard.errors import ConfigError, DataError
from regard.tasks.captioning.config import CaptioningConfig
from regard.tasks.datasets import HELD_OUT_EVERY, find_data_folder, find_file, held_out, not_held_out
from regard.tasks.grid import make_mnist_scenes, make_scene_splits, make_sklearn_scenes
from regard.tasks.task import DataSplits, LazyExamples

__all__ = ["CaptionSplits", "captions", "digit_scenes", "flickr8k", "mnist_scenes", "nearest_captions"]

FLICKR_SPLITS = ("train", "dev", "test")
MAX_ROWS = 1000  # images whose features are averaged at once


@dataclass(frozen=True)
class CaptionSplits(DataSplits[CaptionedImages]):
    """Grids of features with captions, by split.

    Args:
        feature_dim: size of a feature vector
    """

    feature_dim: int = 0


def _lazy(load: Callable[[], CaptionedImages]) -> LazyExamples[CaptionedImages]:
    """Images that are read once, when they are needed."""
    return LazyExamples(cache(load))


def digit_scenes(config: CaptioningConfig) -> DataSplits[CaptionedImages]:
    """Scenes of scikit-learn's digits, which come with it.

    Args:
        config: the size of the images; `color` must be off
    """
    _require_gray("digit-scenes", config)
    return make_scene_splits(lambda split: make_sklearn_scenes(config, split), _add_captions)


def mnist_scenes(config: CaptioningConfig) -> DataSplits[CaptionedImages]:
    """Scenes of the digits of MNIST.

    Args:
        config: the folder of MNIST and the size of the images; `color` must be off
    """
    _require_gray("mnist-scenes", config)
    return make_scene_splits(lambda split: make_mnist_scenes(config, split), _add_captions)


def _require_gray(name: str, config: CaptioningConfig) -> None:
    if config.color:
        raise ConfigError(f"invalid value 'on' for color: the digits of {name} are gray")


def _add_captions(scenes: RenderedScenes) -> CaptionedImages:
    images = ImageArray(scenes.images[:, None], scale=1.0)
    return CaptionedImages(images, [[text] for text in scenes.format_captions()], boxes=scenes.boxes)


def captions(config: CaptioningConfig) -> DataSplits[CaptionedImages]:
    """The files in the options; without validation files, every twentieth training image is held out.

    Args:
        config: the files, and the size and color of the images
    """
    if not config.train_files:
        raise ConfigError(
            'captions needs files to train on: --train x.jsonl, where each line is {"image": path, "captions": [...]}'
        )
    files = tuple(map(Path, (*config.train_files, *config.valid_files)))
    if missing := [path for path in files if not path.is_file()]:
        raise ConfigError(f"no such file: {missing[0]}")

    def split(names: tuple[str, ...]) -> LazyExamples[CaptionedImages]:
        return _lazy(lambda: read_captioned_images(names, config.image_size, config.color))

    tests = {"test": split(config.test_files)} if config.test_files else {}
    train = split(config.train_files)
    if config.valid_files:
        return DataSplits(train, split(config.valid_files), tests, files)
    rest, valid = (_lazy(partial(_select, train, choose)) for choose in (not_held_out, held_out))
    return DataSplits(rest, valid, tests, files)


def _select(examples: LazyExamples[CaptionedImages], choose: Callable[[range], list[int]]) -> CaptionedImages:
    images = examples.load()
    assert isinstance(images, CaptionedImages)
    if len(images) < HELD_OUT_EVERY:
        raise DataError(
            f"the training files have {pluralize(len(images), 'image')}, too few to hold one of {HELD_OUT_EVERY} out;"
            " give validation files: --valid y.jsonl"
        )
    return images.select(choose(range(len(images))))


def flickr8k(config: CaptioningConfig) -> CaptionSplits:
    """Photographs as precomputed grids of features, five captions each.

    Args:
        config: the folder of the data

    Reference: Hodosh, Young and Hockenmaier (2013), "Framing Image Description as a Ranking Task".
    """
    root = find_data_folder(config.data_dir, "captions.tsv (image, split, captions; with tabs) and features.npz")
    texts, features = find_file(root, "captions.tsv"), root / "features.npz"
    if not features.is_file():
        raise ConfigError(f"data_dir={root}: there is no features.npz")
    train = _lazy(lambda: _read_flickr(texts, features, "train"))

    def load_split(split: str) -> LazyExamples[CaptionedImages]:
        return _lazy(lambda: _add_baselines(_read_flickr(texts, features, split), train))

    return CaptionSplits(
        train, load_split("dev"), {"test": load_split("test")}, feature_dim=_read_features(features).shape[0]
    )


def _add_baselines(images: CaptionedImages, train: LazyExamples[CaptionedImages]) -> CaptionedImages:
    examples = train.load()
    assert isinstance(examples, CaptionedImages)
    return replace(images, baselines=nearest_captions(examples, images))


def nearest_captions(train: CaptionedImages, test: CaptionedImages) -> list[str]:
    """A baseline: the first caption of the training image whose mean feature vector is the nearest, by cosine.

    Args:
        train: grids of features with captions
        test: grids of features
    """
    keys, queries = (
        torch.cat([_mean_features(split, rows) for rows in torch.arange(len(split)).split(MAX_ROWS)])
        for split in (train, test)
    )
    return [train.captions[row][0] for row in (queries @ keys.T).argmax(1).tolist()]


def _mean_features(images: CaptionedImages, rows: Tensor) -> Tensor:
    """The mean of each grid of features, of length 1."""
    return normalize(images.images.select(rows).mean(1), dim=-1)


def _read_flickr(texts: Path, features: Path, split: str) -> CaptionedImages:
    """One split of the file of captions, and the features of these names, scaled to a mean square of 1."""
    grids = _read_features(features)
    indices = {name: index for index, name in enumerate(_read_image_names(features, grids.shape[1]))}
    rows, names, captions = [], [], []
    for number, line in enumerate(read_lines(texts), 1):
        if not line.strip():
            continue
        name, line_split, line_captions = _parse_caption_line(f"{texts}, line {number}", line)
        if name not in indices:
            raise DataError(f"{texts}, line {number}: {features} has no features of {name}; download both again")
        if line_split == split:
            rows.append(indices[name])
            names.append(name)
            captions.append(line_captions)
    if not rows:
        raise DataError(f"{texts}: no line is of the split {split}; download it again")
    values = torch.from_numpy(np.ascontiguousarray(grids[:, rows].transpose(1, 2, 0)))
    scale = float(np.square(grids[:, ::7].astype(np.float32)).mean()) ** -0.5
    return CaptionedImages(ImageArray(values, scale), captions, names)


def _parse_caption_line(location: str, line: str) -> tuple[str, str, list[str]]:
    """The image, the split and the captions of one line."""
    name, _, rest = line.partition("\t")
    split, *captions = rest.split("\t")
    if split not in FLICKR_SPLITS:
        splits = ", ".join(FLICKR_SPLITS)
        raise DataError(
            f"{location}: the second field must be the split ({splits}), not {split!r}; fields are separated by tabs"
        )
    if not any(one.strip() for one in captions):
        raise DataError(f"{location}: {name} has no captions; add one after the split, or delete the line")
    return name, split, captions


def _read_features(path: Path) -> NDArray[Any]:
    """The features, (dim, images, cells)."""
    grids = _read_array(path, "q")
    if grids.ndim != 3 or grids.dtype.kind not in "iuf" or not grids.size:
        raise DataError(f"{path}: q must be numbers (dim, images, cells), not {grids.dtype} {grids.shape}.")
    return grids


def _read_image_names(path: Path, count: int) -> list[str]:
    """The name of the image of each row of the features."""
    names = _read_array(path, "image")
    if names.shape != (count,) or names.dtype.kind != "U":
        raise DataError(f"{path}: image must be the names of the {count:,} images of q; download it again")
    return names.tolist()


def _read_array(path: Path, name: str) -> NDArray[Any]:
    try:
        with path.open("rb") as raw, np.load(raw) as file:
            return np.asarray(file[name])
    except KeyError:
        raise DataError(f"{path} has no array {name!r}; download it again") from None
    except Exception:  # of zipfile, zlib or NumPy, whose advice is to load it unsafely
        raise DataError(f"{path} is damaged: it must be a NumPy archive of features; download it again") from None
