"""What the tasks of plain text have in common: a tokenizer of their own, passages, and how they run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from regard.data import Tokenizer
from regard.data.passages import Passages
from regard.recipes._held import told
from regard.recipes._task import Experiment, Recipe, Task, fitted
from regard.recipes.texts._material import Texts
from regard.recipes.texts.settings import Text
from regard.training import Run

Told = TypeVar("Told", bound=Text)


class Reading(Task[Told]):
    """Plain text in passages, and what is learned of it; `gives` is what uses the model."""

    gives: ClassVar[type[Any]]

    @abstractmethod
    def learn(self, texts: Texts, settings: Told) -> Tokenizer:
        """The tokenizer of the training text."""

    @abstractmethod
    def passages(self, texts: Iterable[str], tokenizer: Tokenizer, settings: Told) -> Passages:
        """Texts as the model reads them."""

    @abstractmethod
    def objective(self, settings: Told, tokens: int) -> Any:
        """The network that the settings describe, over so many tokens, with its loss."""

    @abstractmethod
    def validation(self, objective: Any, valid: Passages) -> Callable[[], dict[str, float]]:
        """How well it does on what was held out."""

    @abstractmethod
    def judged(self, made: Any, texts: Iterable[str]) -> dict[str, Any]:
        """The same of what `load` gave, on any texts."""

    def kept(self, run: Run) -> Tokenizer:
        """The tokenizer that a run keeps."""
        return Tokenizer.load(run.folder / self.files[0])

    def check(self, recipe: Recipe, settings: Told) -> None:
        recipe.material(settings)
        with torch.device("meta"):
            self.objective(settings, 8)

    def experiment(self, run: Run, recipe: Recipe, settings: Told) -> Experiment[Told]:
        tokenizer, texts = self.kept(run), recipe.material(settings)
        data, valid = (self.passages(part(), tokenizer, settings) for part in (texts.train, texts.valid))
        objective: nn.Module = self.objective(settings, len(tokenizer))
        reports = {"train": data.report, "valid": valid.report}
        return Experiment(
            run,
            settings,
            objective,
            data,
            self.validation(objective, valid),
            {"vocabulary": len(tokenizer), "data": {name: one.as_dict() for name, one in reports.items()}},
            told(reports, held=not settings.valid),
        )

    def judge(self, recipe: Recipe, made: Any, part: str | None = None) -> dict[str, Any]:
        parts = recipe.material(made.settings).parts
        chosen = part or next(iter(parts))
        return {**self.judged(made, parts[chosen]()), "part": chosen}

    def load(
        self,
        run: Run,
        recipe: Recipe,
        settings: Told,
        weights: Mapping[str, Tensor],
        where: str,
        device: str,
    ) -> Any:
        tokenizer = self.kept(run)
        objective = fitted(lambda: self.objective(settings, len(tokenizer)), weights, where)
        return self.gives(objective.to(device).model, tokenizer, settings)

    def ready(self, run: Run, recipe: Recipe, settings: Told, origin: Run | None) -> None:
        """The tokenizer: learned from the text, or that of the run it begins with."""
        found = self.learn(recipe.material(settings), settings) if origin is None else self.kept(origin)
        found.save(run.folder / self.files[0])
