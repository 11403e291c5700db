"""The folder of an exported model, its model card, and the limits of other engines."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from regard._version import __version__
from regard.attention import MultiHead, Sinusoidal
from regard.errors import ExportCorruptError, ExportError, RunExistsError, RunFormatError, RunNotFoundError, UsageError
from regard.files import (
    add_checksum,
    check_files,
    checksums_of,
    read_json,
    replace_path,
    storage_errors,
    sync_folder,
    write_json,
)
from regard.models import Transformer
from regard.models.layers import FeedForward, TokenEmbedding
from regard.tasks.registry import EXPORT_FILE as RECORD_FILE

__all__ = [
    "CARD_FACTS", "CARD_FILE", "check_export_length", "check_exportable", "model_card",
    "new_export_folder", "num_export_positions", "position_table", "read_record",
]  # fmt: skip

FORMAT = 2  # of export.json
CARD_FILE = "README.md"  # may be edited, so it has no checksum
CARD_FACTS = ("model", "processor", "step", "tokens", "scores")
CARD_OPTIONS = (
    *("model", "num_layers", "embed_dim", "hidden_dim", "num_heads", "positions", "self_score", "self_normalize"),
    *("score", "normalize", "tokenizer", "vocab_size", "decoder_type", "cell_type", "beam_size", "length_penalty"),
)
UNUSED_CARD_OPTIONS = {"transformer": ("hidden_dim", "decoder_type", "cell_type"), "rnn": ("num_heads", "positions")}
LISTED_FILES = ("processor/*", "target_tokenizer/*", "tokenizer*.json")
USED_FILES = {
    "ctranslate2": (*LISTED_FILES, "*.bin", "*.json", "*.txt"),
    "onnx": (*LISTED_FILES, "*.onnx"),
    "safetensors": (*LISTED_FILES, "*.safetensors"),
    "transformers": (*LISTED_FILES, "*.safetensors", "*config.json"),
}
TARGET_LIBRARIES = {
    "ctranslate2": "CTranslate2",
    "onnx": "ONNX Runtime",
    "safetensors": "PyTorch",
    "transformers": "transformers",
}


@contextlib.contextmanager
def new_export_folder(folder: Path, record: dict[str, Any]) -> Iterator[Path]:
    """A temporary folder to write into; it gets its record and its name when it is complete.

    Args:
        folder: the final name
        record: content of export.json, besides versions and checksums
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunExistsError(f"{folder} is not empty; choose an empty or a new folder")
    with storage_errors(str(folder)):
        folder = folder.resolve()
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = folder.parent / f".{folder.name}-{os.getpid()}.part"
        partial.mkdir()
        try:
            yield partial
            files = {name: checksum for name, checksum in checksums_of(partial).items() if name != CARD_FILE}
            versions = {"format": FORMAT, "regard_version": __version__}
            write_json(partial / RECORD_FILE, add_checksum({**versions, **record, "files": files}))
            if folder.exists():
                folder.rmdir()  # it is empty
            replace_path(partial, folder)
            sync_folder(folder.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def read_record(folder: str | Path) -> dict[str, Any]:
    """The record of an exported model, after every file was compared with its checksum.

    Args:
        folder: written by `regard.export.export`

    Example:
        read_record("en-de-int8")["quantize"]  # "int8"
    """
    folder = Path(folder)
    path = folder / RECORD_FILE
    try:
        record = read_json(path)
        if record["format"] == 1:
            raise RunFormatError(f"{folder} was written by regard 0.1; export the model again")
        if record["format"] != FORMAT:
            raise RunFormatError(
                f"{path} has format {record['format']!r}, but this regard reads {FORMAT}; install a newer regard"
            )
        checksums = {str(name): str(value) for name, value in record["files"].items()}
        if not all(isinstance(record[key], str) for key in ("to", "task", "recipe")):
            raise TypeError("to, task and recipe must be texts")
        dict(record["config"])
    except FileNotFoundError:
        raise RunNotFoundError(f"there is no exported model in {folder}: {RECORD_FILE} is missing") from None
    except RunFormatError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ExportCorruptError(f"{path} is damaged ({type(error).__name__}); export the model again") from None
    check_files(folder, checksums, ExportCorruptError, "copy the whole folder, or export the model again")
    used = (one for pattern in USED_FILES.get(record["to"], ()) for one in folder.glob(pattern) if one.is_file())
    if unlisted := sorted({one.relative_to(folder).as_posix() for one in used} - {*checksums, RECORD_FILE}):
        raise ExportCorruptError(f"{path} has no checksum of {unlisted[0]}; export the model again")
    return record


def model_card(record: Mapping[str, Any], name: str) -> str:
    """The model card: Markdown with the header that model hubs read.

    Args:
        record: content of export.json
        name: of the model

    Returns:
        the text of README.md
    """
    config = record["config"]
    extra = {"safetensors": "", "transformers": "[transformers]"}.get(record["to"], "[export]")
    quantization = "" if record["quantize"] is None else f" with {record['quantize']} weights"
    unused = UNUSED_CARD_OPTIONS.get(config.get("model"), ())
    rows = [(key, config[key]) for key in CARD_OPTIONS if config.get(key) is not None and key not in unused]
    rows += [(key, _format_fact(record[key])) for key in CARD_FACTS if record.get(key)]
    usage = 'model.translate("...")' if "beam_size" in config else "model"
    parts = [
        "---\nlibrary_name: regard\ntags:\n- regard\n- attention\n---",
        f"# {name}",
        f"Trained with the recipe `{record['recipe']}` and exported for {TARGET_LIBRARIES[record['to']]}"
        f"{quantization} by regard {__version__}.",
        "## What it is",
        "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows)]),
        "## Use it",
        f'```bash\npip install "regard{extra}"\n```',
        f'```python\nimport regard\n\nmodel = regard.load("{name}")\n{usage}\n```',
        "## To be added by the publisher",
        "The training data, the license and the limitations of the model. The scores above are those of the last "
        "validation, on the data that selected the weights; they are no test.",
    ]
    return "\n\n".join(parts) + "\n"


def _format_fact(value: Any) -> str:
    if isinstance(value, Mapping):
        numbers = {key: number for key, number in value.items() if isinstance(number, int | float)}
        return ", ".join(
            f"{key} {format(number, ',' if isinstance(number, int) else '.4g')}" for key, number in numbers.items()
        )
    if isinstance(value, (list, tuple)):
        return ", ".join(f"{number:,}" for number in value)
    return f"{value:,}"


def num_export_positions(max_length: int) -> int:
    """Number of positions of an exported model: a translation may be twice as long as the longest training text.

    Args:
        max_length: of the model, in source tokens

    Example:
        >>> num_export_positions(20)
        42
    """
    return 2 * max_length + 2


def check_export_length(length: int, num_positions: int) -> None:
    """Raise UsageError for a translation with more tokens than the model has positions.

    Args:
        length: number of target tokens
        num_positions: of the model
    """
    if length > num_positions:
        raise UsageError(
            f"this exported model has {num_positions:,} positions, too few for a translation of {length:,} tokens; take"
            " a smaller max_length"
        )


def position_table(embedding: TokenEmbedding, num_positions: int) -> Tensor:
    """The sinusoidal positions of an embedding as a table.

    Args:
        embedding: source or target embedding of a Transformer that `check_exportable` accepts
        num_positions: number of rows

    Shape: -> (num_positions, embed_dim)

    Returns:
        The table, one row for each position.
    """
    assert isinstance(embedding.positions, Sinusoidal)
    return embedding.positions.encoding(num_positions)


def check_exportable(model: Transformer, engine: str) -> None:
    """Raise ExportError for a Transformer with other parts than those of Vaswani et al. (2017) and of Marian.

    Args:
        model: the model
        engine: name of the engine, for the message
    """
    for mha in (module for module in model.modules() if isinstance(module, MultiHead)):
        if not mha.is_scaled_dot_product:
            raise ExportError(
                f"{engine} takes Transformers whose heads have scaled dot products, softmax, their own keys and"
                " embed_dim / num_heads features, without norms or extra keys;"
                " this one has another attention: use it with PyTorch, or export it to safetensors"
            )
    is_gated = any(module.linear3 is not None for module in model.modules() if isinstance(module, FeedForward))
    if is_gated or any(isinstance(module, nn.RMSNorm) for module in model.modules()):
        raise ExportError(
            f"{engine} takes Transformers with layer norm and feed-forward networks without gates, and this one has"
            " others: use it with PyTorch, or export it to safetensors"
        )
    if any(embedding.norm is not None for embedding in (model.src_embed, model.tgt_embed)):
        raise ExportError(f"{engine} takes Transformers without norm of embeddings; use this one with PyTorch")
    if not all(type(embedding.positions) is Sinusoidal for embedding in (model.src_embed, model.tgt_embed)):
        raise ExportError(
            f"{engine} takes Transformers with sinusoidal positions, and this one has others: use it with PyTorch,"
            " or export it to safetensors"
        )
