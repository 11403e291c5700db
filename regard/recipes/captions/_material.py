"""The pictures and captions of each recipe: what to train on, to choose by, and to judge by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data._lines import lines
from regard.data.algorithms import chance
from regard.data.captions import Captioned, Pictures
from regard.data.digits import Digits, mnist, sklearn_digits
from regard.data.pictures import read_captions
from regard.data.report import counted
from regard.data.scenes import Scenes
from regard.errors import ConfigError, DataError
from regard.recipes._files import folder, named
from regard.recipes._held import EVERY, held_out, without_held
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
    held: bool = False  # whether what to choose by is taken from what would be trained on


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
        raise ConfigError(f"invalid value 'on' for color: the digits of {name} are gray")


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
    if not settings.train:
        raise ConfigError(
            'captions needs files to train on: --train x.jsonl, where each line is {"image": path, "captions": [...]}'
        )
    if missing := [path for path in (*settings.train, *settings.valid) if not Path(path).is_file()]:
        raise ConfigError(f"there is no file {missing[0]}")

    def part(files: tuple[str, ...]) -> Part:
        return lambda: read_captions(files, settings.size, settings.color)

    tests = {"test": part(settings.test)} if settings.test else {}
    train = part(settings.train)
    if settings.valid:
        return Gallery(train, part(settings.valid), tests)
    return Gallery(lambda: _parted(train())[0], lambda: _parted(train())[1], tests, held=True)


def _parted(captioned: Captioned) -> tuple[Captioned, Captioned]:
    """The images to train on, and every twentieth, which is held out to choose by."""
    count = len(captioned)
    if count < EVERY:
        raise DataError(
            f"the training files have {counted(count, 'image')}, too few to hold one of {EVERY} out; name others to"
            " choose by: --valid y.jsonl"
        )
    return captioned.some(without_held(range(count))), captioned.some(held_out(range(count)))


def flickr8k(settings: Captioning) -> Gallery:
    """Photographs as ready grids of features, five captions each: Hodosh, Young and Hockenmaier (2013)."""
    root = folder(settings.data, "captions.tsv (image, split, captions; with tabs) and features.npz")
    texts, features = named(root, "captions.tsv"), root / "features.npz"
    if not features.is_file():
        raise ConfigError(f"data={root}: there is no features.npz in it")

    def part(name: str) -> Part:
        return lambda: _flickr(texts, features, SPLITS[name])

    return Gallery(part("train"), part("valid"), {"test": part("test")}, _grids(features).shape[0])


def _flickr(texts: Path, features: Path, split: str) -> Captioned:
    """One split of the file of captions, and the features of these names, scaled to a mean square of 1."""
    grids = _grids(features)
    places = {name: place for place, name in enumerate(_names(features, grids.shape[1]))}
    rows, names, captions = [], [], []
    for number, line in enumerate(lines(texts), 1):
        if not line.strip():
            continue
        name, where, told = _told(f"{texts}, line {number}", line)
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
    return Captioned(Pictures(chosen, scale), captions, names)


def _told(place: str, line: str) -> tuple[str, str, list[str]]:
    """The image, the split and the captions of one line."""
    name, _, rest = line.partition("\t")
    split, *told = rest.split("\t")
    if split not in SPLITS.values():
        known = ", ".join(SPLITS.values())
        raise DataError(
            f"{place}: the second field should be the split ({known}), not {split!r}; between fields is a tab."
        )
    if not any(one.strip() for one in told):
        raise DataError(f"{place}: {name} has no captions; add one after the split, or leave the line out.")
    return name, split, told


def _grids(path: Path) -> NDArray[Any]:
    """The features, as (numbers of a cell, pictures, cells)."""
    grids = _array(path, "q")
    if grids.ndim != 3 or grids.dtype.kind not in "iuf" or not grids.size:
        raise DataError(
            f"{path}: q should be numbers (dim, pictures, cells), not {grids.dtype} {grids.shape}."
        )
    return grids


def _names(path: Path, count: int) -> list[str]:
    """The name of each picture of the features."""
    names = _array(path, "image")
    if names.shape != (count,) or names.dtype.kind != "U":
        raise DataError(f"{path}: image should be the names of the {count:,} pictures of q; get it again.")
    return names.tolist()


def _array(path: Path, name: str) -> NDArray[Any]:
    try:
        with path.open("rb") as raw, np.load(raw) as file:
            return np.asarray(file[name])
    except KeyError:
        raise DataError(f"{path} has no array {name!r}; get it again.") from None
    except Exception:  # of zipfile, zlib or NumPy, whose advice is to load it unsafely
        raise DataError(f"{path} is no file of features, or is damaged; get it again.") from None
