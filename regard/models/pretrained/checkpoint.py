"""The files of a checkpoint of Hugging Face: a folder, or a name on its hub; no code of a checkpoint is run."""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard._imports import require_extra
from regard.errors import DownloadError, RunFormatError, RunNotFoundError
from regard.files import read_json

__all__ = ["CONFIG_FILE", "PretrainedCheckpoint", "find_folder", "read_checkpoint", "read_state_dict"]

CONFIG_FILE = "config.json"
HUB_NAME = re.compile(r"(?:[\w.-]+/)?[\w.-]+")
WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
TOKENIZER_FILES = ("*.json", "*.spm", "*.model", "vocab.txt", "merges.txt")


@dataclass(frozen=True)
class PretrainedCheckpoint:
    """A checkpoint of Hugging Face.

    Args:
        folder: its files
        config: config.json
        generation: generation_config.json; empty if there is none

    Example:
        >>> checkpoint = PretrainedCheckpoint(Path("a"), {"model_type": "marian", "num_beams": 6}, {"num_beams": 4})
        >>> checkpoint.model_type, checkpoint.setting("num_beams")
        ('marian', 4)
    """

    folder: Path
    config: dict[str, Any]
    generation: dict[str, Any] = field(default_factory=dict)

    @property
    def model_type(self) -> str:
        """The family of the model, such as "marian"."""
        return str(self.config.get("model_type", ""))

    def setting(self, name: str, default: Any = None) -> Any:
        """A setting of generation, which older checkpoints have in config.json.

        Args:
            name: of the setting
            default: its value if neither file has one
        """
        for values in (self.generation, self.config):
            if values.get(name) is not None:
                return values[name]
        return default


def read_checkpoint(folder: Path) -> PretrainedCheckpoint:
    """Read the settings of a checkpoint.

    Args:
        folder: of the checkpoint

    Example:
        read_checkpoint(Path("opus-mt-en-de")).model_type  # "marian"
    """
    return PretrainedCheckpoint(
        folder, _read_settings(folder / CONFIG_FILE), _read_settings(folder / "generation_config.json", {})
    )


def _read_settings(path: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    try:
        settings = read_json(path)
    except FileNotFoundError:
        if default is not None:
            return default
        raise RunNotFoundError(f"there is no model in {path.parent}: {path.name} is missing") from None
    except ValueError as error:
        raise RunFormatError(f"{path} is damaged: {error}; download it again") from None
    return settings


def find_folder(name: str | Path, revision: str | None = None, token: str | None = None) -> Path:
    """The folder of a checkpoint: that of this name, or the cache of the hub, where its files are downloaded to.

    Downloading is `huggingface_hub`'s, with its cache and its environment variables (HF_HOME, HF_TOKEN, HF_ENDPOINT,
    HF_HUB_OFFLINE). Settings, weights and tokenizers are fetched, code is not.

    Args:
        name: a folder, or a name on the hub such as "Helsinki-NLP/opus-mt-en-de"
        revision: branch, tag or commit on the hub; the main branch if None
        token: of the hub; the one that `hf auth login` has saved if None

    Example:
        find_folder("Helsinki-NLP/opus-mt-en-de")
    """
    if not str(name):
        raise RunNotFoundError("there is no model without a name; name a folder, or a model of the hub as user/model")
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if not HUB_NAME.fullmatch(str(name)) or (folder.parent.is_dir() and str(folder.parent) != "."):
        raise RunNotFoundError(f"there is no folder {name}; name a folder, or a model of the hub as user/model")
    hub = require_extra("huggingface_hub", extra="transformers")
    arguments = {"revision": revision, "token": token}
    try:
        path = hub.snapshot_download(str(name), allow_patterns=["*.json", *TOKENIZER_FILES], **arguments)
        if not _has_safetensors(Path(path)):
            files = set(hub.list_repo_files(str(name), **arguments))
            pattern = "*.safetensors" if any(one in files for one in WEIGHT_FILES[:2]) else "pytorch_model*.bin"
            path = hub.snapshot_download(str(name), allow_patterns=["*.json", *TOKENIZER_FILES, pattern], **arguments)
    except (OSError, ValueError) as error:  # HTTP errors and names that do not exist are such errors
        reason = str(error).strip().split("\n")[0]
        raise DownloadError(f"{name} is no folder, and could not be downloaded from the hub: {reason}") from error
    return Path(path)


def _has_safetensors(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


def read_state_dict(folder: Path) -> tuple[dict[str, Tensor], str]:
    """The weights of a checkpoint, from safetensors or, without running code, from PyTorch's own format.

    Args:
        folder: of the checkpoint

    Returns:
        The state dict, and the path of its file, for messages.
    """
    for name in WEIGHT_FILES:
        path = folder / name
        if path.is_file():
            files = _read_index(path) if name.endswith(".json") else [name]
            state = {key: tensor for file in files for key, tensor in _read_file(_inside(folder, file)).items()}
            return state, str(path)
    raise RunNotFoundError(f"there are no weights in {folder}: one of {', '.join(WEIGHT_FILES)} is needed")


def _read_index(path: Path) -> list[str]:
    """The files that the index of a checkpoint names."""
    files = _read_settings(path).get("weight_map")
    if not isinstance(files, dict) or not files or not all(isinstance(one, str) and one for one in files.values()):
        raise RunFormatError(
            f"{path} is damaged: weight_map must be an object from the names of weights to files; download it again"
        )
    return sorted({*files.values()})


def _inside(folder: Path, name: str) -> Path:
    """A file of a folder; the index of a checkpoint may not name files elsewhere."""
    if Path(name).name != name:
        raise RunFormatError(f"{folder}: the index of the weights names {name!r}, which is not in the folder")
    return folder / name


def _read_file(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise RunNotFoundError(f"{path} is missing; download the checkpoint again") from None
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise RunFormatError(f"{path} cannot be read: {str(error).splitlines()[0]}; download it again") from None
    if not isinstance(state, dict):
        raise RunFormatError(f"{path} must have a dict from names to tensors, got {type(state).__name__}")
    for name, tensor in state.items():
        if not (isinstance(name, str) and isinstance(tensor, Tensor)):
            raise RunFormatError(
                f"{path} must have a dict from names to tensors, but {name!r} is of type {type(tensor).__name__}; save"
                " the state dict of the model alone"
            )
    return state
