"""A trained language model: it goes on with a text, and says how well it would have foretold one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from regard.data import BOS, UNK, Tokenizer
from regard.data.passages import PassageReport, Passages
from regard.decoding import Decoding, decode
from regard.errors import InputTooLongError
from regard.models.language import LanguageModel
from regard.recipes.texts.settings import Language
from regard.training import word_loss


@dataclass(frozen=True)
class Written:
    """A text with its beginning, the log-probability of what was added, and whether it came to an end."""

    text: str
    log_prob: float
    tokens: int
    finished: bool

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


class Writer:
    """A model with its tokenizer. `regard.load(RUN)` gives one."""

    def __init__(self, model: LanguageModel, tokenizer: Tokenizer, settings: Language):
        self.model, self.tokenizer, self.settings = model.eval(), tokenizer, settings

    @property
    def device(self) -> torch.device:
        return self.model.output.weight.device

    def write(
        self,
        beginning: str = "",
        number: int = 1,
        *,
        length: int | None = None,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> list[Written]:
        """Go on with a beginning, `number` times; `options` are those of `Decoding`, which draws if none is named.

        At most `length` tokens are added, and no more than fit into a passage of training behind the beginning.
        """
        ids = self.tokenizer.encode(beginning)
        room = self.settings.length - len(ids)
        if room < 1:
            raise InputTooLongError(
                f"the beginning has {len(ids):,} tokens, but this model takes {self.settings.length - 1:,}"
                " (length); shorten it"
            )
        most = min(room, length or room)
        how = Decoding(
            **{"method": "sample", **options},
            best=number,
            max_length=most,
            length_ratio=0,
            length_extra=most,
        )
        begun = torch.tensor([[BOS, *ids]], device=self.device)
        lengths = torch.tensor([begun.shape[1]], device=self.device)
        found = decode(self.model, begun, lengths, how, generator=generator)[0]
        surfaces = self.tokenizer.surfaces(beginning)
        unknown = {place: surfaces[place] for place, token in enumerate(ids) if token == UNK}
        return [
            Written(
                self.tokenizer.decode([*ids, *one.ids], unknown), one.log_prob, len(one.ids), one.finished
            )
            for one in found
        ]

    @torch.no_grad()
    def evaluate(self, texts: Iterable[str]) -> dict[str, Any]:
        """How well it foretells texts: nats a token, perplexity, and bits a character, which tokens do not change."""
        settings, output = self.settings, self.model.output
        given = Passages(texts, self.tokenizer, length=settings.length, tokens=settings.batch_tokens)
        total = 0.0
        for batch in given.in_order():
            batch = batch.to(self.device)
            real = torch.arange(1, batch.words.shape[1], device=self.device) < batch.lengths[:, None]
            hidden = self.model(batch.words[:, :-1])[real]
            total += float(word_loss(hidden, output.weight, None, batch.words[:, 1:][real])[0])
        return {**given.report.as_dict(), **foretold(total, given.report)}


def foretold(total: float, report: PassageReport) -> dict[str, float]:
    """What a text costs in all, a token, a character.

    >>> foretold(100.0, PassageReport(tokens=50, characters=200))["perplexity"] == math.exp(2)
    True
    """
    each = total / report.tokens
    return {
        "loss": each,
        "perplexity": math.exp(min(each, 100.0)),
        "bits_per_character": total / math.log(2) / report.characters,
    }
