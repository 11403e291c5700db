"""No word of the language of version 0.1 is left: names, comments, messages and docs use the terms of the field.

The list is tests/dialect.tsv: English and Chinese phrases as regular expressions, which no line of a text file may
match, and names, which no class, function, argument, variable or attribute may have. Each comes with what to write.
"""

import ast
import re
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("regard", "tests", "benchmarks", "examples", "docs")
FILES = ("*.md", "Makefile", "pyproject.toml", "conftest.py")
SUFFIXES = (".py", ".js", ".css", ".html", ".json", ".md", ".toml")

# Files that have to quote the old words.
QUOTING = {
    "tests/test_language.py": "this list",
    "benchmarks/results/*": "measurements of earlier versions",
    "benchmarks/golden.py": "runs version 0.1 and translates its options",
    "benchmarks/_golden_*.py": "runs version 0.1 and translates its state-dict keys",
    "docs/_build/*": "generated",
}
# Lines where a word has its ordinary meaning.
ORDINARY = {r"from hypothesis import .*given|@given\(": "hypothesis"}


@cache
def entries(kind: str) -> list[tuple[str, str]]:
    lines = (ROOT / "tests/dialect.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [(old, new) for entry, old, new in rows if entry == kind]


@cache
def patterns() -> list[tuple[re.Pattern[str], str]]:
    english = [(re.compile(rf"(?<![\w-])(?:{old})(?![\w-])", re.IGNORECASE), new) for old, new in entries("phrase")]
    return english + [(re.compile(old), new) for old, new in entries("chinese")]


def text_files() -> dict[str, Path]:
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    paths += [path for pattern in FILES for path in ROOT.glob(pattern)]
    files = {path.relative_to(ROOT).as_posix(): path for path in sorted(paths)}
    return {name: path for name, path in files.items() if not any(fnmatch(name, pattern) for pattern in QUOTING)}


def area_of(name: str) -> str:
    """The package or the folder of tests of a file, or the file itself if it is in the root."""
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] in ("regard", "tests") else parts[0]


def phrases_in(lines: list[str]):
    ordinary = re.compile("|".join(ORDINARY))
    everything = re.compile("|".join(pattern.pattern for pattern, _ in patterns()), re.IGNORECASE)
    for number, line in enumerate(lines, 1):
        if everything.search(line) and not ordinary.search(line):
            for pattern, new in patterns():
                for match in pattern.finditer(line):
                    yield number, match[0], new


def names_in(text: str):
    old_names = dict(entries("name"))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        else:
            continue
        if name in old_names:
            yield node.lineno, name, old_names[name]


def findings(name: str, path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    words = [*phrases_in(text.splitlines()), *(names_in(text) if path.suffix == ".py" else ())]
    return [f"{name}:{line}: {word!r}; write: {new}" for line, word, new in sorted(set(words))]


@pytest.mark.parametrize("area", sorted({area_of(name) for name in text_files()}))
def test_no_word_of_the_old_language(area):
    lines = [line for name, path in text_files().items() if area_of(name) == area for line in findings(name, path)]
    assert not lines, f"{len(lines)} words of the old language:\n" + "\n".join(lines)
