"""What runs an exported model in PyTorch's place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding import Decoding, Hypothesis, Steps
from regard.errors import UnsupportedError


class Engine(ABC):
    """A model that another program computes; a `Translator` takes it where it would take a network.

    It must give whole translations. One that can also take single steps (`begin`) shows its search, and one that
    tells where it looked (`looks`, `attends`) shows alignments.
    """

    name: ClassVar[str]
    device = torch.device("cpu")  # where tensors that it is given should be
    attends = False

    @abstractmethod
    def search(
        self, sources: Sequence[list[int]], options: Decoding, generator: torch.Generator | None = None
    ) -> list[list[Hypothesis]]:
        """The best translations of each source, whose tokens end with EOS."""

    def begin(self, source: Int[Tensor, "rows source"], source_lengths: Int[Tensor, " rows"], /) -> Steps:
        raise UnsupportedError(
            f"{self.name} gives whole translations and shows no single steps; use the run it was exported from"
        )

    def looks(
        self,
        source: Int[Tensor, "rows source"],
        source_lengths: Int[Tensor, " rows"],
        target: Int[Tensor, "rows target"],
    ) -> list[Float[Tensor, "rows heads target-1 source"]]:
        raise UnsupportedError(f"{self.name} does not tell where it looked; use the run it was exported from")
