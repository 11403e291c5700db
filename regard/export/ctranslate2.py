"""CTranslate2: a Transformer in its format, and the engine, whose hypotheses are ranked as regard ranks them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard._imports import require_extra
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import BOS_ID, EOS_ID, PAD_ID, SPECIAL_TOKENS
from regard.decoding import DecodingConfig, Hypothesis
from regard.errors import ExportCorruptError, ExportError, UnsupportedError
from regard.export.folder import check_export_length, check_exportable, num_export_positions, position_table
from regard.models import Transformer
from regard.tasks.translation.inference import InferenceEngine
from regard.tasks.translation.predictor import Translator

__all__ = ["MAX_BATCH_SENTENCES", "CTranslate2Engine", "write_model"]

MAX_BATCH_SENTENCES = 128  # the fastest on a CPU, for a model with 2.6 million weights and beam size 5
MIN_BATCH_SENTENCES = 8  # fewer are not worth a second thread
SUPPRESSED_TOKENS = [[SPECIAL_TOKENS[PAD_ID]], [SPECIAL_TOKENS[BOS_ID]]]
UNFINISHED_POWER = -8.0  # a length penalty that ranks hypotheses at the limit after all that have ended

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}

Candidate = tuple[list[int], float]  # token ids, including EOS, and the log-probability


def write_model(translator: Translator, folder: Path, quantize: str | None) -> None:
    """Write the model into a folder in CTranslate2's format; tokens keep their ids.

    Args:
        translator: with a Transformer as its model
        folder: an existing folder
        quantize: "int8" for weights in eight bits, or None
    """
    specs, model = require_extra("ctranslate2", extra="export").specs, translator.model
    if not isinstance(model, Transformer):
        raise ExportError("CTranslate2 has no recurrent models; export this one to onnx, or use it with PyTorch")
    check_exportable(model, "CTranslate2")
    first: Any = model.encoder.layers[0]
    num_layers = len(model.encoder.layers), len(model.decoder.layers)
    activation = getattr(specs.common_spec.Activation, ACTIVATIONS[first.feed_forward.activation])
    options = {"pre_norm": first.norm_first, "activation": activation}
    spec = specs.TransformerSpec.from_config(num_layers, first.self_attn.num_heads, **options)
    _copy_model(spec, model, num_export_positions(translator.max_length))
    spec.register_source_vocabulary(translator.source.vocabulary.tokens)
    spec.register_target_vocabulary(translator.target.vocabulary.tokens)
    spec.validate()
    spec.optimize(quantize)
    spec.save(str(folder))


def _copy_model(spec: Any, model: Transformer, num_positions: int) -> None:
    for stack_spec, embed_spec, stack, embedding in (
        (spec.encoder, spec.encoder.embeddings[0], model.encoder, model.src_embed),
        (spec.decoder, spec.decoder.embeddings, model.decoder, model.tgt_embed),
    ):
        embed_spec.weight = embedding.weight.detach()
        stack_spec.scale_embeddings = embedding.scale != 1.0
        stack_spec.position_encodings.encodings = position_table(embedding, num_positions)
        if isinstance(stack.norm, nn.LayerNorm):
            _copy_norm(stack_spec.layer_norm, stack.norm)
        layers: Any = stack.layers
        for layer_spec, layer in zip(stack_spec.layer, layers, strict=True):
            _copy_attention(layer_spec.self_attention, layer.self_attn, layer.norm1)
            ffn_norm = layer.norm2
            if stack is model.decoder:
                _copy_attention(layer_spec.attention, layer.cross_attn, layer.norm2)
                ffn_norm = layer.norm3
            _copy_norm(layer_spec.ffn.layer_norm, ffn_norm)
            _copy_linear(layer_spec.ffn.linear_0, layer.feed_forward.linear1)
            _copy_linear(layer_spec.ffn.linear_1, layer.feed_forward.linear2)
    _copy_linear(spec.decoder.projection, model.lm_head)


def _copy_attention(spec: Any, mha: Any, norm: nn.LayerNorm) -> None:
    """Self-attention has one matrix for queries, keys and values, cross-attention one for keys and values."""
    _copy_norm(spec.layer_norm, norm)
    if len(spec.linear) == 2:
        _copy_linear(spec.linear[0], mha.q_proj, mha.k_proj, mha.v_proj)
    else:
        _copy_linear(spec.linear[0], mha.q_proj)
        _copy_linear(spec.linear[1], mha.k_proj, mha.v_proj)
    _copy_linear(spec.linear[-1], mha.out_proj)


def _copy_linear(spec: Any, *layers: nn.Linear) -> None:
    spec.weight = torch.cat([layer.weight.detach() for layer in layers])
    if layers[0].bias is not None:
        spec.bias = torch.cat([layer.bias.detach() for layer in layers])


def _copy_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = norm.weight.detach(), norm.bias.detach()


class CTranslate2Engine(InferenceEngine):
    """An exported Transformer in CTranslate2.

    CTranslate2 divides log-probabilities by length^alpha. Therefore all hypotheses of the beam are requested and
    ranked again as `DecodingConfig` defines; if more have ended, the last of a long n-best list may differ from those
    of PyTorch. A sentence is searched again by itself if it has the length limit of a longer one, if a hypothesis has
    not ended, or if one contains PAD or BOS. CTranslate2 returns no log-probabilities of single tokens: they are NaN.

    Args:
        folder: contains the model
        source: tokenizer of the source
        target: tokenizer of the target
        max_length: of the model, in source tokens
    """

    name = "ctranslate2"

    def __init__(self, folder: Path, source: Tokenizer, target: Tokenizer, max_length: int):
        ctranslate2 = require_extra("ctranslate2", extra="export")
        # One thread per batch: several threads in a batch compete with those of PyTorch, and a sentence takes ten
        # times as long.
        self.num_threads = torch.get_num_threads()
        try:
            self.translator = ctranslate2.Translator(str(folder), inter_threads=self.num_threads, intra_threads=1)
        except (RuntimeError, ValueError) as error:
            raise ExportCorruptError(f"CTranslate2 cannot read {folder}: {error}; export the model again") from error
        self.source_tokens = source.vocabulary.tokens
        self.token_ids = {token: index for index, token in enumerate(target.vocabulary.tokens)}
        self.num_positions = num_export_positions(max_length)

    def search(
        self, sources: Sequence[list[int]], options: DecodingConfig, generator: torch.Generator | None = None
    ) -> list[list[Hypothesis]]:
        _check_search_options(options)
        tokens = [[self.source_tokens[index] for index in source] for source in sources]
        limits = options.max_lengths(torch.tensor([len(source) for source in sources], dtype=torch.long)).tolist()
        longest = max(limits, default=1)
        check_export_length(longest, self.num_positions)
        beams = self._run(tokens, options, longest, _length_power(sources, options))
        for row, beam in enumerate(beams):
            has_special = any(PAD_ID in ids or BOS_ID in ids for ids, _ in beam)
            if has_special or not all(ids[-1:] == [EOS_ID] and len(ids) <= limits[row] for ids, _ in beam):
                # Suppressing tokens changes all probabilities, so only sentences that need it are searched with it.
                suppressed = SUPPRESSED_TOKENS if has_special else None
                (beams[row],) = self._run(tokens[row : row + 1], options, limits[row], UNFINISHED_POWER, suppressed)
        return [_rank(beam, options) for beam in beams]

    def _run(
        self,
        tokens: list[list[str]],
        options: DecodingConfig,
        limit: int,
        power: float,
        suppressed: list[list[str]] | None = None,
    ) -> list[list[Candidate]]:
        """The hypotheses of each sentence that have ended or reached the limit."""
        width = options.beam_size if options.method == "beam" else 1
        results = self.translator.translate_batch(
            tokens,
            max_batch_size=min(max(MIN_BATCH_SENTENCES, -(-len(tokens) // self.num_threads)), MAX_BATCH_SENTENCES),
            beam_size=width,
            num_hypotheses=width if power else options.num_best,  # without a penalty no new ranking is needed
            length_penalty=power,
            max_decoding_length=limit,
            min_decoding_length=0,
            suppress_sequences=suppressed,
            return_scores=True,
            return_end_token=True,
        )
        return [
            [
                ([self.token_ids[token] for token in hypothesis], score * len(hypothesis) ** power)
                for hypothesis, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]


def _check_search_options(options: DecodingConfig) -> None:
    default = DecodingConfig()
    for is_unsupported, reason in (
        (options.method == "sample", "samples differently from regard"),
        (options.coverage_penalty != default.coverage_penalty, "has another coverage penalty than regard"),
        (options.patience != default.patience, "returns at most as many translations as the beam size"),
        (options.min_length != default.min_length, "changes the probabilities of translations below min_length"),
    ):
        if is_unsupported:
            raise UnsupportedError(f"ctranslate2 {reason}; use the engine onnx or torch for that")


def _length_power(sources: Sequence[list[int]], options: DecodingConfig) -> float:
    """The alpha of length^alpha that is closest to the length penalty of the options at the mean length."""
    if options.length_penalty_type == "power" or not sources:
        return options.length_penalty
    mean = sum(map(len, sources)) / len(sources)
    return options.length_penalty * mean / (5 + mean)  # the slope of log ((5 + length) / 6)^alpha by log length


def _rank(candidates: list[Candidate], options: DecodingConfig) -> list[Hypothesis]:
    """The best hypotheses, finished ones first."""
    hypotheses = []
    for ids, log_prob in candidates:
        finished = ids[-1:] == [EOS_ID]
        score = log_prob / options.length_norm(len(ids))
        hypotheses.append(Hypothesis(ids[:-1] if finished else ids, score, log_prob, [math.nan] * len(ids), finished))
    return sorted(hypotheses, key=lambda one: (one.finished, one.score), reverse=True)[: options.num_best]
