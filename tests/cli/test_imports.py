"""What the command line imports: no torch for help and lists, no task by name."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import regard

PACKAGE = Path(regard.__file__).parent
LIGHT = [
    "regard.cli.main",
    "regard.config",
    "regard.errors",
    "regard.tasks.registry",
    "regard.training.config",
    "regard.training.run",
    *(f"regard.tasks.{path.parent.name}.config" for path in sorted(PACKAGE.glob("tasks/*/config.py"))),
]
CALL = "import sys; from regard.cli import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n"
REPORT = "import json, sys; print('torch' in sys.modules, file=sys.stderr)"


def imports_torch(*arguments: str, code: str = CALL) -> bool:
    done = subprocess.run(
        [sys.executable, "-c", code + REPORT, *arguments], capture_output=True, text=True, timeout=120, check=True
    )
    return json.loads(done.stderr.splitlines()[-1].lower())


def test_light_modules_import_no_torch():
    assert len(LIGHT) > 10
    assert not imports_torch(code=f"import {', '.join(LIGHT)}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["train"],
        ["train", "reverse", "--show"],
        ["predict", "--help"],
        ["evaluate", "--help"],
    ],
)
def test_help_and_lists_import_no_torch(arguments):
    assert not imports_torch(*arguments)


@pytest.mark.parametrize("command", ["predict", "translate", "show", "evaluate"])
def test_the_help_of_a_run_imports_no_torch(backwards, command):
    assert not imports_torch(command, str(backwards), "--help")


@pytest.mark.parametrize("package", ["cli", "serving"])
def test_commands_and_routes_import_no_task(package):
    """They import the protocol and the registry, but no module of a task."""
    kinds = {path.parent.name for path in PACKAGE.glob("tasks/*/config.py")}
    for path in PACKAGE.glob(f"{package}/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                parts = (node.module or "").split(".")
                names = {alias.name for alias in node.names}
                assert parts[:2] != ["regard", "tasks"] or not ({*parts[2:3], *names} & kinds), f"{path}: {node.module}"


def test_the_options_named_in_a_config_are_those_of_the_predictor():
    from regard.tasks import TASKS, get_options, get_task

    for name in TASKS:
        predictor = get_task(name).predictor_class
        for role in ("predict", "evaluate", "explain"):
            assert get_options(name, role) is getattr(predictor, f"{role}_options"), (name, role)
