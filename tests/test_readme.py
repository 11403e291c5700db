"""What the READMEs and the documentation say is so: code runs, output is real, links lead somewhere.

The blocks of a page run one after the other in one namespace:

    python     is executed
    pycon      is executed, and the output compared (as a doctest)
    console    `$ regard ...` is run, and the output compared; "..." leaves out the rest
"""

import ast
import doctest
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

ROOT = Path(__file__).parents[1]
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
DOCS = sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)
PAGES = [*READMES, *DOCS]

# The messages on the pages are the package's own, so they are seen without the checker of shapes.
pytestmark = pytest.mark.bare


class Block(NamedTuple):
    kind: str
    text: str
    line: int


def blocks(page: Path, *kinds: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    everything = [Block(block[1], block[2], text.count("\n", 0, block.start()) + 2) for block in found]
    return [block for block in everything if block.kind in kinds]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def having(*kinds: str) -> Any:
    return pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, *kinds)], ids=name)


@having("python", "pycon")
def test_the_code_of_a_page_runs(page: Path) -> None:
    torch.manual_seed(0)
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page, "python", "pycon"):
        if block.kind == "python":
            lines = "\n" * (block.line - 1) + block.text  # so that an error names the line of the page
            exec(compile(lines, str(page), "exec"), names)
        else:
            said = shown(block, page, names)
            assert not said, said


def shown(block: Block, page: Path, names: dict[str, Any]) -> str:
    """What a doctest of the block complains about."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    test = doctest.DocTestParser().get_doctest(block.text, names, name(page), str(page), block.line - 1)
    complaints = io.StringIO()
    doctest.DocTestRunner(optionflags=flags, verbose=False).run(test, out=complaints.write, clear_globs=False)
    names.update(test.globs)
    return complaints.getvalue()


@having("console")
def test_the_commands_of_a_page_answer_so(page: Path) -> None:
    for block in blocks(page, "console"):
        command, _, wanted = block.text.partition("\n")
        assert command.startswith("$ regard ")
        got = answer(command.split()[2:])
        if wanted.endswith("...\n"):
            wanted = wanted.removesuffix("...\n")
            got = got[: len(wanted)]
        assert words(got) == words(wanted), f"{name(page)}:{block.line}"


def answer(arguments: list[str]) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-m", "regard", *arguments], env=environment, capture_output=True, encoding="utf-8"
    )
    return done.stdout + done.stderr


def words(text: str) -> list[str]:
    """The words, however they are wrapped."""
    return text.replace("`", "").split()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        measured = target.startswith("benchmarks/results/")  # written by `make bench`
        if not target.startswith(("http:", "https:")) and not measured:
            assert (page.parent / target).exists(), f"{name(page)} links to {target}"


def test_both_readmes_show_the_same_code() -> None:
    english, chinese = ([code(block) for block in blocks(page, "python")] for page in READMES)
    assert english == chinese


def code(block: Block) -> str:
    """The code without its comments and docstrings, which are in two languages."""
    tree = ast.parse(block.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            node.body = node.body[1:]
    return ast.dump(tree)


def test_every_page_is_there_in_chinese() -> None:
    english = {page.name for page in DOCS if page.parent.name == "docs"}
    chinese = {page.name for page in DOCS if page.parent.name == "zh"}
    assert chinese == english
