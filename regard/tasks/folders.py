"""Which kind of folder a model is in; importing it imports neither torch nor any task."""

from __future__ import annotations

from pathlib import Path

__all__ = ["EXPORT_FILE", "is_checkpoint", "is_export"]

EXPORT_FILE = "export.json"  # the record of an exported model


def is_export(folder: str | Path) -> bool:
    """Whether a folder is an exported model.

    Args:
        folder: the folder

    Example:
        is_export("en-de-onnx")  # True
    """
    return (Path(folder) / EXPORT_FILE).is_file()


def is_checkpoint(folder: str | Path) -> bool:
    """Whether a folder is a checkpoint of Hugging Face: it has a config.json, and is neither a run nor an export.

    Args:
        folder: the folder

    Example:
        is_checkpoint("opus-mt-en-de")  # True
    """
    folder = Path(folder)
    return (folder / "config.json").is_file() and not (is_export(folder) or (folder / "run.json").is_file())
