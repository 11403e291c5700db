"""What all tasks share that attend to the grid of an image: scenes, explanations, and boxes the weights should meet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.data.images import load_mnist, load_sklearn_digits
from regard.data.scenes import SceneGenerator
from regard.data.sources import seeded_generator
from regard.errors import UnsupportedError
from regard.tasks.datasets import find_data_folder
from regard.tasks.predictor import AttentionMap, Explanation
from regard.tasks.task import DataSplits, LazyExamples

if TYPE_CHECKING:
    from regard.viewing.figures import Figure
    from regard.viewing.pages import HtmlPage

__all__ = [
    "GridExplanation", "is_inside_box", "make_grid_map", "make_mnist_scenes", "make_scene_splits",
    "make_sklearn_scenes", "to_percent",
]  # fmt: skip

NUM_VALID_SCENES, NUM_TEST_SCENES = 500, 2000
SCENE_SEEDS = {"valid": 7_000_003, "test": 7_000_009}  # far from those of training
MNIST_CONTENTS = "the four files of MNIST, such as train-images-idx3-ubyte.gz"


def make_sklearn_scenes(config: Any, split: Any, **counts: int) -> SceneGenerator:
    """Scenes of the digits that come with scikit-learn.

    Args:
        config: `image_size`
        split: "train", "valid" or "test"
        counts: `num_digits` and `num_distractors`
    """
    size = config.image_size
    return SceneGenerator(load_sklearn_digits(split), size, (size // 8, size // 4), **counts)


def make_mnist_scenes(config: Any, split: Any, **counts: int) -> SceneGenerator:
    """Scenes of the digits of MNIST, of 14 to 28 pixels in images of 96.

    Args:
        config: `image_size` and `data_dir`
        split: "train", "valid" or "test"
        counts: `num_digits` and `num_distractors`
    """
    size, root = config.image_size, find_data_folder(config.data_dir, MNIST_CONTENTS)
    return SceneGenerator(load_mnist(root, split), size, (size * 7 // 48, size * 7 // 24), **counts)


def make_scene_splits(
    make_generator: Callable[[str], Any], convert: Callable[[Any], Any] = lambda scenes: scenes
) -> DataSplits[Any]:
    """An endless source of scenes to train on, and validation and test scenes that are always the same.

    Args:
        make_generator: returns the source of the scenes of a split, which has `sample`
        convert: turns validation and test scenes into examples
    """

    def sample(split: str, count: int) -> LazyExamples[Any]:
        rng = seeded_generator(SCENE_SEEDS[split])
        return LazyExamples(cache(lambda: convert(make_generator(split).sample(rng, count))))

    return DataSplits(
        make_generator("train"), sample("valid", NUM_VALID_SCENES), {"test": sample("test", NUM_TEST_SCENES)}
    )


@dataclass(frozen=True)
class GridExplanation(Explanation):
    """A prediction with the attention weights over the grid of the image.

    Args:
        prediction: the answer
        maps: one map of (1, queries, cells); none for a model without attention
        image: the image, (height, width, 3)
        smooth: whether figures interpolate the weights between cells
    """

    image: Float[Tensor, "height width 3"]
    smooth: bool = True

    @property
    def title(self) -> str:
        """One line above figures."""
        return self.prediction.text

    @property
    def names(self) -> list[str]:
        """What each query of the attention stands for: a word, a class, or a hop."""
        return list(self.maps[0].queries) if self.maps else []

    @property
    def values(self) -> list[float]:
        """The probability of each query's word or answer."""
        return [self.prediction.score for _ in self.names]

    @property
    def weights(self) -> Float[Tensor, "queries rows columns"] | None:
        """The weights of each query over the grid; None without attention."""
        if not self.maps:
            return None
        grid = self.maps[0].grid
        assert grid is not None
        return self.maps[0].weights[0].unflatten(-1, grid)

    def to_figure(self, title: str | None = None) -> Figure:
        """The image and, for each query, the image with its weights."""
        from regard.viewing import figures

        title = self.title if title is None else title
        return figures.image_overlay(self.image, self._require_weights(), self.names, smooth=self.smooth, title=title)

    def to_page(self, *, language: str | None = None) -> HtmlPage:
        """An HTML page with the image, lit by the weights of each query."""
        from regard.viewing import pages

        weights = self._require_weights()
        return pages.caption_page(self.image, self.names, weights, self.values, title=self.title, language=language)

    def _strongest_cells(self) -> list[str]:
        """The cell with the largest weight of each query."""
        cells = []
        for grid in () if self.weights is None else self.weights:
            row, column = divmod(int(grid.argmax()), grid.shape[1])
            cells.append(f"row {row}, column {column}: {float(grid.max()):.2f}")
        return cells

    def _require_weights(self) -> Float[Tensor, "queries rows columns"]:
        if (weights := self.weights) is None:
            raise UnsupportedError("this model has no attention: there are no weights to draw")
        return weights


def make_grid_map(names: Sequence[str], weights: Float[Tensor, "queries cells"]) -> tuple[AttentionMap, ...]:
    """The attention map of an explanation, over a square grid.

    Args:
        names: what each query stands for
        weights: the weights of each query

    Shape:
        - weights: (queries, cells)

    Returns:
        One map of one head, as an explanation takes it.

    Example:
        >>> make_grid_map(["dog"], torch.eye(4)[:1])[0].grid
        (2, 2)
    """
    side = math.isqrt(weights.shape[-1])
    cells = [f"row {row}, column {column}" for row in range(side) for column in range(side)]
    return (AttentionMap("grid", weights[None], list(names), cells, grid=(side, side)),)


def is_inside_box(
    cells: Int[Tensor, "rows things"], boxes: Int[Tensor, "rows things 4"], size: int, side: int
) -> Bool[Tensor, "rows things"]:
    """Whether cells of a grid lie in boxes, enlarged by one cell.

    Args:
        cells: the numbers of the cells; -1 lies in no box
        boxes: (left, top, right, bottom) in pixels
        size: side of the image in pixels
        side: cells of a row of the grid

    Shape:
        - cells: (rows, things), boxes: (rows, things, 4)
        - returns: (rows, things)

    Returns:
        True where the cell is inside the box.

    Example:
        >>> is_inside_box(torch.tensor([[9, 10]]), torch.tensor([[[12, 12, 20, 20], [40, 40, 48, 48]]]), 64, 8).tolist()
        [[True, False]]
    """
    cell = size / side
    left, top = (cells % side) * cell, (cells // side) * cell
    x0, y0, x1, y1 = boxes.unbind(-1)
    is_across = (left >= x0 - cell) & (left <= x1)
    return is_across & (top >= y0 - cell) & (top <= y1) & (cells >= 0)


def to_percent(hits: Bool[Tensor, "*examples"]) -> float:
    """The percentage of true values.

    Args:
        hits: at least one value

    Shape:
        - hits: any
    """
    return 100 * float(hits.double().mean())
