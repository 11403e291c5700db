"""Every public class and function has a docstring with what a caller needs.

Public is what a public module of regard lists in `__all__`. The rules, by section of the docstring:

- the first line is a sentence;
- `Args:` names every parameter (of a dataclass or NamedTuple: every field). What documents itself needs none: a field
  `option(default, help)` of a config, a body of the HTTP API (a pydantic model, which OpenAPI describes), and a
  parameter of a command (typer shows its help, and the docstring above it);
- `Shape:` where a function, or the `forward` of a module, takes tensors; a mapping of tensors, such as a state dict,
  has no shape;
- `Returns:` where a function returns tensors or a tuple;
- `Example:` (or `>>>`) for what the front door of a package exports, for every command, and for everything in data;
  protocols, errors and warnings need none. An example that needs a trained run is code that is not executed; it is
  checked to be Python.
"""

import ast
import re
from pathlib import Path
from textwrap import dedent

import pytest

from regard.cli.main import COMMANDS
from tests.test_layout import PUBLIC, TREES, module_name

PACKAGES = sorted({Path(path).parts[1] for path in PUBLIC})
COMMAND_TARGETS = {entry.target for entry in COMMANDS.values()}
SECTIONS = "Args|Attributes|Shape|Returns|Yields|Raises|Reference|Example"


def section(doc: str, name: str) -> str:
    """The text of a section, "" if there is none; a reference of one line is a section as well."""
    match = re.search(rf"^{name}:.*?(?=^(?:{SECTIONS}):|^>>>|\Z)", doc, re.MULTILINE | re.DOTALL)
    return match[0] if match else ""


def listed(tree: ast.Module) -> list[str]:
    return next((ast.literal_eval(n.value) for n in tree.body if ast.unparse(n).startswith("__all__ = ")), [])


def exported(package: str) -> set[str]:
    """The names that the front doors of a package and of its subpackages export."""
    doors = [path for path in PUBLIC if path.endswith("/__init__.py") and package_of(path) == package]
    return {name for path in doors for name in listed(TREES[path])}


def package_of(path: str) -> str:
    return Path(path).parts[1]


def bases(node: ast.ClassDef) -> str:
    return " ".join(map(ast.unparse, node.bases))


def parameters(node: ast.FunctionDef | ast.ClassDef) -> list[str]:
    if isinstance(node, ast.FunctionDef):
        args = node.args
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
        return [arg.arg for arg in every if arg.arg not in ("self", "cls") and not arg.arg.startswith("_")]
    init = next((m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"), None)
    if init is not None:
        return parameters(init)
    is_dataclass = any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
    if not (is_dataclass or "NamedTuple" in bases(node)):
        return []
    fields = [m for m in node.body if isinstance(m, ast.AnnAssign) and "ClassVar" not in ast.unparse(m.annotation)]
    if re.search(r"(Config|Options)\b", bases(node)):  # `option` takes the help of a field
        fields = [m for m in fields if not (m.value and ast.unparse(m.value).startswith("option("))]
    return [f.target.id for f in fields if not f.target.id.startswith("_") and "init=False" not in ast.unparse(f)]


def takes_tensors(node: ast.FunctionDef | ast.ClassDef) -> bool:
    methods = {m.name: m for m in node.body if isinstance(m, ast.FunctionDef)} if isinstance(node, ast.ClassDef) else {}
    forward = methods.get("forward") if methods or isinstance(node, ast.ClassDef) else node
    annotations = [arg.annotation for arg in forward.args.args if arg.annotation] if forward else []
    return any(re.match(r"(?!Mapping).*Tensor", ast.unparse(annotation)) for annotation in annotations)


def example_error(doc: str) -> str:
    """What is wrong with the example of a docstring, "" if nothing is; doctests are executed elsewhere."""
    if re.search(r"^( {4})?>>>", doc, re.MULTILINE):
        return ""
    if not (code := section(doc, "Example").removeprefix("Example:")).strip():
        return "no Example"
    try:
        ast.parse(dedent(code))
    except SyntaxError as error:
        return f"the Example is not Python: {error.msg}"
    return ""


def problems(node: ast.FunctionDef | ast.ClassDef, is_exported: bool, is_command: bool):
    doc = ast.get_docstring(node)
    if not doc:
        yield "no docstring"
        return
    if not doc.splitlines()[0].endswith((".", ":")):
        yield "the first line is not a sentence"
    if is_command:  # the docstring is its help
        if not section(doc, "Example").startswith("Example: regard "):
            yield "no Example"
        return
    args = section(doc, "Args") + section(doc, "Attributes")
    if unnamed := [name for name in parameters(node) if not re.search(rf"\b{name}\b", args)]:
        yield f"Args does not name {', '.join(unnamed)}"
    if takes_tensors(node) and not section(doc, "Shape"):
        yield "no Shape"
    returns = ast.unparse(node.returns) if isinstance(node, ast.FunctionDef) and node.returns else ""
    if re.search("Tensor|tuple", returns) and not section(doc, "Returns"):
        yield "no Returns"
    is_excepted = isinstance(node, ast.ClassDef) and re.search("Protocol|Error|Exception|Warning", bases(node))
    if is_exported and not is_excepted and (error := example_error(doc)):
        yield error


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_are_complete(package):
    lines = []
    for path in (path for path in PUBLIC if package_of(path) == package):
        public = set(listed(TREES[path]))
        for node in TREES[path].body:
            is_overload = "overload" in map(ast.unparse, getattr(node, "decorator_list", []))
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in public and not is_overload:
                is_exported = package == "data" or node.name in exported(package)
                is_command = f"{module_name(path)}:{node.name}" in COMMAND_TARGETS
                gaps = problems(node, is_exported, is_command)
                lines += [f"{path}:{node.lineno} {node.name}: {gap}" for gap in gaps]
    assert not lines, f"{len(lines)} gaps:\n" + "\n".join(lines)
