"""The self-attention of a translation as attention maps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

import torch

from regard.data.vocabulary import BOS_ID, EOS_ID
from regard.decoding import Alignment
from regard.models import Transformer
from regard.tasks.predictor import AttentionMap
from regard.tasks.translation.alignment import word_positions
from regard.viewing import watch

if TYPE_CHECKING:
    from regard.tasks.translation.predictor import Translator

__all__ = ["self_attention_maps"]

SELF_ATTENTION = ["encoder.layers.*.self_attn", "decoder.layers.*.self_attn"]


def self_attention_maps(
    translator: Translator, text: str, token_ids: Sequence[int], alignment: Alignment
) -> tuple[AttentionMap, ...]:
    """The self-attention of each layer of encoder and decoder; none for other models than a Transformer.

    Args:
        translator: the model
        text: the source
        token_ids: of the translation
        alignment: of both

    Returns:
        One map for each layer of both sides.
    """
    model = translator.model
    if not isinstance(model, Transformer):
        return ()
    source = [*translator.encode_source(text), EOS_ID]
    with torch.no_grad(), watch(model, layers=SELF_ATTENTION) as records:
        tensors = (torch.tensor([row], device=translator.device) for row in (source, [BOS_ID, *token_ids]))
        source_ids, target_ids = tensors
        model(source_ids, torch.tensor([len(source)], device=translator.device), target_ids)
    source_words, target_words = word_positions(alignment, "source"), word_positions(alignment, "target")
    bos = translator.target.convert_ids_to_tokens([BOS_ID])[0]
    previous = (bos, *alignment.target[:-1])  # the inputs of the decoder: each token before the next
    previous_words = ((bos, (0,)), *((word, tuple(i + 1 for i in group)) for word, group in target_words[:-1]))
    encoder = alignment.source, alignment.source, source_words, source_words
    decoder = alignment.target, previous, target_words, previous_words
    maps, layers = [], {"encoder": count(), "decoder": count()}
    for record in records:
        side = record.name.split(".")[0]
        queries, keys, query_words, key_words = decoder if side == "decoder" else encoder
        maps.append(
            AttentionMap(
                f"{side} self {next(layers[side])}",
                record.weights[0].cpu(),
                queries,
                keys,
                group=f"{side}_self",
                is_self=True,
                is_causal=side == "decoder",
                query_words=query_words,
                key_words=key_words,
            )
        )
    return tuple(maps)
