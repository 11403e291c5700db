"""The tasks and recipes by name; importing it imports neither torch nor any task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from inspect import isabstract
from typing import TYPE_CHECKING, Any

from regard._imports import resolve
from regard.errors import UnknownNameError

if TYPE_CHECKING:
    from regard.tasks.task import DataSplits, Task
    from regard.training import TrainingConfig

__all__ = ["RECIPES", "TASKS", "Recipe", "TaskEntry", "get_recipe", "get_task"]


@dataclass(frozen=True)
class TaskEntry:
    """Where a task is: `<package>.config` (torch-free: config, options, RECIPES), `.task`, `.predictor`.

    A package of one module has all three.

    Args:
        package: name of the package
        verb: name of its command
    """

    package: str
    verb: str

    def import_part(self, name: str) -> Any:
        """The module of a part, or the package if it has no such module."""
        package = import_module(self.package)
        if hasattr(package, "__path__") and find_spec(f"{self.package}.{name}") is not None:
            return import_module(f"{self.package}.{name}")
        return package


@dataclass(frozen=True)
class Recipe:
    """A task with data and defaults, under a name.

    Args:
        name: of the recipe
        task: name of the task
        data: "module:function" from a config to DataSplits; imported when it is needed
        summary, summary_zh: one line
        defaults: options that differ from the defaults of the config
    """

    name: str
    task: str
    data: str
    summary: str
    summary_zh: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def load_data(self, config: Any) -> DataSplits[Any]:
        """The splits for a config."""
        splits: DataSplits[Any] = resolve(self.data)(config)
        return splits

    @property
    def config_class(self) -> type[TrainingConfig]:
        """The config of its task."""
        classes = getattr(_entries()[self.task].import_part("config"), "CONFIG_CLASSES", {})
        return classes[self.task] if self.task in classes else get_task(self.task).config_class


TASKS: dict[str, TaskEntry] = {
    "translation": TaskEntry("regard.tasks.translation", verb="translate"),
    "algorithm": TaskEntry("regard.tasks.algorithms", verb="run"),
    "text-classification": TaskEntry("regard.tasks.text_classification", verb="classify"),
    "text-generation": TaskEntry("regard.tasks.language_modeling", verb="generate"),
    "fill-mask": TaskEntry("regard.tasks.language_modeling", verb="fill"),
    "image-to-text": TaskEntry("regard.tasks.captioning", verb="caption"),
    "image-classification": TaskEntry("regard.tasks.vision", verb="classify"),
    "visual-question-answering": TaskEntry("regard.tasks.vision", verb="ask"),
}


class RecipeTable(Mapping[str, Any]):
    """The recipes of all tasks by name; the configs of the tasks are imported at the first access.

    A test or a package may add recipes with `add`.
    """

    def __init__(self) -> None:
        self._added: dict[str, Any] = {}

    def add(self, recipe: Recipe) -> None:
        """Add a recipe."""
        self._added[recipe.name] = recipe

    def remove(self, name: str) -> None:
        """Remove a recipe that was added."""
        del self._added[name]

    def _all(self) -> dict[str, Any]:
        return _recipes_of(tuple(_entries().values())) | self._added

    def __getitem__(self, name: str) -> Any:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


RECIPES = RecipeTable()


def get_recipe(name: str) -> Any:
    """The recipe of a name.

    Example:
        >>> get_recipe("reverse").name
        'reverse'
    """
    if name not in RECIPES:
        raise UnknownNameError.among("recipe", name, RECIPES)
    return RECIPES[name]


def get_task(name: str) -> Task[Any, Any, Any, Any]:
    """The task of a name; its module is imported."""
    entries = _entries()
    if name not in entries:
        raise UnknownNameError.among("task", name, entries)
    for value in vars(entries[name].import_part("task")).values():
        if isinstance(value, type) and not isabstract(value) and getattr(value, "name", None) == name:
            return value()
    raise UnknownNameError(f"{entries[name].package} has no task {name!r}")


def _entries() -> dict[str, TaskEntry]:
    """`TASKS`, and the entry points of the group "regard.tasks", which name a `TaskEntry` each."""
    return {**_installed_entries(), **TASKS}


@cache
def _installed_entries() -> dict[str, TaskEntry]:
    return {point.name: point.load() for point in entry_points(group="regard.tasks")}


@cache
def _recipes_of(entries: tuple[TaskEntry, ...]) -> dict[str, Any]:
    recipes: dict[str, Any] = {}
    for entry in dict.fromkeys(entries):
        for part in ("config", "recipes"):  # `recipes` of tasks that are not ported yet
            for recipe in getattr(entry.import_part(part), "RECIPES", ()):
                recipes.setdefault(recipe.name, recipe)
    return recipes
