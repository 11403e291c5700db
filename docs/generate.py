"""Write the generated parts of the documentation: options, recipes, commands, the catalogue and the API.

    python docs/generate.py            update the parts that changed; `make docs` does it before it builds the pages
    python docs/generate.py --check    list the pages that are out of date; exit code 1 if there are any

A part is between `<!-- generated: options TranslationConfig en -->` and `<!-- end generated -->`. The first word names
a function of GENERATORS below, the others are its arguments. The pages in the repository are complete, so that they can
be read on a code host; tests/test_docs.py checks that they are current. A part whose generator fails is left as it is,
and reported.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from regard.catalogue import KINDS, MECHANISMS, Mechanism
from regard.config import Config, format_value

DOCS = Path(__file__).parent
MARK = re.compile(r"(<!-- generated: ([\w. -]+?) -->\n).*?(<!-- end generated -->)", re.DOTALL)

TEXT = {
    "en": {
        "kinds": {
            "score": "Scores",
            "normalizer": "Normalizers",
            "mask": "Masks",
            "scope": "Scopes",
            "position": "Positions",
            "addressing": "Memory addressing",
            "heads": "Heads",
        },
        "aliases": "Also called",
        "paper": "Reference",
        "cost": "Cost",
        "fast_path": "Fast path",
        "law_exceptions": "Exceptions",
        "colon": ": ",
        "options": ("option", "default", "values", "meaning"),
        "recipes": ("recipe", "task", "description", "options that it sets"),
        "arguments": ("argument or option", "meaning"),
        "types": {"int": "integer", "float": "number", "str": "text", "tuple": "a,b"},
        "when": "with",
    },
    "zh": {
        "kinds": {
            "score": "打分函数",
            "normalizer": "归一化",
            "mask": "掩码",
            "scope": "范围",
            "position": "位置编码",
            "addressing": "存储器寻址",
            "heads": "多头注意力",
        },
        "aliases": "别名",
        "paper": "出处",
        "cost": "计算代价",
        "fast_path": "快速路径",
        "law_exceptions": "例外",
        "colon": "：",
        "options": ("选项", "默认值", "取值", "含义"),
        "recipes": ("配方", "任务", "说明", "设定的选项"),
        "arguments": ("参数或选项", "含义"),
        "types": {"int": "整数", "float": "数", "str": "文字", "tuple": "a,b"},
        "when": "用于",
    },
}


def escape(text: str) -> str:
    """Text in which `code` stays code and every other mark loses its meaning in Markdown."""
    parts = re.split(r"(`+[^`]+`+)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([\\*_|<>$\[\]#])", r"\\\1", part) for part in parts)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def generate_catalogue(language: str) -> str:
    """Every mechanism, by kind."""
    parts = []
    for kind in KINDS:
        parts.append(f"## {TEXT[language]['kinds'][kind]}")
        parts += [_mechanism(entry, language) for entry in MECHANISMS if entry.kind == kind]
    return "\n\n".join(parts)


def _mechanism(entry: Mechanism, language: str) -> str:
    text = TEXT[language]
    parts = [f"### {entry.name}", escape(entry.summary_zh if language == "zh" else entry.summary)]
    if entry.equation:
        parts.append(f"```text\n{entry.equation}\n```")
    facts = {name: getattr(entry, name) for name in ("paper", "aliases", "cost", "fast_path", "law_exceptions")}
    facts["aliases"] = ", ".join(entry.aliases)
    lines = [f"- **{text[name]}**{text['colon']}{escape(fact)}" for name, fact in facts.items() if fact]
    return "\n\n".join([*parts, "\n".join(lines)] if lines else parts)


def generate_options(name: str, language: str) -> str:
    """The options of a config class; those of the engine are left out unless it is `TrainingConfig` itself."""
    from regard.training import TrainingConfig

    config, engine = _config_class(name), {item.name for item in TrainingConfig.options()}
    items = [item for item in config.options() if config is TrainingConfig or item.name not in engine]
    return table(TEXT[language]["options"], [_option_row(item, language) for item in items])


def _config_class(name: str) -> type[Config]:
    from regard.tasks import RECIPES
    from regard.training import TrainingConfig

    return {item.__name__: item for item in (TrainingConfig, *(recipe.config_class for recipe in RECIPES.values()))}[
        name
    ]


def _option_row(item: Any, language: str, *, command: bool = False) -> tuple[str, ...]:
    conditions = ", ".join(f"`{key}={format_value(value)}`" for key, value in item.when.items())
    meaning = escape(item.localized_help(language)) + (
        f" ({TEXT[language]['when']} {conditions})" if conditions else ""
    )
    name = f"--{item.name.replace('_', '-')}" if command else item.name
    return f"`{name}`", f"`{item.format(item.default)}`", _values(item, language), meaning


def _values(item: Any, language: str) -> str:
    """What can be typed for an option."""
    if item.allowed:
        return ", ".join(f"`{value}`" for value in item.allowed)
    names = TEXT[language]["types"]
    hint = str(getattr(item.type, "__name__", item.type))
    if hint == "bool":
        return "`on`, `off`"
    type_name = next((names[name] for name in ("tuple", "float", "int", "str") if name in hint), names["str"])
    symbols = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = ", ".join(f"{symbols[name]} {bound:g}" for name, bound in item.bounds.items())
    none = f", `{item.format(None)}`" if "None" in hint else ""
    return f"{type_name} {bounds}".strip() + none


def generate_task_options(role: Literal["predict", "evaluate", "explain"], language: str) -> str:
    """The options that tasks add to a command: `predict`, `evaluate` or `explain` (`regard show`)."""
    from regard.tasks import TASKS, get_options

    parts = []
    for name in TASKS:
        rows = [_option_row(item, language, command=True) for item in get_options(name, role).options()]
        if rows:
            parts.append(f"#### {name}\n\n{table(TEXT[language]['options'], rows)}")
    return "\n\n".join(parts)


def generate_recipes(language: str) -> str:
    """The recipes with the options in which they differ from the defaults."""
    from regard.tasks import RECIPES

    rows = [
        (
            f"`{name}`",
            f"`{recipe.task}`",
            escape(recipe.summary_zh if language == "zh" else recipe.summary),
            " ".join(f"`{key}={format_value(value)}`" for key, value in recipe.defaults.items()),
        )
        for name, recipe in RECIPES.items()
    ]
    return table(TEXT[language]["recipes"], rows)


def generate_command(name: str, language: str) -> str:
    """The arguments and options of a command."""
    from regard.cli.main import build_command

    command = build_command(name)
    context = command.make_context(name, [], resilient_parsing=True)
    records = [item.get_help_record(context) for item in command.params]
    rows = [(f"`{record[0]}`".replace("|", "\\|"), escape(" ".join(record[1].split()))) for record in records if record]
    return table(TEXT[language]["arguments"], rows)


def generate_api(package: str, language: str) -> str:
    """Every public name of a package: its signature and docstring; in other languages its signature and summary."""
    module = import_module(package)
    parts = []
    for name in sorted(module.__all__, key=str.lower):
        value = getattr(module, name)
        if inspect.ismodule(value) or not (inspect.isclass(value) or callable(value)):
            continue
        summary, _, rest = (inspect.getdoc(value) or "").partition("\n\n")
        parts.append(
            f"### {escape(name)}\n\n```text\n{name}{_signature(value)}\n```\n\n{escape(' '.join(summary.split()))}"
        )
        if language != "en":
            continue
        if rest.strip():
            parts.append(f"```text\n{rest.strip()}\n```")
        if inspect.isclass(value) and (methods := _methods(value)):
            parts.append(methods)
    return "\n\n".join(parts)


def _methods(value: type) -> str:
    """The public methods and properties that a class itself documents, one line each."""
    lines = []
    for name, item in vars(value).items():
        target = item.__func__ if isinstance(item, classmethod | staticmethod) else item
        document = inspect.getdoc(target) if callable(target) or isinstance(item, property) else None
        if name.startswith("_") or not document or name in ("forward", "reset_parameters", "extra_repr"):
            continue
        head = (
            name
            if isinstance(item, property)
            else f"{name}{_signature(target)}".replace("(self, ", "(").replace("(self)", "()").replace("(cls, ", "(")
        )
        lines.append(f"- `{head}`: {escape(' '.join(document.partition(chr(10) * 2)[0].split()))}")
    return "\n".join(lines)


def _signature(value: Any) -> str:
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return "(...)"
    if any(item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD) for item in parameters) and len(parameters) == 2:
        return "()"
    plain = [
        item.replace(annotation=item.empty, default=_Shown(item.default))
        if item.default is not item.empty
        else item.replace(annotation=item.empty)
        for item in parameters
    ]
    return str(inspect.Signature(plain))


class _Shown:
    """A default value as it reads in a signature."""

    def __init__(self, value: object) -> None:
        text = getattr(value, "__name__", None) if callable(value) and not hasattr(value, "forward") else None
        self.text = text or (repr(value) if " at 0x" not in repr(value) and "\n" not in repr(value) else "...")

    def __repr__(self) -> str:
        return self.text


GENERATORS: dict[str, Callable[..., str]] = {
    "api": generate_api,
    "catalogue": generate_catalogue,
    "command": generate_command,
    "options": generate_options,
    "recipes": generate_recipes,
    "task-options": generate_task_options,
}


class GenerationError(Exception):
    """A generated part cannot be generated."""


def render(page: str, failures: list[str] | None = None) -> str:
    """A page whose generated parts are current.

    Args:
        page: its text
        failures: receives a line for each part that cannot be generated and stays as it is; None: raise GenerationError
    """

    def replace(match: re.Match[str]) -> str:
        name, *arguments = match[2].split()
        try:
            return f"{match[1]}\n{GENERATORS[name](*arguments)}\n\n{match[3]}"
        except Exception as error:
            if failures is None:
                raise GenerationError(match[2]) from error
            failures.append(f"{match[2]}: {type(error).__name__}: {error}")
            return match[0]

    return MARK.sub(replace, page)


def find_pages() -> list[Path]:
    """The pages of both languages."""
    return sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)


def main(arguments: Sequence[str]) -> int:
    failures: list[str] = []
    outdated = 0
    for path in find_pages():
        text = path.read_text(encoding="utf-8")
        new = render(text, failures)
        if new != text:
            outdated += 1
            sys.stdout.write(f"{path.relative_to(DOCS.parent)}\n")
            if "--check" not in arguments:
                path.write_text(new, encoding="utf-8")
    for failure in dict.fromkeys(failures):
        sys.stderr.write(f"cannot generate {failure}\n")
    return 1 if failures or (outdated and "--check" in arguments) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
