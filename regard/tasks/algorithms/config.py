"""Options of the algorithm tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config import option
from regard.training.config import MONITOR_HELP, TrainingConfig

__all__ = ["AlgorithmConfig"]

NTM = {"model": "ntm"}


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(TrainingConfig):
    """Options of an algorithm on sequences of bits and of the network that learns it."""

    monitor: str = option("loss", MONITOR_HELP, choices=("loss", "bits", "errors"))
    # data
    batch_size: int = option(16, "sequences in a batch, all of one size", ge=1)
    min_size: int = option(1, "minimum length of a sequence: vectors, items of recall, bits of ngrams", ge=1)
    max_size: int = option(20, "maximum length of a sequence", ge=1)
    max_repeats: int = option(10, "repeat-copy: maximum number of repeats", ge=1)
    num_bits: int = option(8, "bits of a vector", ge=1)
    # model
    model: Literal["ntm", "lstm"] = option("ntm", "a Neural Turing Machine, or an LSTM without external memory")
    controller: Literal["lstm", "feedforward"] = option(
        "lstm", "ntm: a controller with a recurrent state, or without", when=NTM
    )
    hidden_dim: int = option(100, "hidden size of the controller, or of an LSTM layer", ge=1)
    num_layers: int = option(3, "lstm: number of layers", ge=1, when={"model": "lstm"})
    memory_rows: int = option(128, "ntm: rows of the memory", ge=1, when=NTM)
    memory_width: int = option(20, "ntm: size of a memory row", ge=1, when=NTM)
    num_read_heads: int = option(1, "ntm: read heads", ge=1, when=NTM)
    num_write_heads: int = option(1, "ntm: write heads", ge=1, when=NTM)
    max_shift: int = option(1, "ntm: largest shift of a head in one step", ge=0, when=NTM)
    state_grad_clip: float | None = option(
        1e4, "ntm: clipping value of gradients between steps; 10 in the paper", gt=0, infinite=True, when=NTM
    )

    def validate(self) -> None:
        """Refuse an empty range of lengths."""
        if self.max_size < self.min_size:
            raise self.option("max_size").error(self.max_size, f"must be at least min_size={self.min_size}")
