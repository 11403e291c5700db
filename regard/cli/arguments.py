"""Arguments that commands share, options of the task of a run, and inputs from arguments, files or standard input."""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
from typer.core import TyperCommand

from regard import tasks
from regard.cli.output import describe_option, print_status
from regard.config import Config, Option
from regard.errors import EmptyInputError, InputError, InputTooLongError, UnknownNameError, UsageError
from regard.tasks.registry import get_entry, open_record

__all__ = [
    "AsJson", "Device", "Engine", "Example", "InputLimit", "Inputs", "Lang", "MultiValueCommand", "OverlongInput",
    "Run", "Split", "TestFiles", "TooLongOption", "TrainFiles", "ValidFiles", "add_options", "check_device",
    "check_files", "check_not_empty", "find_run", "find_task", "group_words", "load_predictor", "read_file_blocks",
    "read_stdin_blocks", "read_stdin_lines", "repeat_option_names",
]  # fmt: skip

DEVICES = ("auto", "cpu", "cuda", "mps")
FILE_BLOCK, PIPE_BLOCK = 2048, 512  # lines in a block: more sort better by length, fewer answer sooner
CHUNK_BYTES = 1 << 16
OVERRIDE = re.compile(r"[A-Za-z_][A-Za-z_0-9-]*=")
MULTI_VALUE = ("--train", "--valid", "--test")
METAVARS = {int: "INTEGER", float: "NUMBER", str: "TEXT"}
ResultT = TypeVar("ResultT")
Lang = Literal["en", "zh"]  # of output
OverlongInput = Literal["error", "truncate"]  # what to do with an input that is longer than the model takes


FILES = "Source and target, or one .tsv or .jsonl; also .gz or .xz. Documents: .tsv, .csv or .jsonl."
Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, or of an exported model.")]
Inputs = Annotated[
    list[str] | None,
    typer.Argument(metavar="INPUT", help="Texts or image files; without any, texts from standard input."),
]
Example = Annotated[
    int | None, typer.Option(min=0, help="Take this input of --split, from 0; INPUT replaces its last parts.")
]
Split = Annotated[str | None, typer.Option(help="A split of the recipe: test, valid, ...; default: its tests.")]
TooLongOption = Annotated[
    OverlongInput, typer.Option(help="Refuse inputs that are too long for the model, or cut them.")
]
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
    """The device to compute on; UnknownNameError if there is none of this name.

    Args:
        name: auto, cpu, cuda or mps
    """
    from regard.training.weights import resolve_device

    if name not in DEVICES:
        UnknownNameError.check("device", name, DEVICES)
    return str(resolve_device(name))


def check_files(recipe: str, config: Mapping[str, Any]) -> None:
    """Refuse files for a recipe that has its own data.

    Args:
        recipe: its name
        config: the values of its options, by name
    """
    named = [name for name in ("train_files", "valid_files", "test_files") if config.get(name)]
    if named and not tasks.get_recipe(recipe).reads_files:
        *others, last = (name for name, one in tasks.RECIPES.items() if one.reads_files)
        raise UsageError(
            f"--{named[0].removesuffix('_files')} is an option of the recipes {', '.join(others)} or {last};"
            f" {recipe} has data of its own"
        )


