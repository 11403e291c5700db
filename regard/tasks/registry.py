"""The tasks, recipes and configs by name, and the records of runs; importing it imports neither torch nor any task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from inspect import isabstract
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from regard._imports import resolve
from regard.config import Config, load_translations, split_override
from regard.errors import RunFormatError, UnknownNameError
from regard.files import EXPORT_FILE, check_files, is_checkpoint, is_export
from regard.training.run import RunFolder

if TYPE_CHECKING:
    from regard.tasks.task import DataSplits, Task
    from regard.training import TrainingConfig

__all__ = [
    "EXPORT_FILE", "RECIPES", "RECORD_FORMAT", "TASKS", "NoOptions", "Recipe", "TaskEntry", "cache_records",
    "check_processor", "find_task", "get_entry", "get_options", "get_recipe", "get_task", "is_checkpoint", "is_export",
    "list_verbs", "make_config", "make_recipe", "open_record", "read_record", "recipe_name",
]  # fmt: skip

RECORD_FORMAT = 2  # of run.json
_RECORDS: ContextVar[dict[Path, dict[str, Any]] | None] = ContextVar("records", default=None)


@dataclass(frozen=True, kw_only=True)
class NoOptions(Config):
    """The options of what has none."""


@dataclass(frozen=True)
class TaskEntry:
    """Where a task is: `<package>.config` (torch-free: config, options, RECIPES), `.task`, `.predictor`.

    A package of one module has all three.

    Args:
        package: name of the package
        verb: name of its command
        help: one line about the command; empty: it is not listed, such as one of a task without inputs

    Example:
        >>> TaskEntry("regard.tasks.vision", verb="classify").import_part("config").__name__
        'regard.tasks.vision.config'
    """

    package: str
    verb: str
    help: str = ""

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
        reads_files: whether its data are files that the user names: train_files, valid_files, test_files

    Example:
        >>> get_recipe("reverse").config_class.__name__
        'TranslationConfig'
    """

    name: str
    task: str
    data: str
    summary: str
    summary_zh: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    reads_files: bool = False

    def load_data(self, config: Any) -> DataSplits[Any]:
        """The splits for a config."""
        return resolve(self.data)(config)

    @property
    def config_class(self) -> type[TrainingConfig]:
        """The config of its task."""
        classes = getattr(_entries()[self.task].import_part("config"), "CONFIG_CLASSES", {})
        return classes[self.task] if self.task in classes else get_task(self.task).config_class


def make_recipe(
    task: str,
    config_class: type[Config],
    module: str,
    name: str,
    summary: str,
    defaults: str,
    *,
    function: str = "",
    reads_files: bool = False,
) -> Recipe:
    """A recipe whose data is a function in a module, and whose defaults are written as on the command line.

    Its Chinese summary is in the file of translations.

    Args:
        task, config_class: the name of the task and its config
        module: of the function
        name, summary, reads_files: as in `Recipe`
        defaults: separated by spaces; of an option that is repeated, the last value counts
        function: its name; by default that of the recipe, with "_" in place of "-"

    Example:
        >>> from regard.training import TrainingConfig
        >>> recipe = make_recipe("a", TrainingConfig, "module", "my-recipe", "", "steps=10 seed=1 steps=20")
        >>> recipe.data, recipe.defaults
        ('module:my_recipe', {'steps': 20, 'seed': 1})
    """
    options = {key: config_class.option(key).parse(text) for key, text in map(split_override, defaults.split())}
    data = f"{module}:{function or name.replace('-', '_')}"
    summary_zh = load_translations("zh").get(f"Recipe.{name}", "")
    return Recipe(name, task, data, summary, summary_zh, options, reads_files)


TASKS: dict[str, TaskEntry] = {
    "translation": TaskEntry("regard.tasks.translation", verb="translate", help="Translate texts."),
    "algorithm": TaskEntry("regard.tasks.algorithms", verb="run"),
    "text-classification": TaskEntry(
        "regard.tasks.text_classification", verb="classify", help="Classify texts or images."
    ),
    "text-generation": TaskEntry("regard.tasks.language_modeling", verb="generate", help="Continue a text."),
    "fill-mask": TaskEntry("regard.tasks.language_modeling", verb="fill", help="Fill the gaps of a text."),
    "image-to-text": TaskEntry("regard.tasks.captioning", verb="caption", help="Describe images in words."),
    "image-classification": TaskEntry("regard.tasks.vision", verb="classify"),
    "visual-question-answering": TaskEntry("regard.tasks.vision", verb="ask", help="Answer a question about an image."),
}


class RecipeTable(Mapping[str, Recipe]):
    """The recipes of all tasks by name; the configs of the tasks are imported at the first access.

    A test or a package may add recipes with `add`.
    """

    def __init__(self) -> None:
        self._added: dict[str, Recipe] = {}

    def add(self, recipe: Recipe) -> None:
        """Add a recipe."""
        self._added[recipe.name] = recipe

    def remove(self, name: str) -> None:
        """Remove a recipe that was added."""
        del self._added[name]

    def _all(self) -> dict[str, Recipe]:
        return _recipes_of(tuple(_entries().values())) | self._added

    def __getitem__(self, name: str) -> Recipe:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


RECIPES = RecipeTable()


def get_recipe(name: str) -> Recipe:
    """The recipe of a name.

    Args:
        name: of the recipe

    Example:
        >>> get_recipe("reverse").name
        'reverse'
    """
    if name not in RECIPES:
        UnknownNameError.check("recipe", name, RECIPES)
    return RECIPES[name]


