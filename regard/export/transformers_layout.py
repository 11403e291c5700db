"""Export to `transformers`: a folder with its config.json, weights and tokenizer.json, which regard loads, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.data.vocabulary import BOS_ID, EOS_ID, PAD_ID
from regard.errors import ExportError
from regard.export.tokenizer_export import write_tokenizers
from regard.files import write_json
from regard.models import CausalLM, Transformer
from regard.models.pretrained import load_model, read_checkpoint, to_transformers
from regard.tasks import registry
from regard.training import RunFolder, save_weights

__all__ = ["open_model", "write_model"]

WEIGHTS_FILE = "model.safetensors"
MEAN_LENGTH = 20  # tokens of a sentence, at which both formulas of the length penalty have the same slope


def write_model(predictor: Any, folder: Path) -> None:
    """Write a model in the layout of `transformers`; ExportError if it has no counterpart there.

    Args:
        predictor: of a run: a translator with a Transformer, or a text generator
        folder: an existing folder
    """
    model, config = predictor.model, predictor.config
    if not isinstance(model, Transformer | CausalLM):
        raise ExportError(
            f"transformers has no counterpart of {type(model).__name__}; it takes translators with model=transformer"
            " and text generators: export this one to safetensors, which regard loads"
        )
    ids = {"pad_token_id": PAD_ID, "bos_token_id": BOS_ID, "eos_token_id": EOS_ID}
    if isinstance(model, Transformer):
        max_positions = max(512, 2 * config.max_length + 2)
        ids["decoder_start_token_id"] = BOS_ID
    else:
        max_positions = config.passage_length + 1
    write_tokenizers(predictor, folder)
    settings, weights = to_transformers(model, max_positions)
    settings |= {**ids, "torch_dtype": "float32"}
    if isinstance(model, Transformer):
        settings.setdefault("max_position_embeddings", max_positions)
    write_json(folder / "config.json", settings)
    write_json(folder / "generation_config.json", {**ids, **_search_settings(config, isinstance(model, Transformer))})
    save_weights(weights, folder / WEIGHTS_FILE)


def _search_settings(config: Any, is_translator: bool) -> dict[str, Any]:
    """The search of the run as `generate` has it: its length penalty is a power of the length."""
    settings: dict[str, Any] = {"bad_words_ids": [[PAD_ID], [BOS_ID]]}
    if not is_translator:
        return settings | {"max_length": config.passage_length}
    penalty = config.length_penalty
    if config.length_penalty_type == "wu":
        penalty = round(penalty * MEAN_LENGTH / (5 + MEAN_LENGTH), 4)
    search = {"num_beams": config.beam_size, "early_stopping": config.beam_size > 1, "length_penalty": penalty}
    return settings | search | {"max_length": config.max_length + 2}


def open_model(folder: Path, record: dict[str, Any], device: str) -> Any:
    """The predictor of a folder that `write_model` wrote.

    Args:
        folder: of the export
        record: its export.json
        device: where to compute
    """
    task = registry.get_task(record["task"])
    config, processor = (
        task.config_class.from_dict(record["config"]),
        task.processor_class.load(RunFolder(folder).processor),
    )
    return task.predictor_class(load_model(read_checkpoint(folder)).to(device), processor, config)
