"""The layout of the project: short files, unique class names, `__all__` everywhere, no private imports of others."""

import ast
from collections import defaultdict
from pathlib import Path

import regard

ROOT = Path(__file__).parents[1]
MAX_LINES = 400

SOURCES = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "regard").rglob("*.py"))}
PUBLIC = [
    name for name in SOURCES if not any(part.startswith("_") and part != "__init__.py" for part in Path(name).parts)
]
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in SOURCES.items()}


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def package_of(module: str) -> str:
    """The top-level package of a module, e.g. "attention"; a module directly in regard/ is its own package."""
    return module.split(".")[1] if "." in module else ""


def imported_names(path: str):
    """Every `(module, name)` that a file imports from regard; name is "" for `import module`."""
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.startswith("regard"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regard"):
            yield from ((node.module, alias.name) for alias in node.names)


def test_no_file_is_longer_than_the_limit():
    folders = ("regard", "tests", "benchmarks", "examples")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}


def test_public_class_names_are_unique():
    homes = defaultdict(list)
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(path)
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def module_names(tree: ast.Module):
    """The names that a module defines or imports at its top level, also under `if TYPE_CHECKING:`."""
    for node in tree.body:
        for part in node.body if isinstance(node, ast.If) else [node]:
            if isinstance(part, (ast.FunctionDef, ast.ClassDef)):
                yield part.name
            elif isinstance(part, (ast.Import, ast.ImportFrom)):
                yield from (alias.asname or alias.name.split(".")[0] for alias in part.names)
            elif isinstance(part, (ast.Assign, ast.AnnAssign)):
                targets = part.targets if isinstance(part, ast.Assign) else [part.target]
                yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))


def test_every_public_module_has_all():
    defined = {path: set(module_names(TREES[path])) for path in PUBLIC}
    assert [path for path, names in defined.items() if names and "__all__" not in names] == []


def test_names_in_all_exist():
    wrong = {}
    for path in PUBLIC:
        names = set(module_names(TREES[path]))
        listed = next((ast.literal_eval(node.value) for node in TREES[path].body if is_all(node)), [])
        unknown = [name for name in listed if name not in names]
        if unknown or len(set(listed)) < len(listed):
            wrong[path] = unknown or listed
    assert wrong == {}


def is_all(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def test_dir_lists_the_public_names():
    assert sorted(dir(regard)) == sorted(regard.__all__)


def test_no_package_imports_a_private_module_of_another():
    violations = []
    for path in SOURCES:
        own = package_of(module_name(path))
        for module, name in imported_names(path):
            package, parts = package_of(module), [*module.split(".")[2:], name]
            private = any(part.startswith("_") and not part.endswith("__") for part in parts)
            if package not in ("", "_imports", own) and private:
                violations.append(f"{path}: {module}.{name}".rstrip("."))
    assert violations == []
