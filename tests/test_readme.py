"""The READMEs and the documentation are true: code runs, output is as shown, links lead to files.

The blocks of a page run one after the other in one namespace, those of a Chinese page only if they differ from the
English ones in more than comments:

    python     is executed
    pycon      is executed, and the output compared (as a doctest)
    console    `$ regard ...` is run, and the output compared; "..." leaves out the rest
"""

import ast
import doctest
import functools
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

# Error messages on the pages are those of the package itself, without the checker of shapes.
pytestmark = pytest.mark.bare


class Block(NamedTuple):
    kind: str
    text: str
    line: int


def blocks(page: Path, *kinds: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    matches = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    found_blocks = [Block(match[1], match[2], text.count("\n", 0, match.start()) + 2) for match in matches]
    return [block for block in found_blocks if block.kind in kinds]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def pages_with(*kinds: str) -> Any:
    return pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, *kinds)], ids=name)


@pages_with("python", "pycon")
def test_the_code_of_a_page_runs(page: Path) -> None:
    english = english_page(page)
    if english and code_of_page(page) == code_of_page(english):
        return
    torch.manual_seed(0)
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page, "python", "pycon"):
        if block.kind == "python":
            lines = "\n" * (block.line - 1) + block.text  # so that an error names the line of the page
            exec(compile(lines, str(page), "exec"), names)
        else:
            failures = run_doctest(block, page, names)
            assert not failures, failures


def english_page(page: Path) -> Path | None:
    """The English page of a Chinese one."""
    if page.parent.name == "zh":
        return page.parent.parent / page.name
    return READMES[0] if page == READMES[1] else None


def code_of_page(page: Path) -> list[str]:
    return [code(block) if block.kind == "python" else block.text for block in blocks(page, "python", "pycon")]


def run_doctest(block: Block, page: Path, names: dict[str, Any]) -> str:
    """The failures of a doctest of the block."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    test = doctest.DocTestParser().get_doctest(block.text, names, name(page), str(page), block.line - 1)
    failures = io.StringIO()
    doctest.DocTestRunner(optionflags=flags, verbose=False).run(test, out=failures.write, clear_globs=False)
    names.update(test.globs)
    return failures.getvalue()


@pages_with("console")
def test_the_commands_of_a_page_print_what_it_shows(page: Path) -> None:
    for block in blocks(page, "console"):
        command, _, expected = block.text.partition("\n")
        assert command.startswith("$ regard ")
        actual = run_command(*command.split()[2:])
        if expected.endswith("...\n"):
            expected = expected.removesuffix("...\n")
            actual = actual[: len(expected)]
        assert split_words(actual) == split_words(expected), f"{name(page)}:{block.line}"


@functools.cache  # both languages show the same commands
def run_command(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    process = subprocess.run(
        [sys.executable, "-m", "regard", *arguments], env=environment, capture_output=True, encoding="utf-8"
    )
    return process.stdout + process.stderr


def split_words(text: str) -> list[str]:
    """The words, independent of line breaks."""
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
    """The code without comments and docstrings, which are in two languages."""
    tree = ast.parse(block.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            node.body = node.body[1:]
    return ast.dump(tree)


def test_every_page_is_there_in_chinese() -> None:
    english = {page.name for page in DOCS if page.parent.name == "docs"}
    chinese = {page.name for page in DOCS if page.parent.name == "zh"}
    assert chinese == english
