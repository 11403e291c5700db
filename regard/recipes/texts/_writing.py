"""The task of a language model: a tokenizer, passages of text, a decoder alone, and how well it foretells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from regard.data import Tokenizer
from regard.data.passages import Passages, TextBatch
from regard.models.language import LanguageModel
from regard.recipes.texts._material import Texts
from regard.recipes.texts._reading import Reading
from regard.recipes.texts.settings import Language
from regard.recipes.texts.writer import Writer, foretold
from regard.training import Loss, Settings, word_loss


class NextToken(nn.Module):
    """The cross entropy of each token after those before it, summed over a batch."""

    def __init__(self, model: LanguageModel):
        super().__init__()
        self.model = model

    def forward(self, batch: TextBatch) -> Loss:
        hidden, words = self.model(batch.words[:, :-1]).flatten(0, 1), batch.words[:, 1:].flatten()
        steps = torch.arange(batch.words.shape[1] - 1, device=words.device)
        real = (steps < (batch.lengths - 1)[:, None]).flatten().nonzero().squeeze(1)
        if len(real) < len(words):
            hidden, words = hidden.index_select(0, real), words.index_select(0, real)
        total, _ = word_loss(hidden, self.model.output.weight, None, words)
        return Loss(total, batch.tokens)


class Writing(Reading[Language]):
    """From a beginning to what follows."""

    settings: ClassVar[type[Settings]] = Language
    uses = ('write {run} "..."', "evaluate {run}", "info {run}")
    files = ("tokens.json",)
    gives = Writer

    def learn(self, texts: Texts, settings: Language) -> Tokenizer:
        return Tokenizer.learn(
            texts.train(), settings.tokenizer, settings.vocab, lowercase=settings.lowercase
        )

    def passages(self, texts: Iterable[str], tokenizer: Tokenizer, settings: Language) -> Passages:
        return Passages(
            texts, tokenizer, length=settings.length, tokens=settings.batch_tokens, seed=settings.seed
        )

    def objective(self, settings: Language, tokens: int) -> NextToken:
        return NextToken(build(settings, tokens))

    def validation(self, objective: NextToken, valid: Passages) -> Validation:
        return Validation(objective, valid)

    def judged(self, made: Writer, texts: Iterable[str]) -> dict[str, Any]:
        return made.evaluate(texts)


@dataclass(frozen=True)
class Validation:
    """What a token of the text costs, its exponential, and the same in bits a character."""

    objective: NextToken
    valid: Passages

    def __call__(self) -> dict[str, float]:
        device, total = self.objective.model.output.weight.device, 0.0
        for batch in self.valid.in_order():
            total += float(self.objective(batch.to(device)).total)
        return foretold(total, self.valid.report)


def build(settings: Language, words: int) -> LanguageModel:
    """The network that the settings describe."""
    return LanguageModel(
        words,
        dim=settings.dim,
        heads=settings.heads,
        layers=settings.layers,
        hidden_dim=settings.hidden_dim,
        dropout=settings.dropout,
    )
