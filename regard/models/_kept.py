"""What was made of a model's weights, kept with the model for as long as they are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from regard.models._words import mark, untouched

Made = TypeVar("Made")


class Key(NamedTuple):
    """Which weights were used: the same tensors, unchanged since."""

    parameters: tuple[int, ...]
    versions: tuple[int, ...]
    memory: tuple[int, ...]
    marks: tuple[float, ...]


Kept = WeakKeyDictionary[nn.Module, tuple[Key, Made]]


def kept(shelf: Kept[Made], model: nn.Module, parts: Iterable[nn.Module], make: Callable[[], Made]) -> Made:
    """What `make` gives, made again only after weights of these parts have changed."""
    held = [p for part in parts for p in part._parameters.values() if p is not None]
    if any(p.is_inference() for p in held):  # it has no counter to tell whether it has changed
        return make()
    key, found = _key(held), shelf.get(model)
    if found is None or found[0] != key:
        found = shelf[model] = key, make()
    return found[1]


def _key(held: Sequence[Tensor]) -> Key:
    return Key(
        tuple(map(id, held)),
        tuple(p._version for p in held),
        tuple(p.data_ptr() for p in held),
        tuple(map(mark, held)),
    )


def plain(part: nn.Module) -> bool:
    """Whether a part need not be called: it does what its class says, and forgets nothing."""
    return untouched(part) and not part.training
