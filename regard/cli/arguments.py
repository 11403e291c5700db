"""Arguments that commands share, options of the task of a run, and inputs from arguments, files or standard input."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperCommand

from regard.cli.output import print_status
from regard.config import Config, Option, format_value
from regard.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from regard.tasks import Predictor

__all__ = [
    "AsJson",
    "Device",
    "Engine",
    "Lang",
    "MultiValueCommand",
    "Run",
    "TestFiles",
    "TrainFiles",
    "ValidFiles",
    "add_options",
    "check_device",
    "check_files",
    "find_run",
    "load_predictor",
    "predictor_options",
    "read_file_blocks",
    "read_record",
    "read_stdin_blocks",
    "read_stdin_lines",
    "repeat_option_names",
    "task_name",
]

DEVICES = ("auto", "cpu", "cuda", "mps")
FROM_FILES = ("translation", "documents", "mixed", "language", "masked-language", "captions")
FILE_BLOCK, PIPE_BLOCK = 2048, 512  # lines in a block: more sort better by length, fewer answer sooner
CHUNK_BYTES = 1 << 16
OVERRIDE = re.compile(r"[A-Za-z_][A-Za-z_0-9-]*=")
MULTI_VALUE = ("--train", "--valid", "--test")
METAVARS = {int: "INTEGER", float: "NUMBER", str: "TEXT"}


class Lang(str, Enum):
    """The languages of output."""

    en = "en"
    zh = "zh"


FILES = "Source and target, or one .tsv or .jsonl; also .gz or .xz. Documents: .tsv, .csv or .jsonl."
Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Device = Annotated[str, typer.Option(help="Device to compute on: auto, cpu, cuda or mps.")]
Engine = Annotated[
    str | None, typer.Option(help="Inference engine: torch, ctranslate2 or onnx; default: that of the folder.")
]
TrainFiles = Annotated[list[str] | None, typer.Option("--train", metavar="FILE...", help=f"Training data. {FILES}")]
ValidFiles = Annotated[list[str] | None, typer.Option("--valid", metavar="FILE...", help="Validation data.")]
TestFiles = Annotated[
    list[str] | None, typer.Option("--test", metavar="FILE...", help="Test data for `regard evaluate`.")
]


def check_device(name: str) -> str:
    """The device to compute on; UnknownNameError if there is none of this name."""
    from regard.training.distributed import resolve_device

    if name not in DEVICES:
        raise UnknownNameError.among("device", name, DEVICES)
    return str(resolve_device(name))


def check_files(recipe: str, config: Mapping[str, Any]) -> None:
    """Refuse files for a recipe that generates its data."""
    named = [name for name in ("train_files", "valid_files", "test_files") if config.get(name)]
    if named and recipe not in FROM_FILES:
        known = f"{', '.join(FROM_FILES[:-1])} or {FROM_FILES[-1]}"
        raise UsageError(
            f"--{named[0].removesuffix('_files')} is an option of the recipes {known}; {recipe} generates its data"
        )


class MultiValueCommand(TyperCommand):
    """A command whose --train, --valid and --test take all words up to the next option or override."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeat_option_names(args))


def repeat_option_names(args: Sequence[str], names: Sequence[str] = MULTI_VALUE) -> list[str]:
    """The same arguments with the name of the option before each of its values.

    Example:
        >>> repeat_option_names(["translation", "--train", "a.en", "a.de", "steps=10", "--show"])
        ['translation', '--train', 'a.en', '--train', 'a.de', 'steps=10', '--show']
    """
    found: list[str] = []
    name, first = "", False
    for arg in args:
        if arg in names and not first:
            name, first = arg, True
            continue
        if first or (name and not arg.startswith("-") and not OVERRIDE.match(arg)):
            found += [name, arg]
        else:
            name = ""
            found.append(arg)
        first = False
    return found + [name] * first  # typer refuses an option without a value


def find_run(args: Sequence[str]) -> Path | None:
    """The first argument that is a folder: the run whose task has the options of the command."""
    return next((Path(arg) for arg in args if not arg.startswith("-") and Path(arg).is_dir()), None)


def read_record(run: Path) -> dict[str, Any]:
    """run.json of a run, or export.json of an exported folder."""
    from regard import export
    from regard.tasks import read_record
    from regard.training import RunFolder

    return export.read_record(run) if export.is_export(run) else read_record(RunFolder.open(run))


def task_name(run: Path) -> str | None:
    """The task of a run; None if it is not ported to the protocol yet."""
    from regard.tasks import Recipe, get_recipe

    recipe = get_recipe(read_record(run)["recipe"])
    return recipe.task if isinstance(recipe, Recipe) else None


