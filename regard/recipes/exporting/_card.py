"""The model card: what an exported model is and how to use it, on one page for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard._version import __version__

FACTS = ("parameters", "words", "step", "tokens", "scores")
SHOWN = (
    "model",
    "layers",
    "dim",
    "heads",
    "tokenizer",
    "vocab",
    "score",
    "order",
    "cell",
    "beam",
    "length_penalty",
)
USES = {"ctranslate2": "CTranslate2", "onnx": "ONNX Runtime", "safetensors": "PyTorch"}


def facts(record: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """What is worth knowing of a run, by the names of `FACTS`; None where it is not known."""
    return {name: record.get(name, state.get(name)) for name in FACTS}


def card(recipe: str, record: Mapping[str, Any], name: str) -> str:
    """Markdown with the head that model hubs read."""
    extra = "" if record["to"] == "safetensors" else "[export]"
    parts = [
        "---\nlibrary_name: regard\ntags:\n- regard\n- attention\n---",
        f"# {name}",
        f"Trained with the recipe `{recipe}` and exported for {USES[record['to']]}{_small(record)} by regard "
        f"{__version__}.",
        "## What it is",
        _table(record),
        "## Use it",
        f'```bash\npip install "regard{extra}"\n```',
        f'```python\nimport regard\n\nmodel = regard.load("{name}")\n{_use(record)}\n```',
        "## What is not said here",
        "The data it was trained on, its license and its limits are for the person who publishes it to add. "
        "The scores are those of the last validation in training, of the text by which weights are chosen; "
        "a test is still to be made.",
    ]
    return "\n\n".join(parts) + "\n"


def _small(record: Mapping[str, Any]) -> str:
    return "" if record["quantize"] is None else f" with {record['quantize']} weights"


def _table(record: Mapping[str, Any]) -> str:
    rows = [(key, record["settings"][key]) for key in SHOWN if record["settings"].get(key) is not None]
    transformer = record["settings"].get("model") == "transformer"
    rows = [row for row in rows if row[0] not in (("score", "order", "cell") if transformer else ("heads",))]
    rows += [(key, _written(record[key])) for key in FACTS if record.get(key)]
    return "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows)])


def _written(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {number:.4g}" for key, number in value.items() if number is not None)
    if isinstance(value, (list, tuple)):
        return ", ".join(f"{number:,}" for number in value)
    return f"{value:,}"


def _use(record: Mapping[str, Any]) -> str:
    return 'model.translate("...")' if "beam" in record["settings"] else "model"
