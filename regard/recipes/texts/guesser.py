"""A trained encoder that fills in hidden words."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from regard.data import BOS, EOS, Tokenizer
from regard.errors import InputError, InputTooLongError
from regard.models.language import MaskedLanguageModel
from regard.recipes.texts._material import spaced
from regard.recipes.texts.settings import MaskedLanguage

GAP = "___"


class Guess(NamedTuple):
    """A word that may stand in a gap, and its probability."""

    word: str
    probability: float


class Guesser:
    """A model with its words. `regard.load(RUN)` gives one."""

    def __init__(self, model: MaskedLanguageModel, words: Tokenizer, settings: MaskedLanguage):
        self.model, self.words, self.settings = model.eval(), words, settings

    @property
    def device(self) -> torch.device:
        return self.model.output.weight.device

    @torch.no_grad()
    def guess(self, text: str, best: int = 5) -> list[list[Guess]]:
        """The likeliest words of each gap in a text, where a gap is written ___."""
        ids, gaps = self._read(text)
        shown = torch.tensor([[BOS, *ids, EOS]], device=self.device)
        states = self.model(shown, torch.tensor([shown.shape[1]], device=self.device))
        scores = self.model.output(states[0, gaps])
        scores[:, : EOS + 1] = scores[:, -1] = -torch.inf  # only words: no special token, and no mask
        shares, found = scores.softmax(-1).topk(min(best, len(self.words) - EOS - 1))
        return [
            [Guess(self.words.decode([number]), share) for number, share in zip(row, shares_, strict=True)]
            for row, shares_ in zip(found.tolist(), shares.tolist(), strict=True)
        ]

    def filled(self, text: str) -> str:
        """The text with the likeliest word in each gap."""
        parts = text.split(GAP)
        words = [several[0].word for several in self.guess(text, 1)]
        return "".join(part + word for part, word in zip(parts, [*words, ""], strict=True))

    def to_json(self, text: str, best: int = 5) -> dict[str, Any]:
        """Plain lists and numbers."""
        return {
            "text": text,
            "filled": self.filled(text),
            "gaps": [[guess._asdict() for guess in gap] for gap in self.guess(text, best)],
        }

    def _read(self, text: str) -> tuple[list[int], list[int]]:
        """The numbers of the words with the mask in each gap, and where the gaps are behind BOS."""
        cut = spaced(self.settings.tokenizer)
        ids: list[int] = []
        gaps: list[int] = []
        for place, part in enumerate(text.split(GAP)):
            if place:
                gaps.append(len(ids) + 1)
                ids.append(len(self.words))
            ids += self.words.encode(cut(part))
        if not gaps:
            raise InputError(f"there is no gap to fill in; write {GAP} where a word is hidden")
        if len(ids) + 1 > self.settings.length:
            raise InputTooLongError(
                f"the text has {len(ids):,} words, but this model takes {self.settings.length - 1:,} (length);"
                " shorten it"
            )
        return ids, gaps
