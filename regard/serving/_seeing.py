"""From a translator and a translation to a look, and from a look to numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy
import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import causal
from regard.data.vocabulary import BOS_ID, EOS_ID
from regard.decoding import Alignment
from regard.models import Transformer
from regard.serving._looks import Block, Layer, Look, Side
from regard.tasks import Translator
from regard.tasks.translation.inference import InferenceEngine
from regard.viewing import measures, watch
from regard.viewing.pages.page import FULL_WEIGHT, quantize_uint16

WITHIN = {"reading": "encoder.layers.*.self_attn", "writing": "decoder.layers.*.self_attn"}
# Taking each word out reads and writes everything again: so many tokens, and probabilities, are measured at most.
MEASURED, PROBABILITIES = 20_000, 50_000_000


def look(translator: Translator, source: str, ids: list[int], text: str | None, within: bool) -> Look:
    """Every weight of a translation: from target to source and, if wanted of a Transformer, within each of them."""
    seen = _named(translator.align_token_ids([source], [ids])[0], translator, text)
    sides = {"source": _side(seen, "source"), "target": _side(seen, "target")}
    layers = [Layer("across", "target", "source", _block(weights)) for weights in seen.weights]
    engine = isinstance(translator.model, InferenceEngine)
    if within and isinstance(translator.model, Transformer):
        sides["written"] = _written(translator, sides["target"])
        layers += _within(translator, translator.model, source, ids)
    scored = None if text is None or engine else translator.score([source], [text])[0].token_log_probs
    asked = len(seen.groups("source")) * (len(seen.source) + len(seen.target))
    few = asked <= MEASURED and asked * len(translator.target) <= PROBABILITIES
    return Look(source, ids, sides, layers, scored, few and not engine)


def _within(translator: Translator, model: Transformer, source: str, ids: list[int]) -> list[Layer]:
    """How the source looks at itself, and the translation at what was written of it."""
    text = [*translator.source.encode(translator.clean(source)), EOS_ID]
    with torch.no_grad(), watch(model, layers=list(WITHIN.values())) as seen:
        read, wrote = (torch.tensor([row], device=translator.device) for row in (text, [BOS_ID, *ids]))
        model(read, torch.tensor([len(text)], device=translator.device), wrote)
    found = []
    for record in seen:
        reading = record.name.startswith("encoder")
        sides = ("reading", "source", "source") if reading else ("writing", "target", "written")
        found.append(Layer(*sides, _block(record.weights[0])))
    return found


def _named(seen: Alignment, translator: Translator, text: str | None) -> Alignment:
    """Words of a given translation read as they were given, also those that the model has no token for."""
    if text is None:
        return seen
    words = translator.target.surface_forms(text) if translator.target.model_type == "char" else text.split()
    return replace(seen, target_words=tuple(words)) if len(words) == len(seen.groups("target")) else seen


def _side(seen: Alignment, side: str) -> Side:
    """Tokens and words; the end of the sentence stays, as the last word."""
    tokens: tuple[str, ...] = getattr(seen, side)
    groups = (*seen.groups(side), (len(tokens) - 1,))
    return Side(tokens, groups, (*seen.words_of(side), tokens[-1]))


def _written(translator: Translator, target: Side) -> Side:
    """What a translation can look back at: its beginning, and each word before the next."""
    begin = translator.target.convert_ids_to_tokens([BOS_ID])[0]
    groups = ((0,), *(tuple(place + 1 for place in group) for group in target.groups[:-1]))
    return Side((begin, *target.tokens[:-1]), groups, (begin, *target.words[:-1]))


def measured(block: Block, kind: str, others: Block | None) -> dict[str, float | None]:
    """How a head looks, in a few numbers: the mean over what looks. `others` are the other heads of its layer."""
    weights, mask = _weights(block), causal() if kind == "writing" else None
    numbers = {
        "entropy": measures.entropy(weights, mask) / math.log(2),
        "holding": measures.keys_for_mass(weights, mask),
        "sparsity": measures.sparsity(weights, mask),
        "diagonality": measures.diagonality(weights, mask),
    }
    if kind != "across":
        numbers["distance"] = measures.distance(weights, mask)
    found = {name: _number(values.nanmean()) for name, values in numbers.items()}
    if others is not None and len(others):
        alike = [measures.head_similarity(torch.stack([weights, _weights(other)]), mask)[0, 1] for other in others]
        found["agreement"] = _number(torch.stack(alike).nanmean())
    return found


def _block(weights: Float[Tensor, "heads queries keys"]) -> Block:
    return numpy.frombuffer(quantize_uint16(weights), "<u2").reshape(weights.shape)


def _weights(block: Block) -> Float[Tensor, "queries keys"]:
    return torch.from_numpy(block.astype("float32")) / FULL_WEIGHT


def _number(value: Tensor) -> float | None:
    return None if value.isnan() else round(float(value), 4)
