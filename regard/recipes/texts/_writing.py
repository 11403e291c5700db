"""The task of a language model: a tokenizer, passages of text, a decoder alone, and how well it foretells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.data import Tokenizer
from regard.data.passages import Passages, TextBatch
from regard.models.language import LanguageModel
from regard.recipes._task import Experiment, Recipe, Task, fitted
from regard.recipes.texts import _material as _texts
from regard.recipes.texts.settings import Language
from regard.recipes.texts.writer import Writer, foretold
from regard.training import Loss, Run, Settings, word_loss

TOKENS = ("tokenizer", "vocab", "lowercase")


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


class Writing(Task[Language]):
    """From a beginning to what follows."""

    settings: ClassVar[type[Settings]] = Language
    uses = ('write {run} "..."', "evaluate {run}", "info {run}")
    files = ("tokens.json",)

    def check(self, recipe: Recipe, settings: Language) -> None:
        recipe.material(settings)
        with torch.device("meta"):
            build(settings, 8)

    def experiment(self, run: Run, recipe: Recipe, settings: Language) -> Experiment[Language]:
        tokenizer, texts = kept(run), recipe.material(settings)
        data, valid = (
            Passages(
                part(),
                tokenizer,
                length=settings.length,
                tokens=settings.batch_tokens,
                seed=settings.seed,
            )
            for part in (texts.train, texts.valid)
        )
        objective = NextToken(build(settings, len(tokenizer)))
        reports = {"train": data.report, "valid": valid.report}
        return Experiment(
            run,
            settings,
            objective,
            data,
            Validation(objective, valid),
            {"vocabulary": len(tokenizer), "data": {name: one.as_dict() for name, one in reports.items()}},
            [f"{name}: {one}" for name, one in reports.items()],
        )

    def load(
        self,
        run: Run,
        recipe: Recipe,
        settings: Language,
        weights: Mapping[str, Tensor],
        where: str,
        device: str,
    ) -> Writer:
        tokenizer = kept(run)
        objective = fitted(lambda: NextToken(build(settings, len(tokenizer))), weights, where)
        return Writer(objective.to(device).model, tokenizer, settings)

    def judge(self, recipe: Recipe, made: Writer, part: str | None = None) -> dict[str, Any]:
        texts = recipe.material(made.settings)
        known = {**texts.tests, "valid": texts.valid}
        chosen = part or next(iter(known))
        return {**made.evaluate(known[chosen]()), "part": chosen}

    def like(self, settings: Language, kept: Mapping[str, Any]) -> Language:
        return replace(settings, **{key: kept[key] for key in TOKENS})

    def ready(self, run: Run, recipe: Recipe, settings: Language, origin: Run | None) -> None:
        """The tokenizer: learned from the text, or that of the run it begins with."""
        tokenizer = learn(recipe.material(settings), settings) if origin is None else kept(origin)
        tokenizer.save(run.folder / self.files[0])


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


def learn(texts: _texts.Texts, settings: Language) -> Tokenizer:
    """The tokenizer of the training text."""
    return Tokenizer.learn(texts.train(), settings.tokenizer, settings.vocab, lowercase=settings.lowercase)


def kept(run: Run) -> Tokenizer:
    """The tokenizer that a run keeps."""
    return Tokenizer.load(run.folder / Writing.files[0])


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
