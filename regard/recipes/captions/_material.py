"""The pictures and captions of each recipe: what to train on, to choose by, and to judge by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data import DataError
from regard.data._lines import lines
from regard.data.algorithms import chance
from regard.data.captions import Captioned, Pictures
from regard.data.digits import Digits, mnist, sklearn_digits
from regard.data.pictures import read_captions
from regard.data.scenes import Scenes
from regard.recipes._files import folder, named
from regard.recipes._parse import SettingError
from regard.recipes.captions.settings import Captioning

Part = Callable[[], Captioned]  # made or read when it is asked for
CHOOSING, TESTING = 500, 2000  # scenes
HELD = {"valid": 7_000_003, "test": 7_000_009}  # the seeds of these scenes are far from those of training
SPLITS = {"train": "train", "valid": "dev", "test": "test"}  # of Flickr8k


@dataclass(frozen=True)
class Gallery:
    """Where pictures come from: to train on (painted by chance, or read), to choose by, and tests by name."""

    train: Callable[[], Scenes | Captioned]
    valid: Part
    tests: Mapping[str, Part] = field(default_factory=dict)
    grid_dim: int | None = None  # of pictures that are grids of features already


def digit_scenes(settings: Captioning) -> Gallery:
    """Scenes of scikit-learn's digits, which come with it."""
    _gray("digit-scenes", settings)
    return _scenes(settings, sklearn_digits, (settings.size // 8, settings.size // 4))


def mnist_scenes(settings: Captioning) -> Gallery:
    """Scenes of the digits of MNIST."""
    _gray("mnist-scenes", settings)
    root = folder(settings.data, "the four files of MNIST, such as train-images-idx3-ubyte.gz")
    sides = (
        settings.size * 7 // 48,
        settings.size * 7 // 24,
    )  # 14 to 28 pixels of 96: half or all of a digit's
    return _scenes(settings, lambda part: mnist(root, part), sides)


def _gray(name: str, settings: Captioning) -> None:
    if settings.color:
        raise SettingError(f"the digits of {name} are gray: color=on is not possible")


def _scenes(settings: Captioning, digits: Callable[..., Digits], sides: tuple[int, int]) -> Gallery:
    def scenes(part: str) -> Scenes:
        return Scenes(digits(part), settings.size, sides)

    def held(part: str, count: int) -> Part:
        return lambda: posed(scenes(part), HELD[part], count)

    return Gallery(lambda: scenes("train"), held("valid", CHOOSING), {"test": held("test", TESTING)})


def posed(scenes: Scenes, seed: int, count: int) -> Captioned:
    """So many scenes that are always the same."""
    painted = scenes.make(chance(seed), count)
    pictures = Pictures(painted.images[:, None], step=1.0)
    return Captioned(pictures, [[text] for text in painted.texts()], boxes=painted.boxes)


def from_files(settings: Captioning) -> Gallery:
    """Files that somebody names."""
    for what, paths in (("to train on: --train", settings.train), ("to choose by: --valid", settings.valid)):
        if not paths:
            raise SettingError(
                f'captions needs files {what} x.jsonl, where each line is {{"image": path, "captions": [...]}}'
            )
        if missing := [path for path in paths if not Path(path).is_file()]:
            raise SettingError(f"there is no file {missing[0]}")

    def part(files: tuple[str, ...]) -> Part:
        return lambda: read_captions(files, settings.size, settings.color)

    tests = {"test": part(settings.test)} if settings.test else {}
    return Gallery(part(settings.train), part(settings.valid), tests)


def flickr8k(settings: Captioning) -> Gallery:
    """Photographs as ready grids of features, five captions each: Hodosh, Young and Hockenmaier (2013)."""
    root = folder(settings.data, "captions.tsv (image, split, captions; with tabs) and features.npz")
    texts, features = named(root, "captions.tsv"), root / "features.npz"
    if not features.is_file():
        raise SettingError(f"data={root}: there is no features.npz in it")

    def part(name: str) -> Part:
        return lambda: _flickr(texts, features, SPLITS[name])

    grid_dim = _features(features, "q").shape[0]
    return Gallery(part("train"), part("valid"), {"test": part("test")}, grid_dim)


def _flickr(texts: Path, features: Path, split: str) -> Captioned:
    """One split of the file of captions, and the same rows of the features, scaled to a mean square of 1."""
    rows, names, captions = [], [], []
    for number, line in enumerate(lines(texts)):
        name, where, *told = line.split("\t")
        if where == split:
            rows.append(number)
            names.append(name)
            captions.append(told)
    grids = _features(features, "q")
    if not rows or rows[-1] >= grids.shape[1]:
        raise DataError(f"{texts} and {features} do not fit together; get both again.")
    chosen = torch.from_numpy(np.ascontiguousarray(grids[:, rows].transpose(1, 2, 0)))
    scale = float(np.square(grids[:, ::7].astype(np.float32)).mean()) ** -0.5
    return Captioned(Pictures(chosen, scale), captions, names)


def _features(path: Path, name: str) -> np.ndarray[Any, np.dtype[np.int8]]:
    try:
        with np.load(path) as file:
            return file[name]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise DataError(f"{path} is no file of features ({error}); get it again.") from None
