"""What a machine with a memory can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.errors import ConfigError
from regard.training.settings import Settings, setting

COUNTS = ("batch", "shortest", "repeats", "bits", "layers", "read_heads", "write_heads")
SIZES = ("hidden_dim", "rows", "width")


@dataclass(frozen=True, kw_only=True)
class Remembering(Settings):
    """Sequences of bits, and a machine that learns to do something with them."""

    # data
    batch: int = setting(16, "sequences in a batch; all of one size")
    shortest: int = setting(1, "least length of a sequence: vectors, items of recall, bits of ngrams")
    longest: int = setting(20, "greatest length of a sequence")
    repeats: int = setting(10, "repeat-copy: how often at most")
    bits: int = setting(8, "bits of a vector")
    # model
    model: Literal["ntm", "lstm"] = setting(
        "ntm", "a Neural Turing Machine, or layers of LSTM without a memory"
    )
    controller: Literal["lstm", "feedforward"] = setting("lstm", "ntm: with a state of its own, or without")
    hidden_dim: int = setting(100, "size of the controller, or of a layer of LSTM")
    layers: int = setting(3, "lstm: layers")
    rows: int = setting(128, "ntm: rows of the memory")
    width: int = setting(20, "ntm: numbers in a row")
    read_heads: int = setting(1, "ntm: heads that read")
    write_heads: int = setting(1, "ntm: heads that write")
    shift: int = setting(1, "ntm: how far a head can step aside at once")

    state_clip: float | None = setting(
        1e4, "ntm: greatest number of a gradient that goes back from step to step; the paper has 10"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (*COUNTS, *SIZES):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is too small: it must be at least 1")
        if self.shift < 0:
            raise ConfigError(f"shift={self.shift} is too small: it must be at least 0")
        if self.state_clip is not None and not self.state_clip > 0:
            raise ConfigError(f"state_clip={self.state_clip} must be greater than 0, or none")
        if self.longest < self.shortest:
            raise ConfigError(f"longest={self.longest} is less than shortest={self.shortest}")
        if self.watch not in ("bits", "loss", "errors"):
            raise ConfigError(f"watch={self.watch} is not possible; watch is one of bits, loss, errors")
