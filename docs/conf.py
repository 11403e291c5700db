"""How Sphinx builds these pages: `make docs`.

The catalogue and the references are written at build time. A page says where by a comment of one line,

    <!-- catalogue en -->        every mechanism of the catalogue; or zh
    <!-- api score -->           the reference of all entries of one kind
    <!-- settings engine en -->  the settings of the engine; or those that `translation`, `remembering` or
                                 `classification` adds
    <!-- recipes en -->          the recipes, with the settings they choose
    <!-- verb train -->          what `regard train --help` prints

so that a new mechanism, setting, recipe or option appears in the documentation the moment it is there. The settings'
lines of help are translated in settings.zh.json; one that is not there yet is shown in English.
"""

import json
import re
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

sys.path.insert(0, str(Path(__file__).parents[1]))

from typer.testing import CliRunner

from regard._version import __version__
from regard.catalogue import KINDS, MECHANISMS, Mechanism
from regard.cli.main import app
from regard.config import format_value
from regard.tasks import (
    RECIPES,
    AlgorithmConfig,
    CaptioningConfig,
    FillMaskConfig,
    ImageClassificationConfig,
    TextClassificationConfig,
    TextGenerationConfig,
    TranslationConfig,
    VisualQAConfig,
)
from regard.training import TrainingConfig

project = "regard"
author = "The regard developers"
copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
myst_all_links_external = False

html_theme = "furo"
html_title = "regard"
html_static_path = ["_static"]
html_show_copyright = False

default_role = "code"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False

WORDS = {
    "en": {
        "kinds": {
            "score": "Scores",
            "normalizer": "Normalizers",
            "mask": "Masks",
            "scope": "Scopes",
            "position": "Positions",
            "addressing": "Addressing a memory",
            "heads": "Heads",
        },
        "aliases": "Also called",
        "paper": "From",
        "cost": "Cost",
        "fast": "Fast path",
        "exceptions": "Exceptions",
        "stop": ".",
        "settings": ("setting", "default", "values", "what it is"),
        "recipes": ("recipe", "what it is", "settings it chooses"),
        "types": {"int": "whole number", "float": "number", "str": "text", "tuple": "a,b"},
    },
    "zh": {
        "kinds": {
            "score": "打分函数",
            "normalizer": "归一化",
            "mask": "掩码",
            "scope": "范围",
            "position": "位置",
            "addressing": "存储器寻址",
            "heads": "多头",
        },
        "aliases": "别名",
        "paper": "出处",
        "cost": "代价",
        "fast": "快速路径",
        "exceptions": "例外",
        "stop": "。",
        "settings": ("设置", "默认值", "取值", "含义"),
        "recipes": ("配方", "内容", "自带的设置"),
        "types": {"int": "整数", "float": "数", "str": "文字", "tuple": "a,b"},
    },
}


def catalogue(language: str) -> str:
    """Every entry of the catalogue as a section of Markdown."""
    words = WORDS[language]
    parts = []
    for kind in KINDS:
        parts.append(f"## {words['kinds'][kind]}\n")
        parts += [section(entry, language) for entry in MECHANISMS if entry.kind == kind]
    return "\n".join(parts)


