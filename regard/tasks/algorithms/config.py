"""Options and recipes of the algorithm task: the algorithms of Graves et al. (2014)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from regard.config import Config, option
from regard.tasks.registry import make_recipe
from regard.training.config import MONITOR_HELP, TrainingConfig

__all__ = ["AlgorithmConfig", "AlgorithmEvaluateOptions", "AlgorithmExplainOptions"]

NTM = {"model": "ntm"}


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(TrainingConfig):
    """Options of an algorithm on sequences of bits and of the network that learns it.

    Example:
        >>> AlgorithmConfig.from_overrides(["max_size=10", "model=lstm"]).max_size
        10
    """

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
        "lstm", "a controller with a recurrent state, or without", when=NTM
    )
    hidden_dim: int = option(100, "hidden size of the controller, or of an LSTM layer", ge=1)
    num_layers: int = option(3, "number of layers", ge=1, when={"model": "lstm"})
    memory_rows: int = option(128, "rows of the memory", ge=1, when=NTM)
    memory_width: int = option(20, "size of a memory row", ge=1, when=NTM)
    num_read_heads: int = option(1, "read heads", ge=1, when=NTM)
    num_write_heads: int = option(1, "write heads", ge=1, when=NTM)
    max_shift: int = option(1, "largest shift of a head in one step", ge=0, when=NTM)
    state_grad_clip: float | None = option(
        1e4, "clipping value of gradients between steps; 10 in the paper", gt=0, infinite=True, when=NTM
    )

    def validate(self) -> None:
        """Refuse an empty range of lengths."""
        if self.max_size < self.min_size:
            raise self.error("max_size", f"must be at least min_size={self.min_size}")


@dataclass(frozen=True, kw_only=True)
class SequenceOptions(Config):
    """Options of generated sequences; a size that is not given is the largest of training."""

    length: int | None = option(None, "length of a sequence: vectors, bits of ngrams", ge=1)
    repeats: int | None = option(None, "repeat-copy: number of repeats", ge=1)
    items: int | None = option(None, "recall: number of items", ge=2)
    memory_rows: int | None = option(
        None, "ntm: rows of the memory; auto: as many as the sequence needs", ge=1, auto=True
    )
    seed: int = option(0, "seed of the sequences", ge=0)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that are given, by name."""
        sizes = {"length": self.length, "repeats": self.repeats, "items": self.items}
        return {name: size for name, size in sizes.items() if size is not None}


@dataclass(frozen=True, kw_only=True)
class AlgorithmEvaluateOptions(SequenceOptions):
    """Options of `AlgorithmPredictor.evaluate`; with a size, only sequences of this size are generated."""

    num_sequences: int = option(20, "sequences of each size", ge=1)


@dataclass(frozen=True, kw_only=True)
class AlgorithmExplainOptions(SequenceOptions):
    """Options of `AlgorithmPredictor.explain`."""

    head: int | None = option(
        None, "this head, counted from 0; auto: the one with the sharpest weights", ge=0, auto=True
    )


CONFIG_CLASSES: dict[str, type[TrainingConfig]] = {"algorithm": AlgorithmConfig}
OPTION_CLASSES: dict[str, dict[str, type[Config]]] = {
    "algorithm": {"evaluate": AlgorithmEvaluateOptions, "explain": AlgorithmExplainOptions}
}

RMSPROP = "optimizer=rmsprop lr=3e-4 beta2=0.95 momentum=0.9 eps=1e-4"
SCHEDULE = "schedule=constant warmup_steps=0 steps=5000 validate_every=250 save_every=250"
DEFAULTS = f"monitor=bits {RMSPROP} {SCHEDULE}"
LONG_TRAINING = "schedule=cosine average_last=5"
LARGE_BATCHES = "batch_size=32"  # difficult sequences are rare
FEEDFORWARD = "controller=feedforward"  # without a recurrent state, the controller has to use the memory (table 1)

_recipe = partial(make_recipe, "algorithm", AlgorithmConfig, "regard.tasks.algorithms.data")
RECIPES = (
    _recipe(
        "copy",
        "Read vectors of bits and output them again (Neural Turing Machine).",
        # With few rows, a head that moves the wrong way overwrites data and learns not to; with a small gradient norm,
        # a rare sequence changes the weights only a little.
        f"{DEFAULTS} memory_rows=32 max_grad_norm=0.05",
    ),
    _recipe(
        "repeat-copy",
        "Read vectors and a number n, and output the vectors n times.",
        f"{DEFAULTS} {LONG_TRAINING} {LARGE_BATCHES} steps=12000 max_size=10",
    ),
    _recipe(
        "recall",
        "Read items, then one of them again, and output the item that followed it.",
        f"{DEFAULTS} {LONG_TRAINING} {LARGE_BATCHES} {FEEDFORWARD} hidden_dim=256 num_read_heads=4 num_write_heads=4"
        " steps=8000 min_size=2 max_size=6 num_bits=6 memory_rows=64",
    ),
    _recipe(
        "ngrams",
        "Predict each bit of a source that depends on its last five bits; the optimal prediction is known.",
        # Gradients between steps are clipped as in the paper: over 200 steps, they may explode.
        f"{DEFAULTS} {LONG_TRAINING} lr=1e-3 eps=1e-5 max_grad_norm=0.05 state_grad_clip=10 steps=15000"
        " min_size=200 max_size=200 num_bits=1",
    ),
    _recipe(
        "sort",
        "Read vectors with priorities and output them in that order.",
        f"{DEFAULTS} {LONG_TRAINING} {LARGE_BATCHES} {FEEDFORWARD} hidden_dim=512 num_read_heads=8 num_write_heads=8"
        " steps=20000 min_size=20 max_size=20",
    ),
)
