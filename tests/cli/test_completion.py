"""Completion in shells, by their protocols: words in the environment, completions on standard output."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from regard.cli.completion import STUDY_NAMES, Shell
from regard.cli.main import COMMANDS
from regard.tasks import RECIPES
from tests.cli.calls import PYTHON, assert_refused, call, run

ROOT = Path(__file__).parents[2]


def complete(line: str) -> list[str]:
    """The completions that bash gets for a line."""
    words = line.split(" ")
    request = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_REGARD_COMPLETE": "complete_bash"}
    with mock.patch.dict(os.environ, request):
        answer = call()
    assert answer.stderr == ""
    return answer.stdout.split()


def test_commands():
    assert complete("regard ") == list(COMMANDS)
    assert complete("regard tr") == [name for name in COMMANDS if name.startswith("tr")]
    assert complete("regard --ver") == ["--version"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("regard train dig", ["digit-scenes", "digits", "digit-questions"]),
        ("regard compare rev", ["reverse"]),
        ("regard reproduce bah", ["bahdanau2015"]),
        ("regard mechanisms Scaled", ["ScaledDot"]),
        ("regard completion ", [shell.value for shell in Shell]),
        ("regard train --lang ", ["en", "zh"]),
        ("regard train dates --sh", ["--show"]),
        ("regard serve --al", ["--allow-host"]),
        ("regard translate ", []),  # a path: the shell completes it
        ("regard translate no/such/run --js", ["--json"]),
        ("regard nonsense --x", []),
    ],
)
def test_names_and_options(line, expected):
    assert complete(line) == expected


def test_options_of_the_task_of_a_run(backwards):
    assert complete(f"regard translate {backwards} --beam") == ["--beam-size"]


@pytest.mark.parametrize("shell", ["zsh", "fish", "powershell"])
def test_other_shells_get_descriptions(shell):
    answer = run(
        _REGARD_COMPLETE=f"complete_{shell}",
        _TYPER_COMPLETE_ARGS="regard export --qu",
        _TYPER_COMPLETE_WORD_TO_COMPLETE="--qu",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )
    assert "--quantize" in answer.stdout
    assert "weights" in answer.stdout
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize(
    "line",
    [
        "regard tr",
        "regard train d",
        "regard reproduce b",
        "regard mechanisms A",
        "regard train dates --",
        "regard serve --",
    ],
)
def test_completion_imports_neither_torch_nor_rich(line):
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_REGARD_COMPLETE": "complete_bash"}
    command = [sys.executable, "-X", "importtime", *PYTHON[1:]]
    report = subprocess.run(
        command, capture_output=True, encoding="utf-8", env={**os.environ, **words}, timeout=120, check=True
    ).stderr
    modules = {line.rpartition("|")[2].strip().partition(".")[0] for line in report.splitlines() if "|" in line}
    assert "typer" in modules
    assert not modules & {"torch", "rich", "numpy", "jaxtyping", "fastapi"}


def test_the_studies_are_those_that_can_be_reproduced():
    from regard.studies import STUDIES

    assert list(STUDIES) == list(STUDY_NAMES)


@pytest.mark.parametrize("shell", [shell.value for shell in Shell])
def test_a_script_for_each_shell(shell):
    answer = call("completion", shell)
    assert answer.returncode == 0
    assert f"complete_{shell}" in answer.stdout
    assert "_REGARD_COMPLETE" in answer.stdout


def test_another_shell_is_refused():
    assert_refused(call("completion", "tcsh"), "'tcsh' is not one of")


def test_the_script_works_in_bash(tmp_path):
    if (bash := shutil.which("bash")) is None:
        pytest.skip("no bash here")
    program = tmp_path / "regard"
    program.write_text(f'#!{bash}\nexec "{sys.executable}" -m regard "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    script = 'eval "$(regard completion bash)"; COMP_WORDS=(regard train rev); COMP_CWORD=2; _regard_completion regard'
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    answer = subprocess.run(
        [bash, "--norc", "-c", f'{script}; echo "${{COMPREPLY[*]}}"; complete -p regard'],
        capture_output=True,
        encoding="utf-8",
        env=environment,
        timeout=120,
        check=True,
    )
    assert answer.stdout.splitlines() == ["reverse", "complete -o default -F _regard_completion regard"]
    assert "reverse" in RECIPES