def section(entry: Mechanism, language: str) -> str:
    words = WORDS[language]
    sentence = entry.summary_zh if language == "zh" else entry.summary
    lines = [f"### {entry.name}\n", f"{plain(sentence)}\n"]
    if entry.equation:
        lines.append(f"```text\n{entry.equation}\n```\n")
    facts = {
        "paper": entry.paper,
        "aliases": ", ".join(entry.aliases),
        "cost": entry.cost,
        "fast": entry.fast_path,
        "exceptions": entry.law_exceptions,
    }
    lines += [
        f"- **{words[name]}**{'：' if language == 'zh' else ': '}{plain(text)}"
        for name, text in facts.items()
        if text
    ]
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Words as they are: `code` stays code, every other mark loses its meaning in Markdown."""
    parts = re.split(r"(`+[^`]+`+)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([\\*_|<>$\[\]#])", r"\\\1", part) for part in parts
    )


def reference(kind: str) -> str:
    """The API reference of all entries of one kind."""
    home = "regard.attention.addressing" if kind == "addressing" else "regard.attention"
    lines = ["```{eval-rst}"]
    for entry in MECHANISMS:
        if entry.kind == kind:
            directive = "autoclass" if isinstance(entry.object, type) else "autofunction"
            lines += [f".. {directive}:: {home}.{entry.name}", ""]
    return "\n".join([*lines, "```"])


KINDS_OF_SETTINGS = {
    "engine": TrainingConfig,
    "translation": TranslationConfig,
    "remembering": AlgorithmConfig,
    "classification": TextClassificationConfig,
    "language": TextGenerationConfig,
    "masked": FillMaskConfig,
    "captioning": CaptioningConfig,
    "glancing": ImageClassificationConfig,
    "answering": VisualQAConfig,
}


def settings(which: str, language: str) -> str:
    """The settings of the engine, or those that a kind of recipe adds, as a table of Markdown."""
    words, kind = WORDS[language], KINDS_OF_SETTINGS[which]
    known = set() if which == "engine" else {item.name for item in TrainingConfig.options()}
    hints, helps = get_type_hints(kind), {item.name: item.help for item in kind.options()}
    if language == "zh":
        known_zh = json.loads((Path(__file__).parent / "settings.zh.json").read_text(encoding="utf-8"))
        helps = {
            name: known_zh.get(f"{which}.{name}", known_zh.get(name, line)) for name, line in helps.items()
        }
    rows = [
        (f"`{item.name}`", f"`{_usual(item)}`", _values(hints[item.name], words), plain(helps[item.name]))
        for item in fields(kind)
        if item.name not in known
    ]
    return table(words["settings"], rows)


def _usual(item: Any) -> str:
    return format_value(None if item.default is MISSING else item.default)


def _values(hint: Any, words: dict[str, Any]) -> str:
    """What can be typed for a setting of this type."""
    if hint is bool:
        return "`on`, `off`"
    if hint in (int, float, str):
        return str(words["types"][hint.__name__])
    choices = get_args(hint)
    if choices and all(isinstance(choice, str) for choice in choices):
        return ", ".join(f"`{choice}`" for choice in choices)
    if Ellipsis in choices:
        return str(words["types"]["tuple"])
    return ", ".join("`none`" if choice is type(None) else _values(choice, words) for choice in choices)


def recipes(language: str) -> str:
    """The recipes with the settings in which they differ from the defaults, as a table of Markdown."""
    rows = [
        (
            f"`{name}`",
            plain(one.summary_zh if language == "zh" else one.summary),
            " ".join(f"`{key}={format_value(value)}`" for key, value in one.defaults.items()),
        )
        for name, one in RECIPES.items()
    ]
    return table(WORDS[language]["recipes"], rows)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def verb(name: str) -> str:
    """What a verb prints when it is asked for help."""
    asked = CliRunner(env={"COLUMNS": "100"}).invoke(app, [name, "--help"], prog_name="regard")
    return f"```text\n{asked.output.strip()}\n```"


def write_marked(app, docname: str, source: list[str]) -> None:
    source[0] = re.sub(r"<!-- catalogue (\w+) -->", lambda mark: catalogue(mark[1]), source[0])
    source[0] = re.sub(r"<!-- api (\w+) -->", lambda mark: reference(mark[1]), source[0])
    source[0] = re.sub(r"<!-- settings (\w+) (\w+) -->", lambda mark: settings(mark[1], mark[2]), source[0])
    source[0] = re.sub(r"<!-- recipes (\w+) -->", lambda mark: recipes(mark[1]), source[0])
    source[0] = re.sub(r"<!-- verb ([\w-]+) -->", lambda mark: verb(mark[1]), source[0])


def from_house_style(app, what: str, name: str, object_: object, options: object, lines: list[str]) -> None:
    """Docstrings as the house writes them, in reStructuredText: indented formulas are literal."""
    written: list[str] = []
    inside = ""  # "", "formula" or "example"
    for line in lines:
        if line.startswith((">>>", "...")) or (inside == "example" and line.strip()):
            inside = "example"
            written.append(line)
        elif line.startswith("    ") and line.strip():
            written += [] if inside == "formula" else ["::", ""]
            inside = "formula"
            written.append(line)
        elif not line.strip():
            written.append(line)
            inside = "" if inside == "example" else inside
        else:
            inside = ""
            written.append(re.sub(r"(``.+?``|`.+?`)|([|*\\]|_\b|\b_|_$)", _escape, line))
    lines[:] = written


def _escape(mark: re.Match[str]) -> str:
    if mark[1]:
        return mark[1]
    return "\\" + mark[2]


def without_arguments(app, what, name, object_, options, signature, returns) -> tuple[str | None, str | None]:
    """nn.Module takes anything; a class of ours without an __init__ of its own takes nothing."""
    return ("()" if str(signature).startswith("(*args: ") else signature), returns


def setup(app) -> None:
    app.connect("source-read", write_marked)
    app.connect("autodoc-process-docstring", from_house_style)
    app.connect("autodoc-process-signature", without_arguments)
