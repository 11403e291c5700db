"""What goes with the weights of a memory over time: checked, and on scales that can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from regard.errors import UsageError
from regard.viewing import _arrays as check

ValueRange = tuple[float, float]


UNIT_RANGE = (0.0, 1.0)


SIDE_VECTORS = {"write": ("inputs", "added"), "read": ("outputs", "wanted", "returned")}  # from top to bottom


PANEL_ROWS = (("inputs", "outputs"), (None, "wanted"), ("added", "returned"))  # what stands beside what


TARGET_VECTORS = ("outputs", "wanted")


@dataclass(frozen=True)
class MemoryStrip:
    """Vectors over time, and the numbers at the ends of their scale."""

    values: Any
    value_range: ValueRange
    target_mask: Any  # at which steps there is something

    @property
    def is_signed(self) -> bool:
        return self.value_range[0] < 0

    @property
    def scale_label(self) -> str:
        """The ends in words."""
        return f"±{self.value_range[1]:.2g}" if self.is_signed else f"0 to {self.value_range[1]:.2g}"

    @property
    def masked_values(self) -> Any:
        """The values, 0 at steps that nobody asked for."""
        return np.where(self.target_mask[:, None], self.values, 0.0)

    @property
    def masked_line(self) -> Any:
        """The only channel, with gaps at steps that nobody asked for."""
        return np.where(self.target_mask, self.values[:, 0], np.nan)


@dataclass(frozen=True)
class MemorySide:
    """Writing or reading: weights over time, and the vectors that go with them."""

    name: str
    weights: Any
    strips: dict[str, MemoryStrip]

    @property
    def is_curve(self) -> bool:
        """Whether one number goes out at each step and one was wanted: two lines say more than two rows of cells."""
        told = [self.strips[name] for name in TARGET_VECTORS if name in self.strips]
        return len(told) == 2 and all(strip.values.shape[1] == 1 for strip in told)


def build_sides(
    weights: Mapping[str, Tensor | None],
    vectors: Mapping[str, Tensor | None],
    target_mask: Tensor | None = None,
) -> list[MemorySide]:
    """The sides that something is known of: weights by "write" and "read", vectors by the names of `SIDES`."""
    told = {name: _validate_vectors(tensor) for name, tensor in vectors.items() if tensor is not None}
    when = None if target_mask is None else np.asarray(target_mask.cpu(), dtype=bool)
    ends, found = _vector_ranges(_select_target_steps(told, when)), []
    for name, kinds in SIDE_VECTORS.items():
        own, given = weights[name], [kind for kind in kinds if kind in told]
        if own is None and given:
            raise UsageError(f"memory: {given[0]} needs the weights of the {name} head beside it.")
        if own is None:
            continue
        steps = {f"steps_of_{kind}": len(told[kind]) for kind in given}
        steps |= {"steps_asked": len(when)} if when is not None and {*TARGET_VECTORS} & {*given} else {}
        check.validate_equal_sizes("memory", **{f"steps_of_{name}": len(own)}, **steps)
        always = np.ones(len(own), dtype=bool)
        strips = {
            kind: MemoryStrip(
                told[kind], ends[kind], when if when is not None and kind in TARGET_VECTORS else always
            )
            for kind in given
        }
        found.append(MemorySide(name, check.validate_weights("memory", own, "time rows"), strips))
    if not found:
        raise UsageError("memory: give the weights of writing (writes=), of reading (reads=), or both.")
    check.validate_equal_sizes("memory", **{f"rows_of_{side.name}": side.weights.shape[1] for side in found})
    return found


def _validate_vectors(tensor: Tensor) -> Any:
    return check.validate_array("memory", tensor, "time width")


def _select_target_steps(vectors: dict[str, Any], target_mask: Any) -> dict[str, Any]:
    """The same without the steps that nobody asked for: what is said there shall not stretch a scale."""
    fits = {
        kind: target_mask is not None and kind in TARGET_VECTORS and len(target_mask) == len(one)
        for kind, one in vectors.items()
    }
    return {kind: one[target_mask] if fits[kind] else one for kind, one in vectors.items()}


def _vector_ranges(vectors: dict[str, Any]) -> dict[str, ValueRange]:
    """The scale of each. What comes in, goes out and is wanted has one; probabilities have theirs, from 0 to 1."""
    ends = {kind: _array_range(one) for kind, one in vectors.items()}
    said = [vectors[kind] for kind in TARGET_VECTORS if kind in vectors]
    shared = {kind: _common_range(*said) for kind in TARGET_VECTORS if kind in vectors}
    if "inputs" in vectors:
        apart = (
            not said or _common_range(*said) == UNIT_RANGE
        )  # a number among bits shall not make the bits pale
        shared["inputs"] = (
            _common_range(vectors["inputs"]) if apart else _common_range(vectors["inputs"], *said)
        )
        shared |= {} if apart else dict.fromkeys(shared, shared["inputs"])
    return ends | shared


def _common_range(*arrays: Any) -> ValueRange:
    """From 0 to 1 if all of them are there; otherwise as far as the greatest reaches."""
    low, top = _array_range(np.concatenate([array.ravel() for array in arrays]))
    return UNIT_RANGE if low == 0 and top <= 1 else (low, top)


def _array_range(array: Any) -> ValueRange:
    """From 0 to the greatest, or as far below 0 if some are negative."""
    top = check.resolve_vmax("memory", None, np.abs(array))
    return (-top if check.max_ignoring_nan(-array) > 0 else 0.0), top
