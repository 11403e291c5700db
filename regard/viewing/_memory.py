"""What goes with the weights of a memory over time: checked, and on scales that can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from regard.errors import UsageError
from regard.viewing import _check as check

Ends = tuple[float, float]
UNIT = (0.0, 1.0)
SIDES = {"write": ("inputs", "added"), "read": ("outputs", "wanted", "returned")}  # from top to bottom
LEVELS = (("inputs", "outputs"), (None, "wanted"), ("added", "returned"))  # what stands beside what
ASKED = ("outputs", "wanted")


@dataclass(frozen=True)
class Strip:
    """Vectors over time, and the numbers at the ends of their scale."""

    values: Any
    ends: Ends
    asked: Any  # at which steps there is something

    @property
    def signed(self) -> bool:
        return self.ends[0] < 0

    @property
    def scale(self) -> str:
        """The ends in words."""
        return f"±{self.ends[1]:.2g}" if self.signed else f"0 to {self.ends[1]:.2g}"

    @property
    def shown(self) -> Any:
        """The values, 0 at steps that nobody asked for."""
        return np.where(self.asked[:, None], self.values, 0.0)

    @property
    def line(self) -> Any:
        """The only channel, with gaps at steps that nobody asked for."""
        return np.where(self.asked, self.values[:, 0], np.nan)


@dataclass(frozen=True)
class Side:
    """Writing or reading: weights over time, and the vectors that go with them."""

    name: str
    weights: Any
    strips: dict[str, Strip]

    @property
    def is_curve(self) -> bool:
        """Whether one number goes out at each step and one was wanted: two lines say more than two rows of cells."""
        told = [self.strips[name] for name in ASKED if name in self.strips]
        return len(told) == 2 and all(strip.values.shape[1] == 1 for strip in told)


def sides(
    weights: Mapping[str, Tensor | None], vectors: Mapping[str, Tensor | None], asked: Tensor | None = None
) -> list[Side]:
    """The sides that something is known of: weights by "write" and "read", vectors by the names of `SIDES`."""
    told = {name: _numbers(tensor) for name, tensor in vectors.items() if tensor is not None}
    when = None if asked is None else np.asarray(asked.cpu(), dtype=bool)
    ends, found = _ends(_asked_of(told, when)), []
    for name, kinds in SIDES.items():
        own, given = weights[name], [kind for kind in kinds if kind in told]
        if own is None and given:
            raise UsageError(f"memory: {given[0]} needs the weights of the {name} head beside it.")
        if own is None:
            continue
        steps = {f"steps_of_{kind}": len(told[kind]) for kind in given}
        steps |= {"steps_asked": len(when)} if when is not None and {*ASKED} & {*given} else {}
        check.same("memory", **{f"steps_of_{name}": len(own)}, **steps)
        always = np.ones(len(own), dtype=bool)
        strips = {
            kind: Strip(told[kind], ends[kind], when if when is not None and kind in ASKED else always)
            for kind in given
        }
        found.append(Side(name, check.weights("memory", own, "time rows"), strips))
    if not found:
        raise UsageError("memory: give the weights of writing (writes=), of reading (reads=), or both.")
    check.same("memory", **{f"rows_of_{side.name}": side.weights.shape[1] for side in found})
    return found


def _numbers(tensor: Tensor) -> Any:
    return check.numbers("memory", tensor, "time width")


def _asked_of(told: dict[str, Any], when: Any) -> dict[str, Any]:
    """The same without the steps that nobody asked for: what is said there shall not stretch a scale."""
    fits = {kind: when is not None and kind in ASKED and len(when) == len(one) for kind, one in told.items()}
    return {kind: one[when] if fits[kind] else one for kind, one in told.items()}


def _ends(told: dict[str, Any]) -> dict[str, Ends]:
    """The scale of each. What comes in, goes out and is wanted has one; probabilities have theirs, from 0 to 1."""
    ends = {kind: _around(one) for kind, one in told.items()}
    said = [told[kind] for kind in ASKED if kind in told]
    shared = {kind: _between(*said) for kind in ASKED if kind in told}
    if "inputs" in told:
        apart = not said or _between(*said) == UNIT  # a number among bits shall not make the bits pale
        shared["inputs"] = _between(told["inputs"]) if apart else _between(told["inputs"], *said)
        shared |= {} if apart else dict.fromkeys(shared, shared["inputs"])
    return ends | shared


def _between(*arrays: Any) -> Ends:
    """From 0 to 1 if all of them are there; otherwise as far as the greatest reaches."""
    low, top = _around(np.concatenate([array.ravel() for array in arrays]))
    return UNIT if low == 0 and top <= 1 else (low, top)


def _around(array: Any) -> Ends:
    """From 0 to the greatest, or as far below 0 if some are negative."""
    top = check.top("memory", None, np.abs(array))
    return (-top if check.largest(-array) > 0 else 0.0), top
