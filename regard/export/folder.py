"""The folder of an exported model: what is in it, written as a whole and checked before it is used.

The model card: what an exported model is and how to use it, on one page for people.

Which Transformers engines other than PyTorch can compute: the published one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from regard._version import __version__
from regard.attention import MultiHead, ScaledDot, Sinusoidal, softmax
from regard.errors import (
    ExportCorruptError,
    ExportError,
    RunExistsError,
    RunFormatError,
    RunNotFoundError,
    UsageError,
)
from regard.files import sha256_of_file, storage_errors, sync_folder, write_json
from regard.models import Transformer

FORMAT = 1


RECORD_FILE, CARD_FILE = "export.json", "README.md"  # the card is for people, who may write on in it


def is_export(folder: str | Path) -> bool:
    return (Path(folder) / RECORD_FILE).is_file()


@contextlib.contextmanager
def new_export_folder(folder: Path, record: dict[str, Any]) -> Iterator[Path]:
    """A new folder to write into; with its record it gets its name at the end, and not at all if that fails."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunExistsError(f"{folder} is there already; choose an empty or a new folder")
    with storage_errors(str(folder)):
        folder = folder.resolve()
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = folder.parent / f".{folder.name}-{os.getpid()}.part"
        part.mkdir()
        try:
            yield part
            files = {
                path.name: sha256_of_file(path) for path in sorted(part.iterdir()) if path.name != CARD_FILE
            }
            write_json(
                part / RECORD_FILE, {"format": FORMAT, "regard": __version__, **record, "files": files}
            )
            if folder.exists():
                folder.rmdir()  # it is empty
            os.replace(part, folder)
            sync_folder(folder.parent)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def read_record(folder: str | Path) -> dict[str, Any]:
    """The record of an exported model, after every file was found as it was written."""
    folder = Path(folder)
    path = folder / RECORD_FILE
    try:
        record = json.loads(path.read_bytes())
        if record["format"] != FORMAT:
            raise RunFormatError(
                f"{path} has format {record['format']!r}, but this regard reads {FORMAT}; install a newer regard"
            )
        files = {str(name): str(value) for name, value in record["files"].items()}
        if not all(isinstance(record[key], str) for key in ("to", "recipe")):
            raise TypeError("to and recipe should be text")
        dict(record["config"])
    except FileNotFoundError:
        raise RunNotFoundError(f"there is no exported model in {folder}: {RECORD_FILE} is missing") from None
    except RunFormatError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ExportCorruptError(
            f"{path} is damaged ({type(error).__name__}); export the model again"
        ) from None
    for name, value in files.items():
        _check_file(folder, name, value)
    return dict(record)


def _check_file(folder: Path, name: str, expected: str) -> None:
    if Path(name).name != name:  # no record may point out of its folder
        raise ExportCorruptError(
            f"{folder / RECORD_FILE} names a file outside of its folder; export the model again"
        )
    try:
        found = sha256_of_file(folder / name)
    except OSError:
        raise ExportCorruptError(
            f"{folder / name} is missing; copy the whole folder, or export again"
        ) from None
    if found != expected:
        raise ExportCorruptError(
            f"{folder / name} has changed since it was exported; copy it or export it again"
        )


CARD_FACTS = ("parameters", "words", "step", "tokens", "scores")


CARD_OPTIONS = (
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


TARGET_LIBRARIES = {"ctranslate2": "CTranslate2", "onnx": "ONNX Runtime", "safetensors": "PyTorch"}


def card_facts(record: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """What is worth knowing of a run, by the names of `FACTS`; None where it is not known."""
    return {name: record.get(name, state.get(name)) for name in CARD_FACTS}


def model_card(recipe: str, record: Mapping[str, Any], name: str) -> str:
    """Markdown with the head that model hubs read."""
    extra = "" if record["to"] == "safetensors" else "[export]"
    parts = [
        "---\nlibrary_name: regard\ntags:\n- regard\n- attention\n---",
        f"# {name}",
        f"Trained with the recipe `{recipe}` and exported for {TARGET_LIBRARIES[record['to']]}{_quantization_note(record)} by regard "
        f"{__version__}.",
        "## What it is",
        _facts_table(record),
        "## Use it",
        f'```bash\npip install "regard{extra}"\n```',
        f'```python\nimport regard\n\nmodel = regard.load("{name}")\n{_usage(record)}\n```',
        "## What is not said here",
        "The data it was trained on, its license and its limits are for the person who publishes it to add. "
        "The scores are those of the last validation in training, of the text by which weights are chosen; "
        "a test is still to be made.",
    ]
    return "\n\n".join(parts) + "\n"


def _quantization_note(record: Mapping[str, Any]) -> str:
    return "" if record["quantize"] is None else f" with {record['quantize']} weights"


def _facts_table(record: Mapping[str, Any]) -> str:
    rows = [(key, record["config"][key]) for key in CARD_OPTIONS if record["config"].get(key) is not None]
    transformer = record["config"].get("model") == "transformer"
    rows = [row for row in rows if row[0] not in (("score", "order", "cell") if transformer else ("heads",))]
    rows += [(key, _format_fact(record[key])) for key in CARD_FACTS if record.get(key)]
    return "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows)])


def _format_fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {number:.4g}" for key, number in value.items() if number is not None)
    if isinstance(value, (list, tuple)):
        return ", ".join(f"{number:,}" for number in value)
    return f"{value:,}"


def _usage(record: Mapping[str, Any]) -> str:
    return 'model.translate("...")' if "beam" in record["config"] else "model"


def num_export_positions(max_length: int) -> int:
    """How many positions an exported model has: a translation may be twice as long as the run's longest text."""
    return 2 * max_length + 2


def check_export_length(length: int, positions: int) -> None:
    """Refuse to write beyond them."""
    if length > positions:
        raise UsageError(
            f"this exported model has {positions:,} positions, too few for a translation of {length:,} tokens; take a"
            " smaller max_length"
        )


def check_exportable(model: Transformer, engine: str) -> None:
    """Refuse a Transformer with other parts than the paper's."""
    for heads in (part for part in model.modules() if isinstance(part, MultiHead)):
        usual = type(heads.score) is ScaledDot and heads.normalize in (None, softmax)
        if not usual or heads.num_kv_heads != heads.num_heads:
            raise ExportError(
                f"{engine} gets Transformers whose heads share scaled dot products by softmax, each with keys of its"
                " own; this one has another attention: use it with PyTorch, or export it to safetensors"
            )
    if not all(type(part.positions) is Sinusoidal for part in (model.src_embed, model.tgt_embed)):
        raise ExportError(
            f"{engine} gets Transformers with sinusoidal positions, and this one has others: use it with PyTorch,"
            " or export it to safetensors"
        )
