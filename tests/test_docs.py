"""The generated parts of the documentation are current, and every option has its line in Chinese."""

import importlib.util
import json
from pathlib import Path

import pytest

from regard.config import Option
from regard.tasks import RECIPES

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.bare  # signatures are shown as they are without the checker of shapes


def load_generator():
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_parts_are_current():
    outdated = [str(path.relative_to(ROOT)) for path in load_generator().outdated_pages()]
    assert outdated == [], "run: python docs/generate.py"


def test_every_generated_part_names_a_generator():
    generate = load_generator()
    for path in (ROOT / "docs").rglob("*.md"):
        if "_build" not in path.parts:
            text = path.read_text(encoding="utf-8")
            assert text.count("<!-- generated: ") == text.count("<!-- end generated -->") == len(generate.MARK.findall(text))


def all_options() -> dict[str, Option]:
    from regard.tasks.registry import TASKS, get_task

    predictors = [get_task(name).predictor_class for name in TASKS]
    used = [getattr(predictor, f"{use}_options") for predictor in predictors for use in ("predict", "evaluate", "explain")]
    configs = [*(recipe.config_class for recipe in RECIPES.values()), *(item for item in used if isinstance(item, type))]
    return {f"{item.group}.{item.name}": item for config in configs for item in config.options()}


def test_every_option_has_a_line_in_chinese():
    options = all_options()
    lines = json.loads((ROOT / "regard" / "locale" / "zh.json").read_text(encoding="utf-8"))
    assert sorted(set(options) - set(lines)) == [], "options without a Chinese line"
    assert sorted(set(lines) - set(options)) == [], "Chinese lines of options that are gone"
    assert all(item.localized_help("zh") == lines[key] for key, item in options.items())
