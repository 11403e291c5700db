"""The command `regard`: a lazy group of commands, and errors as one sentence with an exit code.

A command is imported when it is called, so `regard --help` imports neither torch nor the commands.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, Literal, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from regard._version import __version__
from regard.errors import RegardError, UsageError, as_lost_process, as_out_of_memory, closest
from regard.tasks.registry import cache_records, get_options, list_verbs

__all__ = ["COMMANDS", "COMPLETE_VARIABLE", "CommandEntry", "app", "build_command", "main", "to_regard_error"]


class CommandEntry(NamedTuple):
    """A command.

    Args:
        target: "module:function"
        help: one line
        role: "predict", "evaluate" or "explain": the command has these options of the task of its run
    """

    target: str
    help: str
    role: Literal["", "predict", "evaluate", "explain"] = ""


PREDICT = CommandEntry("regard.cli.predict:predict", "Predict with a model of any task.", "predict")
COMMANDS = {
    "train": CommandEntry("regard.cli.train:train", "Train a recipe into a new folder."),
    "resume": CommandEntry("regard.cli.train:resume", "Resume a run from its newest checkpoint."),
    "info": CommandEntry("regard.cli.info:info", "Print what a run is and how far it is."),
    "predict": PREDICT,
    **{verb: PREDICT._replace(help=help) for verb, help in list_verbs().items() if help},
    "show": CommandEntry("regard.cli.show:show", "Show a prediction with its attention weights.", "explain"),
    "evaluate": CommandEntry("regard.cli.evaluate:evaluate", "Measure how good a model is.", "evaluate"),
    "score": CommandEntry("regard.cli.evaluate:score", "Compute how probable given answers are."),
    "average-weights": CommandEntry("regard.cli.compare:average_weights", "Average the newest weights of a run."),
    "compare": CommandEntry("regard.cli.compare:compare", "Train alternatives and compare them in a table."),
    "reproduce": CommandEntry("regard.cli.compare:reproduce", "Reproduce the findings of a paper."),
    "serve": CommandEntry("regard.cli.serve:serve", "Explore a model in the browser, and serve it over HTTP."),
    "export": CommandEntry("regard.cli.export:export", "Export a model for other programs."),
    "push": CommandEntry("regard.cli.push:push", "Publish a model on the hub of Hugging Face."),
    "bench": CommandEntry("regard.cli.export:bench", "Measure how fast a model is.", "predict"),
    "mechanisms": CommandEntry("regard.cli.mechanisms:mechanisms", "List the mechanisms, or explain one."),
    "completion": CommandEntry("regard.cli.completion:completion", "Print the completion script of a shell."),
}
VALUE_NAMES = {  # of options, in their help
    **dict.fromkeys(("example", "limit", "batch", "threads", "last", "port"), "INTEGER"),
    **dict.fromkeys(("split", "device", "engine", "host", "kind", "only"), "NAME"),
    **dict.fromkeys(("out", "init_from", "data"), "PATH"),
    **dict.fromkeys(("file", "weights"), "FILE"),
    "columns": "A,B",
    "token": "TEXT",
}
COMPLETE_VARIABLE = "_REGARD_COMPLETE"  # in the environment: a shell asks how the line could continue
HELP_FLAGS = ["-h", "--help"]
SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": None,  # plain help: rich takes longer to import than everything else here
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": HELP_FLAGS},
}


class LazyGroup(TyperGroup):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if ctx.resilient_parsing:  # a shell completes the name, so nothing is imported
            return TyperCommand(cmd_name)
        return build_command(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and (args[0] in COMMANDS or args[0] in list_verbs()):
            try:
                command = build_command(args[0], args[1:])
            except (RegardError, OSError):
                if not ctx.resilient_parsing:
                    raise
                command = build_command(args[0])  # a shell completes a line whose run is not there yet
            return args[0], command, args[1:]
        if args and not args[0].startswith("-"):
            names = closest(args[0], list(COMMANDS))
            hint = f"did you mean {' or '.join(names)}?" if names else "regard --help lists all commands"
            raise UsageError(f"no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


def build_command(name: str, args: Sequence[str] = ()) -> Any:
    """The command of that name for typer.

    Args:
        name: of the command
        args: its arguments; a run among them decides which options of its task the command has
    """
    from regard.cli.arguments import MultiValueCommand, add_options, find_run, find_task

    entry = COMMANDS.get(name, PREDICT)  # a verb that was registered after the import
    module, _, function_name = entry.target.partition(":")
    function = getattr(import_module(module), function_name)
    if entry.role:
        run = find_run(args)
        task = None if run is None else find_task(run, name if name in list_verbs() else None)
        options = None if task is None else get_options(task, entry.role)
        function = add_options(function, options, with_help=not set(args).isdisjoint(HELP_FLAGS))
    single = typer.Typer(**SETTINGS)
    single.command(name, cls=MultiValueCommand if name in ("train", "compare") else None)(function)
    command: Any = typer.main.get_command(single)
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None  # the name says it, without <list[str]> after it
        elif parameter.metavar is None:
            parameter.metavar = VALUE_NAMES.get(parameter.name)
    return command


app = typer.Typer(name="regard", cls=LazyGroup, no_args_is_help=True, **SETTINGS)


def _print_version(requested: bool) -> bool:
    if requested:
        typer.echo(f"regard {__version__}")
        raise typer.Exit
    return requested


@app.callback()
def _regard(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Attention mechanisms for PyTorch: train, use, measure and look into models."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error of regard is one sentence on standard error and an exit code.

    Args:
        arguments: the words of the command line; None: those of the process

    Example:
        main(["train", "dates", "steps=200", "--out", "runs/dates"])  # ends with SystemExit
    """
    # Windows gives files and pipes a code page in which most languages would be question marks.
    encoding = "utf-8" if sys.platform == "win32" and not os.environ.get("PYTHONIOENCODING") else None
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding=encoding, errors="replace")  # a terminal without Unicode gets "?"
    is_completing = bool(os.environ.get(COMPLETE_VARIABLE))
    try:
        with cache_records():
            if is_completing:
                from typer.completion import completion_init  # type: ignore[attr-defined]

                completion_init()  # the protocols of the shells
            # On Windows, an argument with "?" is a text, not a pattern of file names.
            app(arguments, windows_expand_args=False, complete_var=COMPLETE_VARIABLE)
    except Exception as error:
        if (known := to_regard_error(error)) is None:
            raise
        from regard.cli.output import print_status

        if is_completing:  # a sentence would be printed into the line that the user is typing
            sys.exit(known.exit_code)
        print_status(f"regard: {known}")
        sys.exit(known.exit_code)


def to_regard_error(error: Exception) -> RegardError | None:
    """The error that a user can act on; None for a bug, which keeps its traceback.

    Args:
        error: any error of a command

    Example:
        >>> error = to_regard_error(FileNotFoundError(2, "No such file or directory", "a.txt"))
        >>> str(error), error.exit_code
        ('a.txt: no such file or directory', 2)
        >>> to_regard_error(KeyError("a bug")) is None
        True
    """
    if isinstance(error, RegardError):
        return error
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return UsageError(f"{error.filename}: {error.strerror.lower()}")
    return as_out_of_memory(error) or as_lost_process(error)
