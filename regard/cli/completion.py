"""`regard completion SHELL`, and the names that a shell completes.

The script of a shell calls `regard` with the words of the line in the environment, and _REGARD_COMPLETE says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Annotated, Any

import typer

from regard import tasks
from regard.cli.main import COMPLETE_VARIABLE

__all__ = ["STUDY_NAMES", "Shell", "complete_mechanism", "complete_recipe", "complete_study", "completion"]


# Those of regard.studies, which imports torch.
STUDY_NAMES = ("bahdanau2015", "luong2015", "ntm2014", "han2016", "costs", "xu2015", "vision")


class Shell(str, Enum):
    """The shells that have a script."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"
    powershell = "powershell"


def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh, fish or powershell.")]) -> None:
    """Print the script that completes commands, options, recipes, studies and mechanisms in a shell.

    Example: regard completion bash >> ~/.bashrc

    Example: regard completion fish > ~/.config/fish/completions/regard.fish
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    typer.echo(get_completion_script(prog_name="regard", complete_var=COMPLETE_VARIABLE, shell=shell.value))


def _complete(names: Callable[[], Iterable[str]]) -> Any:
    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def _mechanism_names() -> list[str]:
    from regard.catalogue import MECHANISMS

    return [one.name for one in MECHANISMS]


complete_recipe = _complete(lambda: tasks.RECIPES)
complete_mechanism = _complete(_mechanism_names)
complete_study = _complete(lambda: STUDY_NAMES)