def get_task(name: str) -> Task[Any, Any, Any, Any]:
    """The task of a name; its module is imported.

    Args:
        name: of the task

    Example:
        >>> get_task("translation").verb
        'translate'
    """
    entry = get_entry(name)
    for value in vars(entry.import_part("task")).values():
        if isinstance(value, type) and not isabstract(value) and getattr(value, "name", None) == name:
            return value()
    raise UnknownNameError(f"{entry.package} has no task {name!r}")


def get_options(task: str, role: Literal["predict", "evaluate", "explain"]) -> type[Config]:
    """The option class of a method of a task's predictor.

    It is that of `OPTION_CLASSES` in the config module of the task, which imports no torch; a package without this
    table is asked for the predictor.

    Args:
        task: name of the task
        role: the method that takes the options

    Example:
        >>> get_options("translation", "evaluate").__name__
        'EvaluateOptions'
    """
    table = getattr(get_entry(task).import_part("config"), "OPTION_CLASSES", {})
    if task in table:
        return table[task].get(role, NoOptions)
    return getattr(get_task(task).predictor_class, f"{role}_options")


def get_entry(task: str) -> TaskEntry:
    """Where a task is, and the name of its command.

    Args:
        task: name of the task
    """
    entries = _entries()
    if task not in entries:
        UnknownNameError.check("task", task, entries)
    return entries[task]


def list_verbs() -> dict[str, str]:
    """The commands of the tasks, each with its help; the help is empty for one that is not listed.

    Example:
        >>> list_verbs()["translate"]
        'Translate texts.'
    """
    verbs: dict[str, str] = {}
    for entry in _entries().values():
        verbs.setdefault(entry.verb, entry.help)
    return verbs


def make_config(name: str, overrides: Iterable[str] = (), **values: Any) -> Any:
    """The config of a recipe with changes.

    Args:
        name: of the recipe
        overrides: `key=value` texts
        values: options as values

    Example:
        >>> make_config("reverse", ["steps=10"]).steps
        10
    """
    recipe, overrides = get_recipe(name), tuple(overrides)
    chosen = {**values, **dict(map(split_override, overrides))}
    defaults = recipe.config_class.drop_replaced(recipe.defaults, chosen)
    return recipe.config_class.from_overrides(overrides, **{**defaults, **values})


def find_task(predictor: object) -> Task[Any, Any, Any, Any] | None:
    """The task of a predictor; None if no registered task has its class.

    Args:
        predictor: what `regard.load` returns
    """
    module = type(predictor).__module__
    for name, entry in _entries().items():
        if module == entry.package or module.startswith(f"{entry.package}."):
            task = get_task(name)
            if isinstance(predictor, task.predictor_class):
                return task
    return None


def read_record(run: RunFolder) -> dict[str, Any]:
    """The contents of run.json; RunFormatError if this version of regard cannot read it.

    Args:
        run: the folder of the run

    Example:
        read_record(RunFolder.open("runs/dates"))["config"]["steps"]
    """
    record = run.read_record()
    if record.get("format") == 1:
        raise RunFormatError(f"{run.folder} was written by regard 0.1; train it again, or use regard 0.1")
    if (version := record.get("format", RECORD_FORMAT)) != RECORD_FORMAT:
        raise RunFormatError(
            f"{run.record_path} has format {version!r}, but this regard reads {RECORD_FORMAT}; install a newer regard"
        )
    kinds = {"format": int, "task": str, "recipe": str, "config": dict, "processor_files": dict}
    if not all(isinstance({"processor_files": {}, **record}.get(name), kind) for name, kind in kinds.items()):
        raise RunFormatError(f"{run.record_path} is damaged: it must have a task, a recipe and a config; copy it again")
    return record


def check_processor(run: RunFolder, record: Mapping[str, Any]) -> None:
    """Raise RunFormatError if a file of the processor differs from what the training wrote.

    Args:
        run: the folder of the run
        record: its record
    """
    check_files(
        run.processor, record.get("processor_files", {}), RunFormatError, "copy the whole folder of the run again"
    )


def open_record(folder: str | Path) -> dict[str, Any]:
    """The record of a run, or of an exported model, whose files are compared with their checksums.

    Args:
        folder: of the run, of the exported model or of a checkpoint of Hugging Face
    """
    records = _RECORDS.get()
    if records is not None and (record := records.get(Path(folder))) is not None:
        return record
    if is_export(folder):
        from regard import export  # it imports torch, and this package

        record = export.read_record(folder)
    elif is_checkpoint(folder):
        from regard.tasks import pretrained  # it imports torch

        record = pretrained.make_checkpoint_record(folder)
    else:
        record = read_record(RunFolder.open(folder))
    if records is not None:
        records[Path(folder)] = record
    return record


@contextmanager
def cache_records() -> Iterator[None]:
    """A context in which `open_record` reads the record of each folder once, such as one command."""
    token = _RECORDS.set({})
    try:
        yield
    finally:
        _RECORDS.reset(token)


def recipe_name(folder: str | Path) -> str:
    """The name of the recipe that a run or an exported model was trained with.

    Args:
        folder: of the run or of the exported model

    Example:
        recipe_name("runs/dates")  # "dates"
    """
    return str(open_record(folder)["recipe"])


def _entries() -> dict[str, TaskEntry]:
    """`TASKS`, and the entry points of the group "regard.tasks", which name a `TaskEntry` each."""
    return {**_installed_entries(), **TASKS}


@cache
def _installed_entries() -> dict[str, TaskEntry]:
    return {point.name: point.load() for point in entry_points(group="regard.tasks")}


@cache
def _recipes_of(entries: tuple[TaskEntry, ...]) -> dict[str, Recipe]:
    recipes: dict[str, Recipe] = {}
    for entry in dict.fromkeys(entries):
        for recipe in getattr(entry.import_part("config"), "RECIPES", ()):
            recipes.setdefault(recipe.name, recipe)
    return recipes
