"""Word alignments of texts and their translations, and the attention maps behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import EOS_ID
from regard.decoding import Alignment
from regard.decoding.alignment import TokenGroups
from regard.tasks.abilities import AlignedText, AlignOptions
from regard.tasks.predictor import AttentionMap
from regard.tasks.translation.inference import InferenceEngine

if TYPE_CHECKING:
    from regard.tasks.translation.predictor import Translator
    from regard.tasks.translation.scorer import TranslationScorer

__all__ = ["CANNOT_ALIGN", "align_texts", "cross_attention_maps", "make_alignment", "word_positions"]

CANNOT_ALIGN = "this model has no attention to align by; train one with attention_scope=global"


def make_alignment(
    translator: TranslationScorer,
    source: str,
    target: str | Sequence[int],
    target_ids: Sequence[int],
    weights: Tensor,
    spaced: bool | None = None,
) -> Alignment:
    """The alignment of two sentences.

    Args:
        translator: the tokenizers
        source: the source text
        target: the translation: words of a text read as there, those of token ids as they are decoded
        target_ids: its tokens
        weights: (layers, heads, target tokens, source tokens), the ends of the sentences included
        spaced: words are separated by spaces only; None: as the tokenizer separates them

    Shape:
        - weights: (layers, heads, tgt_len, src_len)

    Returns:
        Tokens, words and weights.
    """
    source_ids, tokenizer = translator.encode_source(source), translator.target
    source_groups, source_words = _split_words(translator.source, translator.clean(source), source_ids, spaced)
    if isinstance(target, str):
        target_groups, target_words = _split_words(tokenizer, target, target_ids, spaced)
    else:
        target_groups = tuple(map(tuple, tokenizer.group_words(target_ids)))
        target_words = tuple(tokenizer.decode([target_ids[index] for index in group]) for group in target_groups)
    return Alignment(
        tuple(translator.source.convert_ids_to_tokens([*source_ids, EOS_ID])),
        tuple(tokenizer.convert_ids_to_tokens([*target_ids, EOS_ID])),
        weights,
        source_groups=source_groups,
        target_groups=target_groups,
        source_words=source_words,
        target_words=target_words,
    )


def _split_words(
    tokenizer: Tokenizer, text: str, token_ids: Sequence[int], spaced: bool | None
) -> tuple[TokenGroups, tuple[str, ...]]:
    """The token indices of each word, and the words as in the text, even those without a token."""
    surfaces = tokenizer.surface_forms(text)
    groups = tokenizer.group_words(token_ids, surfaces, spaces_only=spaced)
    words = ["".join(surfaces[index] for index in group) for group in groups]
    if tokenizer.model_type != "char" and len(split := text.split()) == len(words):
        words = split  # surface forms are normalized, for example lowercased
    return tuple(map(tuple, groups)), tuple(words)


def align_texts(
    translator: Translator, sources: Sequence[str], targets: Sequence[str | None], options: AlignOptions
) -> list[AlignedText]:
    """Align sources with given translations, or with the best that the search returns.

    Args:
        translator: the model
        sources: the texts
        targets: a translation of each; None: that of the translator
        options: layer, head and what a link is
    """
    token_ids: list[list[int]] = [translator.target.encode(target or "") for target in targets]
    log_probs: list[float | None] = [None] * len(sources)
    rows = [row for row, target in enumerate(targets) if target is None]
    for row, hypotheses in zip(rows, translator.search([sources[row] for row in rows]), strict=True):
        token_ids[row], log_probs[row] = list(hypotheses[0].token_ids), hypotheses[0].log_prob
    rows = [row for row, target in enumerate(targets) if target is not None]
    if not isinstance(translator.model, InferenceEngine):  # an engine does not compute it
        scores = translator.score_token_ids([sources[row] for row in rows], [token_ids[row] for row in rows])
        for row, hypothesis in zip(rows, scores, strict=True):
            log_probs[row] = hypothesis.log_prob
    parts = zip(translator.align_token_ids(sources, token_ids), targets, token_ids, log_probs, strict=True)
    return [
        _make_aligned_text(alignment, options, translator.target.decode(ids) if text is None else text, log_prob)
        for alignment, text, ids, log_prob in parts
    ]


def _make_aligned_text(alignment: Alignment, options: AlignOptions, text: str, log_prob: float | None) -> AlignedText:
    for name, count in zip(("layer", "head"), alignment.weights.shape, strict=False):
        value = getattr(options, name)
        if value is not None and value >= count:
            raise options.option(name).error(value, f"this model has {count} {name}s, counted from 0")
    words = alignment.select_head(options.layer, options.head).merge_words()
    links = alignment.links(options.layer, options.head, options.method, options.threshold)
    weights = tuple(tuple(round(weight, 6) for weight in row) for row in words.weights[0, 0].tolist())
    return AlignedText(text, log_prob, tuple(words.source), tuple(words.target), weights, tuple(sorted(links)))


def cross_attention_maps(alignment: Alignment) -> tuple[AttentionMap, ...]:
    """The cross-attention of each layer.

    Args:
        alignment: of one translation

    Returns:
        One map for each layer.
    """
    sides = alignment.target, alignment.source
    words: dict[str, Any] = {
        "query_words": word_positions(alignment, "target"),
        "key_words": word_positions(alignment, "source"),
    }
    num_layers = len(alignment.weights)
    return tuple(
        AttentionMap("cross" if num_layers == 1 else f"cross {layer}", weights, *sides, group="cross", **words)
        for layer, weights in enumerate(alignment.weights)
    )


def word_positions(alignment: Alignment, side: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Words with the positions of their tokens; the end of the sentence is the last one.

    Args:
        alignment: of one translation
        side: "source" or "target"

    Returns:
        Each word with its positions.
    """
    tokens: tuple[str, ...] = getattr(alignment, side)
    words = zip(alignment.words_of(side), alignment.word_groups(side), strict=True)
    return (*((word, tuple(group)) for word, group in words), (tokens[-1], (len(tokens) - 1,)))
