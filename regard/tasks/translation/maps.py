"""The weights of a translation as attention maps, and word alignments for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from regard.data.vocabulary import BOS_ID, EOS_ID
from regard.decoding import Alignment, Hypothesis
from regard.models import Transformer
from regard.tasks.abilities import AlignedText, AlignOptions, ScoredTarget
from regard.tasks.predictor import AttentionMap
from regard.tasks.translation.inference import InferenceEngine
from regard.viewing import watch

if TYPE_CHECKING:
    from regard.tasks.translation.predictor import Translator

__all__ = ["align_texts", "cross_attention_maps", "self_attention_maps"]

Words = tuple[tuple[str, tuple[int, ...]], ...]
SELF_ATTENTION = ["encoder.layers.*.self_attn", "decoder.layers.*.self_attn"]


def cross_attention_maps(alignment: Alignment) -> tuple[AttentionMap, ...]:
    """The cross-attention of each layer.

    Args:
        alignment: of one translation
    """
    sides = alignment.target, alignment.source
    words = {"query_words": _words(alignment, "target"), "key_words": _words(alignment, "source")}
    count = len(alignment.weights)
    return tuple(
        AttentionMap("cross" if count == 1 else f"cross {layer}", weights, *sides, group="cross", **words)
        for layer, weights in enumerate(alignment.weights)
    )


def self_attention_maps(
    translator: Translator, text: str, token_ids: Sequence[int], alignment: Alignment
) -> tuple[AttentionMap, ...]:
    """The self-attention of each layer of encoder and decoder; none for other models than a Transformer.

    Args:
        translator: the model
        text: the source
        token_ids: of the translation
        alignment: of both
    """
    model = translator.model
    if not isinstance(model, Transformer):
        return ()
    source = [*translator.encode_source(text), EOS_ID]
    with torch.no_grad(), watch(model, layers=SELF_ATTENTION) as records:
        tensors = (torch.tensor([row], device=translator.device) for row in (source, [BOS_ID, *token_ids]))
        source_ids, target_ids = tensors
        model(source_ids, torch.tensor([len(source)], device=translator.device), target_ids)
    source_words, target_words = _words(alignment, "source"), _words(alignment, "target")
    bos = translator.target.convert_ids_to_tokens([BOS_ID])[0]
    previous = (bos, *alignment.target[:-1])  # the inputs of the decoder: each token before the next
    previous_words = ((bos, (0,)), *((word, tuple(i + 1 for i in group)) for word, group in target_words[:-1]))
    maps, counts = [], {"encoder": 0, "decoder": 0}
    for record in records:
        side = record.name.split(".")[0]
        name, weights = f"{side} self {counts[side]}", record.weights[0].cpu()
        counts[side] += 1
        shared: dict[str, Any] = {"group": f"{side}_self", "is_self": True}
        if side == "encoder":
            sides, words = (alignment.source, alignment.source), (source_words, source_words)
        else:
            sides, words = (alignment.target, previous), (target_words, previous_words)
            shared["is_causal"] = True
        maps.append(AttentionMap(name, weights, *sides, query_words=words[0], key_words=words[1], **shared))
    return tuple(maps)


def _words(alignment: Alignment, side: str) -> Words:
    """Words with their positions; the end of the sentence is the last one."""
    tokens: tuple[str, ...] = getattr(alignment, side)
    words = zip(alignment.words_of(side), alignment.groups(side), strict=True)
    return (*((word, tuple(group)) for word, group in words), (tokens[-1], (len(tokens) - 1,)))


def align_texts(
    translator: Translator, sources: Sequence[str], targets: Sequence[str | None], options: AlignOptions
) -> list[AlignedText]:
    """Align sources with given translations, or with the best that the search finds.

    Args:
        translator: the model
        sources: the texts
        targets: a translation of each; None: that of the translator
        options: layer, head and what a link is
    """
    scored = _score_or_search(translator, sources, targets)
    alignments = translator.align_token_ids(sources, [token_ids for token_ids, _ in scored])
    return [
        _make_aligned_text(
            alignment, options, translator.target.decode(token_ids) if target is None else target, log_prob
        )
        for alignment, target, (token_ids, log_prob) in zip(alignments, targets, scored, strict=True)
    ]


def _score_or_search(
    translator: Translator, sources: Sequence[str], targets: Sequence[str | None]
) -> list[tuple[list[int], float | None]]:
    """The tokens of each translation with their log-probability, if the model tells it."""
    missing = [source for source, target in zip(sources, targets, strict=True) if target is None]
    given = [(source, target) for source, target in zip(sources, targets, strict=True) if target is not None]
    found = iter([best[0] for best in translator.search(missing)])
    scores: list[ScoredTarget | None] = [None] * len(given)
    if not isinstance(translator.model, InferenceEngine):
        scores = [*translator.score([source for source, _ in given], [target for _, target in given])]
    known = iter(scores)
    results: list[tuple[list[int], float | None]] = []
    for target in targets:
        one: Hypothesis | ScoredTarget | None = next(found) if target is None else next(known)
        token_ids = translator.target.encode(target or "") if one is None else list(one.token_ids)
        results.append((token_ids, None if one is None else one.log_prob))
    return results


def _make_aligned_text(alignment: Alignment, options: AlignOptions, text: str, log_prob: float | None) -> AlignedText:
    for name, count in zip(("layer", "head"), alignment.weights.shape, strict=False):
        value = getattr(options, name)
        if value is not None and value >= count:
            raise options.option(name).error(value, f"this model has {count} {name}s, counted from 0")
    words = alignment.select_head(options.layer, options.head).merge_words()
    links = alignment.links(options.layer, options.head, options.method, options.threshold)
    weights = tuple(tuple(round(weight, 6) for weight in row) for row in words.weights[0, 0].tolist())
    return AlignedText(text, log_prob, tuple(words.source), tuple(words.target), weights, tuple(sorted(links)))
