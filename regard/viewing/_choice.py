"""Which attentions a model has, and which of them are asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase
from types import FrameType
from typing import Any

from torch import nn

from regard.attention import Attention, LocalM, LocalP, MultiHead
from regard.errors import UsageError
from regard.viewing import hugging
from regard.viewing.torch_modules import hearable

OURS = (Attention, MultiHead, LocalM, LocalP)
Layers = int | str | Iterable[int | str] | None


class Sites:
    """The attentions of a model by name, numbered in the order of its modules.

    A module of the user's own that calls `attend` is not known before it does; it gets the next number then.
    """

    def __init__(self, model: nn.Module):
        self.names = {module: name or type(model).__name__ for name, module in model.named_modules()}
        self.also: dict[str, list[str]] = {}  # a module that is there twice goes by the first of its names
        for name, module in model.named_modules(remove_duplicate=False):
            self.also.setdefault(self.names[module], []).append(name)
        theirs = hugging.attentions(model) if hugging.imported() else set()
        self.modules = [m for m in self.names if isinstance(m, OURS) or _of_torch(m) or m in theirs]
        self.layers = {self.names[module]: layer for layer, module in enumerate(self.modules)}

    def name(self, who: nn.Module | None) -> str | None:
        """The name of who looks: itself, or the innermost module of the model that is at work; None for a stranger."""
        if who is not None and who in self.names:
            return self.names[who]
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            first = frame.f_code.co_varnames[:1]
            at_work = frame.f_locals.get(first[0]) if frame.f_code.co_argcount and first else None
            if isinstance(at_work, nn.Module) and at_work in self.names:
                return self.names[at_work]
            frame = frame.f_back
        return None

    def layer(self, name: str) -> int:
        return self.layers.setdefault(name, len(self.layers))


def _of_torch(module: nn.Module) -> bool:
    return isinstance(module, nn.MultiheadAttention) and hearable(module)


def heads_of(module: nn.Module | None) -> int | None:
    """How many heads a module has, if it says so."""
    if isinstance(module, nn.MultiheadAttention):
        return int(module.num_heads)
    return module.heads if isinstance(module, MultiHead) else None


class Choice:
    """The layers and heads that were asked for: numbers, names, patterns of names; all of them if none was named."""

    def __init__(self, sites: Sites, layers: Layers, heads: int | Iterable[int] | None):
        self.sites = sites
        self.layers: list[int | str] | None = _several(layers)
        self.heads: list[int] | None = _several(heads)
        if any(isinstance(head, bool) or not isinstance(head, int) for head in self.heads or ()):
            raise TypeError(f"heads are numbers, got {heads!r}")
        if self.heads == []:
            raise UsageError("there is no head in heads=[]; leave it out to watch all of them")
        if sites.layers:
            # A name may be that of a module which turns out to attend.
            self.check_layers([*sites.layers, *sites.names.values()])
        for module in sites.modules:
            count = heads_of(module)
            if count is not None and self.layer(sites.names[module]):
                self.check_heads(sites.names[module], count)

    def layer(self, name: str) -> bool:
        """Whether an attention is asked for."""
        return self.layers is None or any(self._means(layer, name) for layer in self.layers)

    def _means(self, layer: int | str, name: str) -> bool:
        if isinstance(layer, str):
            names = [name, *self.sites.also.get(name, ())]
            return any(fnmatchcase(one, layer) or one.startswith(layer + ".") for one in names)
        return self.sites.layer(name) == layer

    def check_layers(self, names: Iterable[str]) -> None:
        """Raise if a layer that was asked for is none of these, or has a number that none has."""
        known, names = self.sites.layers, list(names)
        for layer in self.layers or ():
            if isinstance(layer, bool) or not isinstance(layer, (int, str)):
                raise TypeError(f"layers are numbers or names of modules, got {layer!r}")
            there = (
                layer in known.values()
                if isinstance(layer, int)
                else any(self._means(layer, n) for n in names)
            )
            if not there:
                raise UsageError(f"there is no layer {layer!r} to watch; there are {_listed(known)}")

    def check_heads(self, name: str, count: int) -> None:
        for head in self.heads or ():
            if not 0 <= head < count:
                there = "one head, 0" if count == 1 else f"heads 0 to {count - 1}"
                raise UsageError(f"there is no head {head!r} in {name}, which has {there}")


def _several(given: Any) -> Any:
    """One or some, as a list; None stays None."""
    one = isinstance(given, str) or not isinstance(given, Iterable)
    return None if given is None else [given] if one else list(given)


def _listed(known: dict[str, int]) -> str:
    lines = [f"{layer} ({name})" for name, layer in known.items()]
    return ", ".join(lines[:12]) + (f" and {len(lines) - 12} more" if len(lines) > 12 else "")
