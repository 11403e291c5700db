"""Checkpoints of Hugging Face as models of regard, and models of regard in the layouts of `transformers`.

    from_pretrained    a folder or a name on the hub -> a model with equal logits
    to_transformers    a model -> config.json and the state dict of its layout

A family is a constructor call and a table of names; the models are those of `regard.models`. Nothing of
`transformers` is imported, and no code of a checkpoint is run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attention.module import Device, Dtype
from regard.errors import DtypeError, ExportError, UnsupportedError, UsageError, WeightsMismatchError
from regard.models.pretrained.bert import BERT, ROBERTA
from regard.models.pretrained.checkpoint import (
    CONFIG_FILE,
    PretrainedCheckpoint,
    find_folder,
    read_checkpoint,
    read_state_dict,
)
from regard.models.pretrained.family import Family
from regard.models.pretrained.fields import ConfigFields
from regard.models.pretrained.gpt2 import GPT2
from regard.models.pretrained.llama import LLAMA
from regard.models.pretrained.rules import read_weights, write_weights
from regard.models.pretrained.seq2seq import SEQ2SEQ
from regard.models.pretrained.t5 import T5

__all__ = [
    "FAMILIES",
    "PretrainedCheckpoint",
    "find_folder",
    "from_pretrained",
    "load_model",
    "read_checkpoint",
    "to_transformers",
]

LAYOUTS = (T5, SEQ2SEQ, BERT, ROBERTA, LLAMA, GPT2)  # the first that takes a model describes it
FAMILIES: dict[str, Family] = {name: one for one in LAYOUTS for name in one.model_types}
INITIALIZERS = {"uniform_", "normal_", "xavier_uniform_", "kaiming_uniform_"}


def from_pretrained(
    name: str | Path,
    *,
    revision: str | None = None,
    token: str | None = None,
    device: Device = None,
    dtype: Dtype = None,
) -> Any:
    """The model of a Hugging Face checkpoint, in eval mode: token ids are those of the checkpoint.

    The families are Marian, BART, Pegasus, T5 (`Transformer`), BERT, RoBERTa (`Bert`, `BertForMaskedLM`), GPT-2, Llama,
    Mistral, Qwen2 and Qwen3 (`CausalLM`). A checkpoint with a setting that changes the computation, and that regard
    does not know, is refused.

    Args:
        name: a folder, or a name on the hub such as "Helsinki-NLP/opus-mt-en-de", which is downloaded
        revision: branch, tag or commit on the hub; the main branch if None
        token: of the hub; the one that `hf auth login` has saved if None
        device: where the model is; the CPU if None
        dtype: of its weights; float32 if None

    Returns:
        The model.

    Example:
        model = regard.from_pretrained("bert-base-chinese")
        bert = model if isinstance(model, Bert) else model.encoder  # without the head for masked tokens
        hidden = bert(tokens, lengths)
    """
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise DtypeError(f"from_pretrained: dtype must be a floating-point dtype such as torch.float16, got {dtype!r}")
    try:
        device = None if device is None else torch.device(device)
    except (RuntimeError, TypeError):
        raise UsageError(f'from_pretrained: device must be one of torch such as "cuda:0", got {device!r}') from None
    model = load_model(read_checkpoint(find_folder(name, revision, token)))
    return model.to(device=device, dtype=dtype)


def load_model(checkpoint: PretrainedCheckpoint) -> Any:
    """The model of a checkpoint, in float32 and eval mode.

    Args:
        checkpoint: its settings and its folder

    Example:
        load_model(read_checkpoint(Path("opus-mt-en-de")))
    """
    path = checkpoint.folder / CONFIG_FILE
    if (family := FAMILIES.get(checkpoint.model_type)) is None:
        known = ", ".join(FAMILIES)
        raise UnsupportedError(f"{path} has model_type={checkpoint.model_type!r}; regard loads {known}")
    fields = ConfigFields(checkpoint.config, str(path))
    weights, weights_path = read_state_dict(checkpoint.folder)
    weights = {name: tensor.float() for name, tensor in family.complete_names(weights).items()}
    for name in (
        "num_hidden_layers",
        "encoder_layers",
        "decoder_layers",
        "n_layer",
        "num_layers",
        "num_decoder_layers",
    ):
        if isinstance(count := checkpoint.config.get(name), int) and count > len(weights):
            raise WeightsMismatchError(f"{path} has {name}={count:,}, but {weights_path} has fewer weights")
    try:
        with torch.device("meta"), NoInitialization():
            sketch = family.build(fields, weights.keys())  # shapes are compared before memory is taken
    except RuntimeError as error:
        raise WeightsMismatchError(f"{path} has sizes that no tensor can have: {error}") from None
    fields.check_rest(family.harmless)
    state = read_weights(sketch, weights, family.rules(sketch), copies=family.copies(sketch), path=weights_path)
    with NoInitialization():
        model = family.build(fields, weights.keys())
    if family.verify is not None and (problem := family.verify(model, weights)):
        raise WeightsMismatchError(f"{weights_path}: {problem}")
    model.load_state_dict(state)
    return model.eval()


def to_transformers(model: nn.Module, max_positions: int = 1024) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The config.json and the weights of a model in the layout of `transformers`.

    Args:
        model: `Transformer` (Marian, Pegasus or BART; T5 with `RelativeBias`), `Bert`, `BertForMaskedLM` or `CausalLM`
            (GPT-2; Llama, Mistral, Qwen2 or Qwen3 with `Rotary`)
        max_positions: rows of a table of positions, where the model computes them and the layout has a table

    Returns:
        config.json without token ids, and the state dict. ExportError says what has no counterpart.

    Example:
        >>> from regard.models import Transformer
        >>> model = Transformer(11, 11, embed_dim=8, num_heads=2, num_encoder_layers=1, ffn_dim=16)
        >>> config, weights = to_transformers(model)
        >>> config["model_type"], weights["lm_head.weight"].shape
        ('marian', torch.Size([11, 8]))
    """
    for family in LAYOUTS:
        if isinstance(model, family.model_class) and family.takes(model) and family.describe is not None:
            prepared = model if family.prepare is None else family.prepare(model, max_positions)
            config = family.describe(prepared)
            return config, write_weights(prepared, family.rules(prepared))
    raise ExportError(f"transformers has no counterpart of {type(model).__name__}; export it to safetensors")


class NoInitialization(TorchFunctionMode):
    """A context in which the random initialization of parameters is left out, since weights follow."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in INITIALIZERS:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))
