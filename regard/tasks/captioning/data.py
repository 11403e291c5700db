"""The pictures and captions of each recipe: what to train on, to choose by, and to judge by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.captions import CaptionedImages, ImageArray, read_captioned_images
from regard.data.images import Digits, load_mnist, load_sklearn_digits
from regard.data.parallel import pluralize
from regard.data.scenes import SceneGenerator
from regard.data.sources import seeded_generator
from regard.data.text_files import read_lines
from regard.errors import ConfigError, DataError
from regard.tasks.captioning.config import CaptioningConfig
from regard.tasks.datasets import HELD_OUT_EVERY, find_data_folder, find_file, held_out, not_held_out

LoadImages = Callable[[], CaptionedImages]  # made or read when it is asked for


NUM_VALID_SCENES, NUM_TEST_SCENES = 500, 2000  # scenes


HELD = {"valid": 7_000_003, "test": 7_000_009}  # the seeds of these scenes are far from those of training


FLICKR_SPLITS = {"train": "train", "valid": "dev", "test": "test"}  # of Flickr8k


@dataclass(frozen=True)
class Gallery:
    """Where pictures come from: to train on (painted by chance, or read), to choose by, and tests by name."""

    train: Callable[[], SceneGenerator | CaptionedImages]
    valid: LoadImages
    tests: Mapping[str, LoadImages] = field(default_factory=dict)
    feature_dim: int | None = None  # of pictures that are grids of features already
    held: bool = False  # whether what to choose by is taken from what would be trained on


def digit_scenes(config: CaptioningConfig) -> Gallery:
    """Scenes of scikit-learn's digits, which come with it."""
    _require_gray("digit-scenes", config)
    return _scene_splits(config, load_sklearn_digits, (config.image_size // 8, config.image_size // 4))


def mnist_scenes(config: CaptioningConfig) -> Gallery:
    """Scenes of the digits of MNIST."""
    _require_gray("mnist-scenes", config)
    root = find_data_folder(config.data_dir, "the four files of MNIST, such as train-images-idx3-ubyte.gz")
    sides = (
        config.image_size * 7 // 48,
        config.image_size * 7 // 24,
    )  # 14 to 28 pixels of 96: half or all of a digit's
    return _scene_splits(config, lambda part: load_mnist(root, part), sides)


def _require_gray(name: str, config: CaptioningConfig) -> None:
    if config.color:
        raise ConfigError(f"invalid value 'on' for color: the digits of {name} are gray")


def _scene_splits(config: CaptioningConfig, digits: Callable[..., Digits], sides: tuple[int, int]) -> Gallery:
    def scenes(part: str) -> SceneGenerator:
        return SceneGenerator(digits(part), config.image_size, sides)

    def held(part: str, count: int) -> LoadImages:
        return lambda: fixed_scenes(scenes(part), HELD[part], count)

    return Gallery(lambda: scenes("train"), held("valid", NUM_VALID_SCENES), {"test": held("test", NUM_TEST_SCENES)})


def fixed_scenes(scenes: SceneGenerator, seed: int, count: int) -> CaptionedImages:
    """So many scenes that are always the same."""
    painted = scenes.sample(seeded_generator(seed), count)
    pictures = ImageArray(painted.images[:, None], scale=1.0)
    return CaptionedImages(pictures, [[text] for text in painted.format_captions()], boxes=painted.boxes)


def from_files(config: CaptioningConfig) -> Gallery:
    """Files that somebody names."""
    if not config.train_files:
        raise ConfigError(
            'captions needs files to train on: --train x.jsonl, where each line is {"image": path, "captions": [...]}'
        )
    if missing := [path for path in (*config.train_files, *config.valid_files) if not Path(path).is_file()]:
        raise ConfigError(f"there is no file {missing[0]}")

    def part(files: tuple[str, ...]) -> LoadImages:
        return lambda: read_captioned_images(files, config.image_size, config.color)

    tests = {"test": part(config.test_files)} if config.test_files else {}
    train = part(config.train_files)
    if config.valid_files:
        return Gallery(train, part(config.valid_files), tests)
    return Gallery(lambda: _hold_out_images(train())[0], lambda: _hold_out_images(train())[1], tests, held=True)


def _hold_out_images(captioned: CaptionedImages) -> tuple[CaptionedImages, CaptionedImages]:
    """The images to train on, and every twentieth, which is held out to choose by."""
    count = len(captioned)
    if count < HELD_OUT_EVERY:
        raise DataError(
            f"the training files have {pluralize(count, 'image')}, too few to hold one of {HELD_OUT_EVERY} out; name others to"
            " choose by: --valid y.jsonl"
        )
    return captioned.select(not_held_out(range(count))), captioned.select(held_out(range(count)))


def flickr8k(config: CaptioningConfig) -> Gallery:
    """Photographs as ready grids of features, five captions each: Hodosh, Young and Hockenmaier (2013)."""
    root = find_data_folder(config.data_dir, "captions.tsv (image, split, captions; with tabs) and features.npz")
    texts, features = find_file(root, "captions.tsv"), root / "features.npz"
    if not features.is_file():
        raise ConfigError(f"data_dir={root}: there is no features.npz in it")

    def part(name: str) -> LoadImages:
        return lambda: _read_flickr(texts, features, FLICKR_SPLITS[name])

    return Gallery(part("train"), part("valid"), {"test": part("test")}, _read_features(features).shape[0])


def _read_flickr(texts: Path, features: Path, split: str) -> CaptionedImages:
    """One split of the file of captions, and the features of these names, scaled to a mean square of 1."""
    grids = _read_features(features)
    places = {name: place for place, name in enumerate(_read_image_names(features, grids.shape[1]))}
    rows, names, captions = [], [], []
    for number, line in enumerate(read_lines(texts), 1):
        if not line.strip():
            continue
        name, where, told = _parse_caption_line(f"{texts}, line {number}", line)
        if name not in places:
            raise DataError(f"{texts}, line {number}: {features} has no features of {name}; get both again.")
        if where == split:
            rows.append(places[name])
            names.append(name)
            captions.append(told)
    if not rows:
        raise DataError(f"{texts}: no line is of the split {split}; get it again.")
    chosen = torch.from_numpy(np.ascontiguousarray(grids[:, rows].transpose(1, 2, 0)))
    scale = float(np.square(grids[:, ::7].astype(np.float32)).mean()) ** -0.5
    return CaptionedImages(ImageArray(chosen, scale), captions, names)


def _parse_caption_line(location: str, line: str) -> tuple[str, str, list[str]]:
    """The image, the split and the captions of one line."""
    name, _, rest = line.partition("\t")
    split, *told = rest.split("\t")
    if split not in FLICKR_SPLITS.values():
        known = ", ".join(FLICKR_SPLITS.values())
        raise DataError(
            f"{location}: the second field should be the split ({known}), not {split!r}; between fields is a tab."
        )
    if not any(one.strip() for one in told):
        raise DataError(f"{location}: {name} has no captions; add one after the split, or leave the line out.")
    return name, split, told


def _read_features(path: Path) -> NDArray[Any]:
    """The features, as (numbers of a cell, pictures, cells)."""
    grids = _read_array(path, "q")
    if grids.ndim != 3 or grids.dtype.kind not in "iuf" or not grids.size:
        raise DataError(f"{path}: q should be numbers (dim, pictures, cells), not {grids.dtype} {grids.shape}.")
    return grids


def _read_image_names(path: Path, count: int) -> list[str]:
    """The name of each picture of the features."""
    names = _read_array(path, "image")
    if names.shape != (count,) or names.dtype.kind != "U":
        raise DataError(f"{path}: image should be the names of the {count:,} pictures of q; get it again.")
    return names.tolist()


def _read_array(path: Path, name: str) -> NDArray[Any]:
    try:
        with path.open("rb") as raw, np.load(raw) as file:
            return np.asarray(file[name])
    except KeyError:
        raise DataError(f"{path} has no array {name!r}; get it again.") from None
    except Exception:  # of zipfile, zlib or NumPy, whose advice is to load it unsafely
        raise DataError(f"{path} is no file of features, or is damaged; get it again.") from None