class MultiValueCommand(TyperCommand):
    """A command whose --train, --valid and --test take all words up to the next option or override."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeat_option_names(args))


def repeat_option_names(args: Sequence[str], names: Sequence[str] = MULTI_VALUE) -> list[str]:
    """The same arguments with the name of the option before each of its values.

    Args:
        args: the words of a command line
        names: the options that take several values

    Example:
        >>> repeat_option_names(["translation", "--train", "a.en", "a.de", "steps=10", "--show"])
        ['translation', '--train', 'a.en', '--train', 'a.de', 'steps=10', '--show']
    """
    repeated: list[str] = []
    name, first = "", False
    for arg in args:
        if arg in names and not first:
            name, first = arg, True
            continue
        if not first and (arg.startswith("-") or OVERRIDE.match(arg)):
            name = ""
        repeated += [name, arg] if name else [arg]
        first = False
    return repeated + [name] * first  # typer refuses an option without a value


def find_run(args: Sequence[str]) -> Path | None:
    """The run whose task has the options of the command: the first argument that is a folder, else the first one.

    None if there is no argument but options, as in `regard predict --help`.

    Args:
        args: the words of a command line
    """
    paths = [Path(arg) for arg in args if not arg.startswith("-")]
    return next((path for path in paths if path.is_dir()), next(iter(paths), None))


def find_task(run: Path, verb: str | None = None) -> str:
    """The name of the task of a run; UsageError if its command is not `verb`.

    Args:
        run: folder of the run
        verb: the command that was called; None: any
    """
    task = tasks.get_recipe(open_record(run)["recipe"]).task
    if verb is not None and (own := get_entry(task).verb) != verb:
        raise UsageError(f"{run} was trained for {task}; use: regard {own} {run}")
    return task


def load_predictor(run: Path, device: str = "auto", engine: str | None = None) -> tasks.Predictor[Any, Any, Any]:
    """The predictor of a run on a device; other engines than torch compute on the CPU.

    Args:
        run: its folder
        device: auto, cpu, cuda or mps
        engine: the inference engine; None: that of the folder
    """
    if engine not in (None, "torch"):
        if device not in ("auto", "cpu"):
            raise UsageError(f"{engine} computes on the CPU; leave out --device, or use --engine torch")
        device = "cpu"
    predictor: tasks.Predictor[Any, Any, Any] = tasks.load(run, device=check_device(device), engine=engine)
    return predictor


def add_options(
    function: Callable[..., None], options: type[Config] | None, *, with_help: bool = True
) -> Callable[..., None]:
    """A command with the options of a Config as options of its own.

    Args:
        function: a command with a parameter `options`, a mapping of the values that were given
        options: the option class of the predictor of a run; None where there is no run, as in `--help`
        with_help: describe the options

    Returns:
        The function as typer needs it: `options` is replaced by one parameter for each option. Values are parsed and
        checked by the Config, so messages and bounds are the same in Python, on the command line and over HTTP.
    """
    items = {} if options is None else {item.name: item for item in options.options()}

    @wraps(function)
    def command(**values: Any) -> None:
        texts = {name: value for name in items if (value := values.pop(name)) is not None}
        parsed = {name: items[name].parse(one) if isinstance(one, str) else one for name, one in texts.items()}
        function(**values, options=parsed)

    signature, keyword = inspect.signature(function, eval_str=True), inspect.Parameter.KEYWORD_ONLY
    parameters = [one.replace(kind=keyword) for name, one in signature.parameters.items() if name != "options"]
    parameters += [
        inspect.Parameter(name, keyword, default=None, annotation=_option_annotation(item, with_help))
        for name, item in items.items()
    ]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _option_annotation(item: Option, with_help: bool) -> Any:
    help = describe_option(item) if with_help else None
    flag = item.name.replace("_", "-")
    if item.type is bool:
        return Annotated[bool | None, typer.Option(f"--{flag}/--no-{flag}", help=help)]
    return Annotated[str | None, typer.Option(f"--{flag}", metavar=_metavar(item), help=help)]


def _metavar(item: Option) -> str:
    if item.allowed:
        return "|".join(item.allowed)
    kinds = {item.type, *getattr(item.type, "__args__", ())}
    return next((name for kind, name in METAVARS.items() if kind in kinds), "TEXT")


@dataclass(frozen=True)
class InputLimit:
    """What to do with inputs that a model cannot take: name their place, or cut those that are too long.

    Args:
        predictor: the model
        too_long: refuse an input that is too long, or cut it
        where: subject of messages, such as "a.txt, line"; empty where there is only one input
    """

    predictor: tasks.Predictor[Any, Any, Any]
    too_long: OverlongInput
    where: str = ""

    def apply(self, inputs: Mapping[int, Any], function: Callable[[list[Any]], list[ResultT]]) -> list[ResultT]:
        """The results of a function of all inputs.

        Args:
            inputs: by number, as messages name them
            function: raises InputError, with the index of the input
        """
        try:
            with self.located(list(inputs)):
                return function(list(inputs.values()))
        except InputTooLongError:
            if self.too_long == "error":
                raise
        return function([self.truncate(one, number) for number, one in inputs.items()])

    def truncate(self, input: Any, number: int) -> Any:
        """The input, cut if it is too long."""
        cut = self.predictor.truncate(input)
        if cut != input:
            subject = f"{self.where} {number}" if self.where else "the input"
            print_status(f"{subject} was cut after {len(cut):,} of {len(input):,} characters")
        return cut

    @contextlib.contextmanager
    def located(self, numbers: Sequence[int]) -> Iterator[None]:
        """Name the place of an input in errors inside.

        Args:
            numbers: of the inputs, in their order
        """
        try:
            yield
        except InputError as error:
            place = f"{self.where} {numbers[error.row]}: " if self.where and error.row is not None else ""
            can_cut = isinstance(error, InputTooLongError) and self.too_long == "error"
            remedy = ", or cut it with --too-long truncate" if can_cut else ""
            raise type(error)(f"{place}{error}{remedy}", row=error.row) from None


def group_words(fields: Sequence[tasks.InputField], words: Sequence[str]) -> list[Any]:
    """Inputs from arguments: one word each, or as many as an input has parts.

    Args:
        fields: the parts of an input
        words: the arguments
    """
    count = len(fields)
    if len(words) % count:
        names = " ".join(one.name.upper() for one in fields)
        raise UsageError(f"{len(words)} arguments are not inputs of the form {names}")
    if count == 1:
        return list(words)
    return [tuple(words[first : first + count]) for first in range(0, len(words), count)]


def check_not_empty(fields: Sequence[tasks.InputField], inputs: Sequence[Any]) -> None:
    """Refuse an empty text, as the server does; an empty line of a file stays an empty line.

    Args:
        fields: the parts of an input
        inputs: from arguments
    """
    for number, one in enumerate(inputs, 1):
        for field, part in zip(fields, (one,) if len(fields) == 1 else one, strict=True):
            if field.kind == "text" and not field.may_be_empty and not part.strip():
                where = f"input {number}" if len(fields) == 1 else f"{field.name} of input {number}"
                raise EmptyInputError(f"{where} is empty", row=number - 1)


def read_file_blocks(path: Path) -> Iterator[list[str]]:
    """The lines of a text file in blocks; also .gz and .xz.

    Args:
        path: the file
    """
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
    """The lines that arrived since the last call; the last one may have no line end.

    Args:
        interactive: whether standard input is a terminal, which needs a prompt
    """
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
