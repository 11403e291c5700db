"""Checkpoints of Hugging Face as predictors: `regard.load(folder)` and the commands take their folders like runs.

The vocabulary is put into the order of regard, whose special tokens have the ids 0 to 3, so that searches, pages and
exports need not know where a model comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.pretrained_tokenizer import load_marian, order_ids, read_marian_vocabulary
from regard.data.vocabulary import BOS_ID, PAD_ID
from regard.errors import DataError, UnsupportedError
from regard.files import read_json
from regard.models import Transformer
from regard.models.pretrained import PretrainedCheckpoint, load_model, read_checkpoint
from regard.tasks.registry import RECORD_FORMAT
from regard.tasks.translation.config import TranslationConfig
from regard.tasks.translation.predictor import Translator
from regard.tasks.translation.task import TranslationProcessor

__all__ = ["load_checkpoint", "make_checkpoint_record", "reorder_vocabulary"]

EXCLUDED_LOGIT = -1e9  # finite, since a NaN would follow from -inf times 0
UNSUPPORTED_SETTINGS = {  # and their values that change nothing, besides null and the empty list
    "no_repeat_ngram_size": 0, "encoder_no_repeat_ngram_size": 0, "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0, "num_beam_groups": 1, "diversity_penalty": 0.0, "min_length": 0,
    "min_new_tokens": 0, "do_sample": False, "forced_bos_token_id": None, "suppress_tokens": None,
    "begin_suppress_tokens": None, "sequence_bias": None, "force_words_ids": None,
    "exponential_decay_length_penalty": None,
}  # fmt: skip


def load_checkpoint(folder: str | Path, device: str = "cpu") -> Translator:
    """The predictor of a checkpoint: of a Marian model (OPUS-MT), a translator.

    Its options are those of the checkpoint: beam size, length penalty, longest text. A search ends when as many
    translations are complete as the beam is wide, as with early_stopping=True in transformers.

    Args:
        folder: of the checkpoint
        device: where to compute

    Example:
        translator = load_checkpoint("opus-mt-en-de")
        translator.translate("A dog runs.")
    """
    checkpoint = read_checkpoint(Path(folder))
    return _get_loader(checkpoint)(checkpoint, device)


def make_checkpoint_record(folder: str | Path) -> dict[str, Any]:
    """What run.json would say of a checkpoint.

    Args:
        folder: of the checkpoint
    """
    checkpoint = read_checkpoint(Path(folder))
    _get_loader(checkpoint)
    config = _make_translation_config(checkpoint).to_dict()
    return {"format": RECORD_FORMAT, "task": "translation", "recipe": "translation", "config": config}


def _get_loader(checkpoint: PretrainedCheckpoint) -> Callable[[PretrainedCheckpoint, str], Translator]:
    if checkpoint.model_type != "marian":
        raise UnsupportedError(
            f"{checkpoint.folder} has a model of the type {checkpoint.model_type!r}; the commands take marian, and"
            " regard.from_pretrained loads the model itself"
        )
    return _load_translator


def _load_translator(checkpoint: PretrainedCheckpoint, device: str) -> Translator:
    for name, neutral in UNSUPPORTED_SETTINGS.items():
        if checkpoint.setting(name, neutral) not in (neutral, [], {}):
            raise UnsupportedError(
                f"{checkpoint.folder} asks for {name}={checkpoint.setting(name)}, which regard's search does not have;"
                " remove it from generation_config.json and config.json"
            )
    model: Transformer = load_model(checkpoint)
    folder, is_shared = checkpoint.folder, model.tie_embeddings == "all"
    names = {"pad_token_id": "pad", "decoder_start_token_id": "bos", "eos_token_id": "eos"}
    special = {ours: _token_id(checkpoint, theirs) for theirs, ours in names.items()}
    orders, tokenizers = [], []
    sides = (("source.spm", "vocab.json", model.src_embed), ("target.spm", "target_vocab.json", model.tgt_embed))
    for spm_name, vocab_name, embedding in sides:
        tokens = read_marian_vocabulary(folder, "vocab.json" if is_shared else vocab_name, embedding.num_embeddings)
        if "<unk>" not in tokens:
            raise DataError(f"{folder / vocab_name} has no <unk>; copy it again")
        orders.append(order_ids(len(tokens), unk=tokens.index("<unk>"), **special))
        tokenizers.append(load_marian(folder, spm_name, tokens, orders[-1]))
    is_pad_excluded = bool(checkpoint.setting("renormalize_logits", False))
    reorder_vocabulary(model, orders[0], orders[1], is_pad_excluded)
    processor = TranslationProcessor(source=tokenizers[0], target=tokenizers[1])
    return Translator(model.to(device), processor, _make_translation_config(checkpoint))


def _token_id(checkpoint: PretrainedCheckpoint, name: str) -> int:
    value = checkpoint.setting(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise UnsupportedError(f"{checkpoint.folder}: {name} must be one token id, got {value!r}")
    return value


def _make_translation_config(checkpoint: PretrainedCheckpoint) -> TranslationConfig:
    """The config of a run with the sizes of the checkpoint and its settings of the search."""
    config, setting = checkpoint.config, checkpoint.setting
    path = checkpoint.folder / "tokenizer_config.json"
    languages = read_json(path) if path.is_file() else {}
    pair = [str(languages.get(f"{side}_lang") or "") for side in ("source", "target")]
    is_shared = config.get("share_encoder_decoder_embeddings", True)
    return TranslationConfig(
        model="transformer",
        embed_dim=config.get("d_model", 1024),
        num_layers=config.get("decoder_layers", 12),
        num_heads=config.get("decoder_attention_heads", 16),
        ffn_dim=config.get("decoder_ffn_dim", 4096),
        dropout=float(config.get("dropout", 0.1)),
        tie_embeddings="all" if is_shared else "none",
        shared_vocab=bool(is_shared),
        tokenizer="unigram",
        vocab_size=config.get("vocab_size", 58101),
        max_length=config.get("max_position_embeddings", 1024) - 1,  # of the source, without its end
        language_pair="-".join(pair) if all(pair) else None,
        beam_size=setting("num_beams", 1),
        length_penalty=float(setting("length_penalty", 1.0)),
        length_penalty_type="power",
    ).resolve()


def reorder_vocabulary(
    model: Transformer, source_ids: Sequence[int], target_ids: Sequence[int], is_pad_excluded: bool
) -> None:
    """Put the rows of embeddings and logits into another order, in place.

    Padding gets no probability. The token that begins a target keeps its probability, which belongs to the sum of the
    softmax, but a search never writes it.

    Args:
        model: an encoder-decoder with an output bias
        source_ids, target_ids: the old id of each new one; with shared embeddings they are equal
        is_pad_excluded: whether the token that begins a target gets no probability either
    """
    source, target = torch.tensor(source_ids), torch.tensor(target_ids)
    head, bias = model.lm_head, model.lm_head.bias
    assert bias is not None
    new_bias = bias.detach()[target]
    new_bias[PAD_ID] = EXCLUDED_LOGIT
    if is_pad_excluded:
        new_bias[BOS_ID] = EXCLUDED_LOGIT
    head.bias = nn.Parameter(new_bias)
    tie = model.tie_embeddings
    output = None if tie != "none" else nn.Parameter(head.weight.detach()[target])
    _replace_weight(model.tgt_embed, target)
    if tie == "all" and model.src_embed is not model.tgt_embed:
        model.src_embed.weight, model.src_embed.num_embeddings = model.tgt_embed.weight, len(target)
    elif tie != "all":
        _replace_weight(model.src_embed, source)
    head.weight = model.tgt_embed.weight if output is None else output
    head.out_features = len(target)


def _replace_weight(embedding: nn.Embedding, ids: Tensor) -> None:
    embedding.weight, embedding.num_embeddings = nn.Parameter(embedding.weight.detach()[ids]), len(ids)
