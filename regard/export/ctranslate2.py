"""A Transformer for CTranslate2: its weights in that program's order, and searches that answer as ours do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
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

MAX_BATCH_SENTENCES = 128  # sentences: its fastest on a CPU, for a model of 2.6 million weights and a beam of 5


MIN_BATCH_SENTENCES = 8  # sentences that are not worth a second thread


SUPPRESSED_TOKENS = [
    [SPECIAL_TOKENS[PAD_ID]],
    [SPECIAL_TOKENS[BOS_ID]],
]  # it can forbid them, but changes all probabilities by that


UNFINISHED_POWER = -8.0  # a power of the length under which those at the limit come after all that have ended


def write_model(translator: Translator, folder: Path, quantize: str | None) -> None:
    """Put the model into a folder as CTranslate2 reads it; tokens keep their numbers."""
    specs = require_extra("ctranslate2", extra="export").specs
    model = _require_transformer(translator.model)
    first = model.encoder.layers[0]
    spec = specs.TransformerSpec.from_config(
        (len(model.encoder.layers), len(model.decoder.layers)),
        first.self_attn.num_heads,  # type: ignore[union-attr]
        pre_norm=first.norm_first,
    )
    _copy_model(spec, model, num_export_positions(translator.max_length))
    spec.register_source_vocabulary(translator.source.vocabulary.tokens)
    spec.register_target_vocabulary(translator.target.vocabulary.tokens)
    spec.validate()
    spec.optimize(quantize)
    spec.save(str(folder))


def _require_transformer(model: Any) -> Transformer:
    if not isinstance(model, Transformer):
        raise ExportError("CTranslate2 has no recurrent models; export this one to onnx, or use it with PyTorch")
    check_exportable(model, "CTranslate2")
    return model


def _copy_model(spec: Any, model: Transformer, positions: int) -> None:
    for stack, embedding, words in (
        (spec.encoder, model.src_embed, spec.encoder.embeddings[0]),
        (spec.decoder, model.tgt_embed, spec.decoder.embeddings),
    ):
        words.weight = embedding.weight.detach()
        stack.position_encodings.encodings = position_table(embedding, positions)
    for place, layer in zip(spec.encoder.layer, model.encoder.layers, strict=True):
        _copy_attention(place.self_attention, layer.self_attn, layer.norm1)
        _copy_feed_forward(place.ffn, layer.feed_forward, layer.norm2)
    for place, layer in zip(spec.decoder.layer, model.decoder.layers, strict=True):
        _copy_attention(place.self_attention, layer.self_attn, layer.norm1)
        _copy_attention(place.attention, layer.cross_attn, layer.norm2)
        _copy_feed_forward(place.ffn, layer.feed_forward, layer.norm3)
    for stack, ours in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        if isinstance(ours.norm, nn.LayerNorm):
            _copy_norm(stack.layer_norm, ours.norm)
    _copy_linear(spec.decoder.projection, model.lm_head)


def _copy_attention(spec: Any, heads: Any, norm: Any) -> None:
    """Self-attention has one matrix for queries, keys and values; looking back, queries have one of their own."""
    _copy_norm(spec.layer_norm, norm)
    *looking, output = spec.linear
    if len(looking) == 1:
        _copy_linear(looking[0], heads.q_proj, heads.k_proj, heads.v_proj)
    else:
        _copy_linear(looking[0], heads.q_proj)
        _copy_linear(looking[1], heads.k_proj, heads.v_proj)
    _copy_linear(output, heads.out_proj)


def _copy_feed_forward(spec: Any, network: Any, norm: Any) -> None:
    _copy_norm(spec.layer_norm, norm)
    _copy_linear(spec.linear_0, network.linear1)
    _copy_linear(spec.linear_1, network.linear2)


def _copy_linear(spec: Any, *layers: nn.Linear) -> None:
    spec.weight = torch.cat([layer.weight.detach() for layer in layers])
    if layers[0].bias is not None:
        spec.bias = torch.cat([layer.bias.detach() for layer in layers])


def _copy_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = norm.weight.detach(), norm.bias.detach()


class CTranslate2Engine(InferenceEngine):
    """An exported Transformer in CTranslate2.

    It divides log-probabilities by length^alpha, so as many as the beam is wide are asked for and ranked anew, as
    `Decoding` says; where more had ended, the last of a long list may be others than ours. A sentence that had the
    limit of a longer one, that did not end, or that has PAD or BOS in it, is searched once more by itself. It does
    not tell the log-probability of each token: these are NaN.
    """

    name = "ctranslate2"

    def __init__(self, folder: Path, source: Tokenizer, target: Tokenizer, max_length: int):
        program = require_extra("ctranslate2", extra="export")
        try:
            # A batch a thread: threads of its own beside PyTorch's make each step wait, and a sentence last ten times
            # as long.
            self.num_threads = torch.get_num_threads()
            self.translator = program.Translator(str(folder), inter_threads=self.num_threads, intra_threads=1)
        except (RuntimeError, ValueError) as error:
            raise ExportCorruptError(f"CTranslate2 cannot read {folder}: {error}; export the model again") from error
        self.source, self.target = source.vocabulary.tokens, target.vocabulary.tokens
        self.token_ids = {token: number for number, token in enumerate(self.target)}
        self.num_positions = num_export_positions(max_length)

    def search(
        self, sources: Sequence[list[int]], options: DecodingConfig, generator: torch.Generator | None = None
    ) -> list[list[Hypothesis]]:
        _check_search_options(options)
        tokens = [[self.source[number] for number in source] for source in sources]
        limits = options.max_lengths(torch.tensor([len(source) for source in sources], dtype=torch.long)).tolist()
        check_export_length(max(limits, default=1), self.num_positions)
        found = self._run(tokens, options, max(limits, default=1), _length_power(sources, options))
        for row, several in enumerate(found):
            strange = any(PAD_ID in ids or BOS_ID in ids for ids, _ in several)
            if strange or not all(ids[-1:] == [EOS_ID] and len(ids) <= limits[row] for ids, _ in several):
                never = SUPPRESSED_TOKENS if strange else None
                (found[row],) = self._run(tokens[row : row + 1], options, limits[row], UNFINISHED_POWER, never)
        return [_rank(several, options) for several in found]

    def _run(
        self,
        tokens: list[list[str]],
        options: DecodingConfig,
        limit: int,
        power: float,
        suppressed: list[list[str]] | None = None,
    ) -> list[list[tuple[list[int], float]]]:
        """All translations that ended, or reached the limit, with their log-probabilities; EOS is kept."""
        width = options.beam_size if options.method == "beam" else 1
        answers = self.translator.translate_batch(
            tokens,
            max_batch_size=min(max(MIN_BATCH_SENTENCES, -(-len(tokens) // self.num_threads)), MAX_BATCH_SENTENCES),
            beam_size=width,
            num_hypotheses=width if power else options.num_best,  # without a penalty it knows itself when to stop
            length_penalty=power,
            max_decoding_length=limit,
            min_decoding_length=0,
            suppress_sequences=suppressed,
            return_scores=True,
            return_end_token=True,
        )
        return [list(self._parse_result(answer, power)) for answer in answers]

    def _parse_result(self, result: Any, power: float) -> Iterable[tuple[list[int], float]]:
        numbers = self.token_ids
        for tokens, score in zip(result.hypotheses, result.scores, strict=True):
            yield [numbers[token] for token in tokens], score * len(tokens) ** power


def _check_search_options(options: DecodingConfig) -> None:
    usual = DecodingConfig()
    for wrong, what in (
        (options.method == "sample", "does not draw as ours does"),
        (options.coverage_penalty != usual.coverage_penalty, "has another coverage penalty than ours"),
        (options.patience != usual.patience, "gives no more translations than a beam is wide"),
        (options.min_length != usual.min_length, "changes probabilities where a translation may not end yet"),
    ):
        if wrong:
            raise UnsupportedError(f"ctranslate2 {what}; take the engine onnx or torch for that")


def _length_power(sources: Sequence[list[int]], options: DecodingConfig) -> float:
    """The alpha of length^alpha that comes nearest to the penalty of the options at the usual length."""
    if options.length_penalty_type == "power" or not sources:
        return options.length_penalty
    usual = sum(map(len, sources)) / len(sources)
    return options.length_penalty * usual / (5 + usual)  # the slope of log ((5 + length) / 6)^alpha by log length


def _rank(candidates: list[tuple[list[int], float]], options: DecodingConfig) -> list[Hypothesis]:
    """The best, finished ones first."""
    found = []
    for ids, log_prob in candidates:
        finished = ids[-1:] == [EOS_ID]
        score = log_prob / options.length_norm(len(ids))
        unknown = [math.nan] * len(ids)
        found.append(Hypothesis(ids[:-1] if finished else ids, score, log_prob, unknown, finished))
    return sorted(found, key=lambda one: (one.finished, one.score), reverse=True)[: options.num_best]
