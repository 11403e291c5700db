from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from regard.data.document_splitter import Truncation

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Classification:
    """The likeliest class of a document, the probability of each, and what was left out of a document too long."""

    label: str
    probabilities: dict[str, float]
    truncation: Truncation = field(default_factory=Truncation)

    @property
    def probability(self) -> float:
        return self.probabilities[self.label]

    def to_json(self) -> dict[str, Any]:
        plain = {"label": self.label, "probabilities": self.probabilities}
        return plain | ({"left_out": vars(self.truncation)} if self.truncation else {})
