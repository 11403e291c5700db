"""A Transformer for CTranslate2: its weights in that program's order, and searches that answer as ours do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard._imports import require_extra
from regard.data._vocabulary import SPECIALS
from regard.data.batch import BOS, EOS, PAD
from regard.data.tokenizer import Tokenizer
from regard.decoding import Decoding, Hypothesis
from regard.errors import ExportCorruptError, ExportError, UnsupportedError
from regard.models import Transformer
from regard.recipes.exporting._fits import check, check_limit, positions_for
from regard.recipes.translation.engine import Engine
from regard.recipes.translation.translator import Translator

AT_ONCE = 128  # sentences: its fastest on a CPU, for a model of 2.6 million weights and a beam of 5
FEW = 8  # sentences that are not worth a second thread
NEVER = [[SPECIALS[PAD]], [SPECIALS[BOS]]]  # it can forbid them, but changes all probabilities by that
SHORT = -8.0  # a power of the length under which those at the limit come after all that have ended


def write(translator: Translator, folder: Path, quantize: str | None) -> None:
    """Put the model into a folder as CTranslate2 reads it; tokens keep their numbers."""
    specs = require_extra("ctranslate2", extra="export").specs
    model = _exportable(translator.model)
    first = model.encoder.layers[0]
    spec = specs.TransformerSpec.from_config(
        (len(model.encoder.layers), len(model.decoder.layers)),
        first.look.heads,  # type: ignore[union-attr]
        pre_norm=first.add_look.first,  # type: ignore[union-attr]
    )
    _stacks(spec, model, positions_for(translator.max_length))
    spec.register_source_vocabulary(translator.source.vocabulary.tokens)
    spec.register_target_vocabulary(translator.target.vocabulary.tokens)
    spec.validate()
    spec.optimize(quantize)
    spec.save(str(folder))


def _exportable(model: Any) -> Transformer:
    if not isinstance(model, Transformer):
        raise ExportError(
            "CTranslate2 has no recurrent models; export this one to onnx, or use it with PyTorch"
        )
    check(model, "CTranslate2")
    return model


def _stacks(spec: Any, model: Transformer, positions: int) -> None:
    for stack, embedding, words in (
        (spec.encoder, model.read, spec.encoder.embeddings[0]),
        (spec.decoder, model.write, spec.decoder.embeddings),
    ):
        words.weight = embedding.words.weight.detach()
        stack.position_encodings.encodings = embedding.positions.encoding(positions)
    for place, layer in zip(spec.encoder.layer, model.encoder.layers, strict=True):
        _heads(place.self_attention, layer.look, layer.add_look.norm)
        _network(place.ffn, layer.think, layer.add_think.norm)
    for place, layer in zip(spec.decoder.layer, model.decoder.layers, strict=True):
        _heads(place.self_attention, layer.look, layer.add_look.norm)
        _heads(place.attention, layer.look_back, layer.add_back.norm)
        _network(place.ffn, layer.think, layer.add_think.norm)
    for stack, ours in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        if isinstance(ours.norm, nn.LayerNorm):
            _norm(stack.layer_norm, ours.norm)
    _linear(spec.decoder.projection, model.output)


def _heads(place: Any, heads: Any, norm: Any) -> None:
    """Self-attention has one matrix for queries, keys and values; looking back, queries have one of their own."""
    _norm(place.layer_norm, norm)
    *looking, output = place.linear
    if len(looking) == 1:
        _linear(looking[0], heads.query, heads.key, heads.value)
    else:
        _linear(looking[0], heads.query)
        _linear(looking[1], heads.key, heads.value)
    _linear(output, heads.output)


def _network(place: Any, network: Any, norm: Any) -> None:
    _norm(place.layer_norm, norm)
    _linear(place.linear_0, network[0])
    _linear(place.linear_1, network[2])


def _linear(place: Any, *layers: nn.Linear) -> None:
    place.weight = torch.cat([layer.weight.detach() for layer in layers])
    if layers[0].bias is not None:
        place.bias = torch.cat([layer.bias.detach() for layer in layers])


def _norm(place: Any, norm: nn.LayerNorm) -> None:
    place.gamma, place.beta = norm.weight.detach(), norm.bias.detach()


class CTranslate2(Engine):
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
            self.threads = torch.get_num_threads()
            self.program = program.Translator(str(folder), inter_threads=self.threads, intra_threads=1)
        except (RuntimeError, ValueError) as error:
            raise ExportCorruptError(
                f"CTranslate2 cannot read {folder}: {error}; export the model again"
            ) from error
        self.source, self.target = source.vocabulary.tokens, target.vocabulary.tokens
        self.numbers = {token: number for number, token in enumerate(self.target)}
        self.positions = positions_for(max_length)

    def search(
        self, sources: Sequence[list[int]], options: Decoding, generator: torch.Generator | None = None
    ) -> list[list[Hypothesis]]:
        _searchable(options)
        tokens = [[self.source[number] for number in source] for source in sources]
        limits = options.limits(torch.tensor([len(source) for source in sources], dtype=torch.long)).tolist()
        check_limit(max(limits, default=1), self.positions)
        found = self._run(tokens, options, max(limits, default=1), _power(sources, options))
        for row, several in enumerate(found):
            strange = any(PAD in ids or BOS in ids for ids, _ in several)
            if strange or not all(ids[-1:] == [EOS] and len(ids) <= limits[row] for ids, _ in several):
                never = NEVER if strange else None
                (found[row],) = self._run(tokens[row : row + 1], options, limits[row], SHORT, never)
        return [_ranked(several, options) for several in found]

    def _run(
        self,
        tokens: list[list[str]],
        options: Decoding,
        limit: int,
        power: float,
        never: list[list[str]] | None = None,
    ) -> list[list[tuple[list[int], float]]]:
        """All translations that ended, or reached the limit, with their log-probabilities; EOS is kept."""
        width = options.beam if options.method == "beam" else 1
        answers = self.program.translate_batch(
            tokens,
            max_batch_size=min(max(FEW, -(-len(tokens) // self.threads)), AT_ONCE),
            beam_size=width,
            num_hypotheses=width if power else options.best,  # without a penalty it knows itself when to stop
            length_penalty=power,
            max_decoding_length=limit,
            min_decoding_length=0,
            suppress_sequences=never,
            return_scores=True,
            return_end_token=True,
        )
        return [list(self._read(answer, power)) for answer in answers]

    def _read(self, answer: Any, power: float) -> Iterable[tuple[list[int], float]]:
        numbers = self.numbers
        for tokens, score in zip(answer.hypotheses, answer.scores, strict=True):
            yield [numbers[token] for token in tokens], score * len(tokens) ** power


def _searchable(options: Decoding) -> None:
    usual = Decoding()
    for wrong, what in (
        (options.method == "sample", "does not draw as ours does"),
        (options.coverage != usual.coverage, "has another coverage penalty than ours"),
        (options.patience != usual.patience, "gives no more translations than a beam is wide"),
        (options.min_length != usual.min_length, "changes probabilities where a translation may not end yet"),
    ):
        if wrong:
            raise UnsupportedError(f"ctranslate2 {what}; take the engine onnx or torch for that")


def _power(sources: Sequence[list[int]], options: Decoding) -> float:
    """The alpha of length^alpha that comes nearest to the penalty of the options at the usual length."""
    if options.length_penalty == "power" or not sources:
        return options.alpha
    usual = sum(map(len, sources)) / len(sources)
    return options.alpha * usual / (5 + usual)  # the slope of log ((5 + length) / 6)^alpha by log length


def _ranked(several: list[tuple[list[int], float]], options: Decoding) -> list[Hypothesis]:
    """The best, finished ones first."""
    found = []
    for ids, log_prob in several:
        finished = ids[-1:] == [EOS]
        score = log_prob / options.penalty(len(ids))
        unknown = [math.nan] * len(ids)
        found.append(Hypothesis(ids[:-1] if finished else ids, score, log_prob, unknown, finished))
    return sorted(found, key=lambda one: (one.finished, one.score), reverse=True)[: options.best]
