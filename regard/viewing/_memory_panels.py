"""Weights and vectors of an external memory over time: validated, and with comparable color scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped
from torch import Tensor

from regard.errors import UsageError
from regard.viewing import _arrays as arrays

CALLER = "MemoryData"
ValueRange = tuple[float, float]
UNIT_RANGE = (0.0, 1.0)
SIDE_VECTORS = {  # from top to bottom
    "write": ("inputs", "add_vectors"),
    "read": ("outputs", "targets", "read_vectors"),
}
PANEL_ROWS = (("inputs", "outputs"), (None, "targets"), ("add_vectors", "read_vectors"))  # (write, read)
TARGET_VECTORS = ("outputs", "targets")


@dataclass(frozen=True)
class MemoryStrip:
    """Vectors over time and the range of their color scale.

    Args:
        values: (steps, size)
        value_range: the numbers at the ends of the scale
        target_mask: (steps,), True where the values count
    """

    values: Any
    value_range: ValueRange
    target_mask: Any

    @property
    def is_signed(self) -> bool:
        return self.value_range[0] < 0

    @property
    def scale_label(self) -> str:
        """The range as text."""
        low, high = self.value_range
        return f"±{high:.2g}" if low < 0 else f"0 to {high:.2g}"

    @property
    def masked_values(self) -> Any:
        """The values, 0 at masked steps."""
        return np.where(self.target_mask[:, None], self.values, 0.0)

    @property
    def masked_line(self) -> Any:
        """The first channel, NaN at masked steps."""
        return np.where(self.target_mask, self.values[:, 0], np.nan)


@dataclass(frozen=True)
class MemorySide:
    """The write or the read side: weights (steps, rows) and the vectors drawn above them."""

    name: str
    weights: Any
    strips: dict[str, MemoryStrip]

    @property
    def is_curve(self) -> bool:
        """Whether outputs and targets are one number per step, which are drawn as curves."""
        strips = [self.strips[name] for name in TARGET_VECTORS if name in self.strips]
        return len(strips) == 2 and all(strip.values.shape[1] == 1 for strip in strips)


@dataclass(frozen=True)
class MemoryData:
    """Weights of a write head and a read head of an external memory over time, and the vectors of the sequence.

    It is checked when it is created. At least one of the two heads is required; `figures.memory_timeline` and
    `terminal.memory_timeline` draw it.

    Args:
        write_weights: the weights of a write head
        read_weights: the weights of a read head
        inputs: the input vectors
        outputs: the output vectors
        targets: the target outputs
        target_mask: the steps with a target; outputs at other steps are not drawn
        add_vectors: the vectors added to the memory
        read_vectors: the vectors read from the memory
        row_labels: the numbers of the rows, if they are a part of the memory

    Shape:
        weights (steps, rows), vectors (steps, size), target_mask (steps,)

    Example:
        >>> data = MemoryData(write_weights=torch.eye(8)[:5], inputs=torch.rand(5, 3))
        >>> data.num_steps, data.num_rows
        (5, 8)
    """

    write_weights: Shaped[Tensor, "steps rows"] | None = None
    read_weights: Shaped[Tensor, "steps rows"] | None = None
    inputs: Shaped[Tensor, "steps inputs"] | None = None
    outputs: Shaped[Tensor, "steps outputs"] | None = None
    targets: Shaped[Tensor, "steps outputs"] | None = None
    target_mask: Bool[Tensor, " steps"] | None = None
    add_vectors: Shaped[Tensor, "steps size"] | None = None
    read_vectors: Shaped[Tensor, "steps size"] | None = None
    row_labels: Sequence[int] | None = None
    labels: list[str] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", arrays.validate_labels(CALLER, "row", self.row_labels, self.num_rows))

    @property
    def num_rows(self) -> int:
        """The number of memory rows."""
        return int(self.sides[0].weights.shape[1])

    @property
    def num_steps(self) -> int:
        """The number of steps of the longer side."""
        return max(len(side.weights) for side in self.sides)

    @property
    def vmax(self) -> float:
        """The largest weight."""
        return max(arrays.resolve_vmax(CALLER, None, side.weights) for side in self.sides)

    @cached_property
    def sides(self) -> list[MemorySide]:
        """The validated sides that have weights, as arrays."""
        names = [name for names in SIDE_VECTORS.values() for name in names if getattr(self, name) is not None]
        vectors = {name: arrays.validate_array(CALLER, getattr(self, name), "steps size") for name in names}
        mask = None if self.target_mask is None else np.asarray(self.target_mask.cpu(), dtype=bool)
        ranges, sides = _vector_ranges(vectors, mask), []
        for side, side_names in SIDE_VECTORS.items():
            weights, present = getattr(self, f"{side}_weights"), [name for name in side_names if name in vectors]
            if weights is None and present:
                raise UsageError(f"{CALLER}: {present[0]} requires {side}_weights.")
            if weights is None:
                continue
            steps = {f"steps_of_{name}": len(vectors[name]) for name in present}
            if mask is not None and {*TARGET_VECTORS} & {*present}:
                steps["steps_of_target_mask"] = len(mask)
            arrays.validate_equal_sizes(CALLER, **{f"steps_of_{side}_weights": len(weights)}, **steps)
            all_steps = np.ones(len(weights), dtype=bool)
            masks = {name: mask if mask is not None and name in TARGET_VECTORS else all_steps for name in present}
            strips = {name: MemoryStrip(vectors[name], ranges[name], masks[name]) for name in present}
            sides.append(MemorySide(side, arrays.validate_weights(CALLER, weights, "steps rows"), strips))
        if not sides:
            raise UsageError(f"{CALLER} requires write_weights, read_weights or both.")
        arrays.validate_equal_sizes(CALLER, **{f"rows_of_{side.name}_weights": side.weights.shape[1] for side in sides})
        return sides


def _vector_ranges(vectors: dict[str, Any], target_mask: Any) -> dict[str, ValueRange]:
    """The range of each array. Inputs, outputs and targets share one, unless the latter are probabilities."""
    if target_mask is not None:  # masked outputs and targets must not affect the scales
        fitting = [name for name in TARGET_VECTORS if name in vectors and len(vectors[name]) == len(target_mask)]
        vectors = vectors | {name: vectors[name][target_mask] for name in fitting}
    ranges = {name: _array_range(array) for name, array in vectors.items()}
    results = [vectors[name] for name in TARGET_VECTORS if name in vectors]
    shared = {name: _common_range(*results) for name in TARGET_VECTORS if name in vectors}
    if "inputs" in vectors:
        # Inputs beyond 0..1 must not make probabilities pale.
        if not results or _common_range(*results) == UNIT_RANGE:
            shared["inputs"] = _common_range(vectors["inputs"])
        else:
            common = _common_range(vectors["inputs"], *results)
            shared = dict.fromkeys([*shared, "inputs"], common)
    return ranges | shared


def _common_range(*values: Any) -> ValueRange:
    """0 to 1 if all numbers lie there, otherwise the range of all."""
    low, high = _array_range(np.concatenate([array.ravel() for array in values]))
    return UNIT_RANGE if low == 0 and high <= 1 else (low, high)


def _array_range(array: Any) -> ValueRange:
    """From 0 to the largest absolute value, symmetric if some numbers are negative."""
    high = arrays.resolve_vmax(CALLER, None, np.abs(array))
    return (-high if arrays.max_ignoring_nan(-array) > 0 else 0.0), high
