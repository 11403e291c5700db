"""Layers from names: "cnn,attention,gru" becomes a stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from torch import nn

from regard.errors import ConfigError
from regard.models.mixed import Attending, Convolving, Mixed, Recurring


@runtime_checkable
class Sizes(Protocol):
    """The settings that say how large a stack is."""

    @property
    def dim(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def hidden_dim(self) -> int | None: ...
    @property
    def dropout(self) -> float: ...
    @property
    def layers(self) -> tuple[str, ...]: ...


LAYERS: dict[str, Callable[[Any], nn.Module]] = {
    "attention": lambda s: Attending(s.dim, heads=s.heads, hidden_dim=s.hidden_dim, dropout=s.dropout),
    "cnn": lambda s: Convolving(s.dim, dropout=s.dropout),
    "gru": lambda s: Recurring(s.dim, cell=nn.GRU, dropout=s.dropout),
    "lstm": lambda s: Recurring(s.dim, cell=nn.LSTM, dropout=s.dropout),
}


def reader(settings: Sizes, words: int) -> Mixed:
    """The stack that the settings describe, over a vocabulary of this size."""
    if not settings.layers:
        raise ConfigError(f"layers=none is not possible; name one or more of {', '.join(LAYERS)}")
    if strange := [name for name in settings.layers if name not in LAYERS]:
        raise ConfigError(f"layers: there is no layer {strange[0]!r}; the layers are {', '.join(LAYERS)}")
    if settings.dim % settings.heads or settings.dim % 2:
        raise ConfigError(f"dim={settings.dim} must be even and a multiple of heads={settings.heads}")
    layers = [LAYERS[name](settings) for name in settings.layers]
    return Mixed(words, settings.dim, layers, settings.dropout)