def load_predictor(run: Path, device: str = "auto", engine: str | None = None) -> Predictor[Any, Any, Any]:
    """The predictor of a run on a device; other engines than torch compute on the CPU."""
    from regard.tasks import load

    if engine not in (None, "torch"):
        if device not in ("auto", "cpu"):
            raise UsageError(f"{engine} computes on the CPU; leave out --device, or use --engine torch")
        device = "cpu"
    predictor: Predictor[Any, Any, Any] = load(run, device=check_device(device), engine=engine)
    return predictor


def predictor_options(run: Path, role: str) -> type[Config]:
    """The option class of a run's predictor.

    Args:
        run: its folder
        role: "predict", "evaluate" or "explain"
    """
    from regard.tasks import get_task

    found = getattr(get_task(task_name(run) or "").predictor_class, f"{role}_options")
    if not isinstance(found, type):  # a property that depends on the config of the run
        found = getattr(load_predictor(run, "cpu"), f"{role}_options")
    return cast("type[Config]", found)


def add_options(function: Callable[..., None], options: type[Config] | None) -> Callable[..., None]:
    """A command with the options of a Config as options of its own.

    Args:
        function: a command with a parameter `options`, a mapping of the values that were given
        options: the option class of the predictor of a run; None where there is no run, as in `--help`

    Returns:
        The function as typer needs it: `options` is replaced by one parameter for each option. Values are parsed and
        checked by the Config, so messages and bounds are the same in Python, on the command line and over HTTP.
    """
    signature = inspect.signature(function, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "options"]
    items = {} if options is None else {item.name: item for item in options.options()}
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option_annotation(item))
        for name, item in items.items()
    ]

    def command(**values: Any) -> None:
        given = {name: values.pop(name) for name in items}
        function(
            **values,
            options={
                name: items[name].parse(value) if isinstance(value, str) else value
                for name, value in given.items()
                if value is not None
            },
        )

    parameters = [*(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own), *extra]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


def _option_annotation(item: Option) -> Any:
    flag = item.name.replace("_", "-")
    if item.type is bool:
        return Annotated[bool | None, typer.Option(f"--{flag}/--no-{flag}", help=_option_help(item))]
    return Annotated[str | None, typer.Option(f"--{flag}", metavar=_metavar(item), help=_option_help(item))]


def _metavar(item: Option) -> str:
    if item.allowed:
        return "|".join(item.allowed)
    kinds = {item.type, *getattr(item.type, "__args__", ())}
    return next((name for kind, name in METAVARS.items() if kind in kinds), "TEXT")


def _option_help(item: Option) -> str:
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    facts = [f"{words[name]} {bound:g}" for name, bound in item.bounds.items()]
    if item.default is not None:
        facts.append(f"default: {format_value(item.default)}")
    return f"{item.help}{'' if item.help.endswith('.') else '.'}" + (f" [{', '.join(facts)}]" if facts else "")


def read_file_blocks(path: Path) -> Iterator[list[str]]:
    """The lines of a text file in blocks; also .gz and .xz."""
    from regard.data.text_files import read_lines

    lines = read_lines(path)
    while block := list(islice(lines, FILE_BLOCK)):
        yield block


def read_stdin_blocks(prompt: str, full: bool = False) -> Iterator[list[str]]:
    """The lines of standard input as soon as they arrive.

    Args:
        prompt: a sentence for a terminal
        full: wait until a block is full. Blocks otherwise depend on the clock, so that sampling would give another
            result each time.
    """
    interactive = sys.stdin.isatty()
    if interactive:
        print_status(prompt)
    waiting: list[str] = []
    for lines in read_stdin_lines(interactive):
        waiting += lines
        while len(waiting) >= (PIPE_BLOCK if full and not interactive else 1):
            block, waiting = waiting[:PIPE_BLOCK], waiting[PIPE_BLOCK:]
            yield block
    if waiting:
        yield waiting


def read_stdin_lines(interactive: bool) -> Iterator[list[str]]:
    """The lines that arrived since the last call; the last one may have no line end."""
    rest, number = b"", 0
    while True:
        if interactive:
            sys.stderr.write("> ")
            sys.stderr.flush()
        chunk = sys.stdin.buffer.read1(CHUNK_BYTES)  # type: ignore[union-attr]
        raw = (rest + chunk).split(b"\n")
        rest = raw.pop()
        if not chunk and rest:
            raw, rest = [rest], b""
        yield [_decode(line, number + offset) for offset, line in enumerate(raw, 1)]
        number += len(raw)
        if not chunk:
            if interactive:
                print_status("")  # the prompt of the shell begins a new line
            return


def _decode(raw: bytes, number: int) -> str:
    if number == 1:
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        return raw.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"standard input, line {number}: byte {error.start + 1} is not UTF-8; convert it first"
        ) from None
