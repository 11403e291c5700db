"""Weights and vectors of an external memory over time: validated, and with comparable color scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from regard.errors import UsageError
from regard.viewing import _arrays as arrays

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


def build_sides(
    weights: Mapping[str, Tensor | None], vectors: Mapping[str, Tensor | None], target_mask: Tensor | None = None
) -> list[MemorySide]:
    """Validate the tensors of `memory_timeline`.

    Args:
        weights: "write" and "read" weights (steps, rows), or None
        vectors: by the names of `SIDE_VECTORS`, (steps, size) or None
        target_mask: (steps,), the steps at which outputs and targets count; by default all

    Returns:
        The sides that have weights.
    """
    arrays_by_name = {name: _validate_vectors(tensor) for name, tensor in vectors.items() if tensor is not None}
    mask = None if target_mask is None else np.asarray(target_mask.cpu(), dtype=bool)
    ranges, sides = _vector_ranges(_select_target_steps(arrays_by_name, mask)), []
    for side, names in SIDE_VECTORS.items():
        side_weights, present = weights[side], [name for name in names if name in arrays_by_name]
        if side_weights is None and present:
            raise UsageError(f"memory_timeline: {present[0]} requires {side}_weights.")
        if side_weights is None:
            continue
        steps = {f"steps_of_{name}": len(arrays_by_name[name]) for name in present}
        if mask is not None and {*TARGET_VECTORS} & {*present}:
            steps["steps_of_target_mask"] = len(mask)
        arrays.validate_equal_sizes("memory_timeline", **{f"steps_of_{side}_weights": len(side_weights)}, **steps)
        all_steps = np.ones(len(side_weights), dtype=bool)
        strips = {
            name: MemoryStrip(
                arrays_by_name[name], ranges[name], mask if mask is not None and name in TARGET_VECTORS else all_steps
            )
            for name in present
        }
        sides.append(MemorySide(side, arrays.validate_weights("memory_timeline", side_weights, "steps rows"), strips))
    if not sides:
        raise UsageError("memory_timeline requires write_weights, read_weights or both.")
    arrays.validate_equal_sizes(
        "memory_timeline", **{f"rows_of_{side.name}_weights": side.weights.shape[1] for side in sides}
    )
    return sides


def _validate_vectors(tensor: Tensor) -> Any:
    return arrays.validate_array("memory_timeline", tensor, "steps size")


def _select_target_steps(vectors: dict[str, Any], target_mask: Any) -> dict[str, Any]:
    """Drop the masked steps of outputs and targets, which must not affect the scales."""
    if target_mask is None:
        return vectors
    return {
        name: array[target_mask] if name in TARGET_VECTORS and len(target_mask) == len(array) else array
        for name, array in vectors.items()
    }


def _vector_ranges(vectors: dict[str, Any]) -> dict[str, ValueRange]:
    """The range of each array. Inputs, outputs and targets share one, unless the latter are probabilities."""
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
    high = arrays.resolve_vmax("memory_timeline", None, np.abs(array))
    return (-high if arrays.max_ignoring_nan(-array) > 0 else 0.0), high
