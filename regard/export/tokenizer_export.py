"""The tokenizers of an exported model as the tokenizer.json that Hugging Face's `tokenizers` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.data.tokenizer_files import save_hub_tokenizer
from regard.errors import ExportError
from regard.tasks.language_modeling.task import TextGenerationProcessor
from regard.tasks.translation.task import TranslationProcessor

__all__ = ["TARGET_TOKENIZER_FOLDER", "write_tokenizers"]

TARGET_TOKENIZER_FOLDER = "target_tokenizer"  # of a translator whose languages have vocabularies of their own


def write_tokenizers(predictor: Any, folder: Path) -> None:
    """Write tokenizer.json, which gives the tokens of regard; ExportError or UnsupportedError if there is none.

    Args:
        predictor: a translator or a text generator
        folder: of the export
    """
    processor, config = predictor.processor, predictor.config
    if isinstance(processor, TextGenerationProcessor):
        save_hub_tokenizer(processor.tokenizer, folder, "prefix", config.passage_length)
    elif not isinstance(processor, TranslationProcessor):
        raise ExportError("a tokenizer.json is written for translators and text generators only")
    elif processor.cleaner:
        raise ExportError(
            f"this recipe normalizes its texts with {processor.cleaner!r}, which a tokenizer.json cannot; export"
            " the run to safetensors, which regard loads"
        )
    else:
        save_hub_tokenizer(processor.source, folder, "source", config.max_length + 1)
        if processor.source != processor.target:
            (folder / TARGET_TOKENIZER_FOLDER).mkdir()
            save_hub_tokenizer(processor.target, folder / TARGET_TOKENIZER_FOLDER, "source", config.max_length + 1)
