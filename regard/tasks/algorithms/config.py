"""What a machine with a memory can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config import option
from regard.training.config import MONITOR_HELP, TrainingConfig

NTM = {"model": "ntm"}


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(TrainingConfig):
    """Sequences of bits, and a machine that learns to do something with them."""

    monitor: str = option("loss", MONITOR_HELP, choices=("loss", "bits", "errors"))
    # data
    batch_size: int = option(16, "sequences in a batch; all of one size", ge=1)
    min_size: int = option(1, "least length of a sequence: vectors, items of recall, bits of ngrams", ge=1)
    max_size: int = option(20, "greatest length of a sequence", ge=1)
    max_repeats: int = option(10, "repeat-copy: how often at most", ge=1)
    num_bits: int = option(8, "bits of a vector", ge=1)
    # model
    model: Literal["ntm", "lstm"] = option(
        "ntm", "a Neural Turing Machine, or layers of LSTM without a memory"
    )
    controller: Literal["lstm", "feedforward"] = option(
        "lstm", "ntm: with a state of its own, or without", when=NTM
    )
    hidden_dim: int = option(100, "size of the controller, or of a layer of LSTM", ge=1)
    num_layers: int = option(3, "lstm: layers", ge=1, when={"model": "lstm"})
    memory_rows: int = option(128, "ntm: rows of the memory", ge=1, when=NTM)
    memory_width: int = option(20, "ntm: numbers in a row", ge=1, when=NTM)
    num_read_heads: int = option(1, "ntm: heads that read", ge=1, when=NTM)
    num_write_heads: int = option(1, "ntm: heads that write", ge=1, when=NTM)
    max_shift: int = option(1, "ntm: how far a head can step aside at once", ge=0, when=NTM)

    state_grad_clip: float | None = option(
        1e4,
        "ntm: greatest number of a gradient that goes back from step to step; the paper has 10",
        gt=0,
        infinite=True,
        when=NTM,
    )

    def validate(self) -> None:
        """Refuse a range of lengths that is empty."""
        if self.max_size < self.min_size:
            raise self.option("max_size").error(self.max_size, f"must be at least min_size={self.min_size}")
