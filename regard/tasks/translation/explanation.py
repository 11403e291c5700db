"""One translation with everything that can be shown of it: its search, alternatives and weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.config import load_translations
from regard.data.vocabulary import BOS_ID, EOS_ID, PAD_ID
from regard.decoding import Alignment, Hypothesis, SearchTrace, WordAlignment
from regard.errors import EmptyInputError, InputError, InputTooLongError, UnsupportedError, UsageError
from regard.models import Transformer
from regard.tasks.predictor import AttentionMap, Explanation
from regard.tasks.translation.config import ExplainOptions, TranslateOptions
from regard.tasks.translation.faithfulness import Faithfulness, can_measure, measure_faithfulness
from regard.tasks.translation.inference import InferenceEngine
from regard.tasks.translation.predictor import Translator, check_head
from regard.viewing import pages, watch
from regard.viewing.pages import BeamNode, HtmlPage, NextToken, TokenizedSentence

__all__ = ["TranslationExplanation", "explain"]

if TYPE_CHECKING:
    from regard.viewing.figures import Figure

SELF_ATTENTION = ["encoder.layers.*.self_attn", "decoder.layers.*.self_attn"]
AxisLabels = tuple[tuple[str, ...], tuple[tuple[str, tuple[int, ...]], ...]]  # tokens; words with positions
NUM_OPTIONS = 8  # alternatives of a token that are shown
NO_ATTENTION = "This model has no attention, so there are no weights to draw."


@dataclass(frozen=True)
class TranslationExplanation(Explanation):
    """A translation with its search, the alternatives of each token, its alignment and its faithfulness.

    Args:
        prediction: the translation
        maps: the cross-attention of each layer
        translator: what translated
        source: the source text
        hypothesis: the translation with its log-probabilities
        trace: the search; empty for a given translation
        alignment: None for a model without attention
        probabilities: of each next token of the translation, (tokens, vocabulary); None of an engine
        view: the translation, if it was given, which layer and head are shown, and whether words or tokens
    """

    translator: Translator
    source: str
    hypothesis: Hypothesis
    trace: SearchTrace
    alignment: Alignment | None
    probabilities: Tensor | None
    view: ExplainOptions

    @cached_property
    def faithfulness(self) -> Faithfulness | None:
        """How much the translation depends on the weights, measured when it is read; None without attention."""
        return None if self.alignment is None or not self.view.faithfulness else self._measure_faithfulness()

    @property
    def translation(self) -> str:
        """The text of the translation."""
        return self.translator.to_text(self.hypothesis) if self.view.target is None else self.view.target

    @property
    def token_ids(self) -> list[int]:
        """The tokens, with EOS if it was reached."""
        return [*self.hypothesis.token_ids, EOS_ID][: self.hypothesis.length]

    def weights(
        self, layer: int | None = None, head: int | None = None, *, merge_words: bool = True, heads: bool = False
    ) -> WordAlignment:
        """The attention weights of words, or of tokens with the ends of the sentences.

        Args:
            layer, head: counted from 0; None: the mean
            merge_words: words instead of tokens
            heads: every layer and head
        """
        if self.alignment is None:
            raise UnsupportedError(
                "this model has no attention, so there are no weights to draw; --out x.html shows the rest"
            )
        alignment = self.alignment if heads else self.alignment.select_head(layer, head)
        words = alignment.merge_words()
        if merge_words and words.source and words.target:
            return words
        return WordAlignment(alignment.source, alignment.target, alignment.weights)

    def summary(self, language: str = "en") -> str:
        """The translation and, if it was measured, how much it depends on the weights."""
        measured = [] if self.faithfulness is None else [self.faithfulness.sentence(language)]
        return "\n".join([self.translation, *measured])

    def to_text(self, *, color: bool | None = None, width: int | None = None, language: str = "en") -> str:
        """For the terminal: the translation, the weights and the measure."""
        from regard.viewing import terminal

        if self.alignment is None:
            why = load_translations(language).get("TranslationExplanation.no_attention", NO_ATTENTION)
            return f"{self.summary(language)}\n\n{why}"
        source, target, weights = self._viewed_weights()
        form: dict[str, Any] = {"color": color, "width": width, "language": language}
        if self.view.heads:
            picture = terminal.head_grid(weights, **form)
        else:
            picture = terminal.heatmap(weights[0, 0], target, source, **form)
        translation, *measured = self.summary(language).split("\n")
        return "\n".join([translation, "", picture, *([""] if measured else []), *measured])

    def to_figure(self) -> Figure:
        """A figure of the weights."""
        from regard.viewing import figures

        source, target, weights = self._viewed_weights()
        if self.view.heads:
            return figures.head_grid(weights, target, source, title=self._title())
        return figures.heatmap(weights[0, 0], target, source, title=self._title())

    def to_page(self, *, language: str | None = None) -> HtmlPage:
        """A page to step through the translation, or one with all heads."""
        view = self.view
        if view.heads:
            source, target, weights = self._viewed_weights()
            return pages.head_grid(weights, target, source, title=self._title(), language=language)
        data, is_merged = self.to_page_data(), view.words
        return pages.translation_page(data, layer=view.layer, head=view.head, merge_tokens=is_merged, language=language)

    def to_page_data(self) -> pages.TranslationPageData:
        """The data of the page."""
        measure, alignment, name = self.faithfulness, self.alignment, self.translator.target.convert_ids_to_tokens
        tree = [
            [BeamNode(name([c.token])[0], math.exp(c.log_prob), c.score, c.parent, c.finished) for c in step]
            for step in self.trace.steps
        ]
        return pages.TranslationPageData(
            source=self._source_sentence(),
            target=self._target_sentence(),
            next_tokens=self.next_token_options(),
            score=self.hypothesis.score,
            weights=None if alignment is None else alignment.weights[:, :, : self.hypothesis.length],
            tree=tree,
            best_path=self._best_path(),
            beam_size=self.translator.num_candidates(self.view),
            forced=self.view.target is not None,
            faithfulness=None if measure is None else {name: measure.sentence(name) for name in ("en", "zh")},
        )

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        options = [[vars(option) for option in step] for step in self.next_token_options()]
        name = self.translator.target.convert_ids_to_tokens
        return {
            "source": self.source,
            "translation": self.translation,
            **self.hypothesis.to_json(),
            "next": options,
            "search": self.trace.to_json(lambda token: name([token])[0])["steps"],
            "alignment": None if self.alignment is None else self.alignment.to_json(),
            "faithfulness": None if self.faithfulness is None else self.faithfulness.to_json(),
        }

    def faithfulness_measure(self) -> Callable[[], dict[str, Any]] | None:
        """Measure how much the translation depends on the weights; None for an engine and for a long text."""
        if self.alignment is None or not can_measure(self.translator, self.alignment):
            return None
        return lambda: self._measure_faithfulness().to_json()

    def _measure_faithfulness(self) -> Faithfulness:
        forced = self.alignment, self.probabilities
        return measure_faithfulness(self.translator, self.source, self.hypothesis.token_ids, forced=forced)

    def _viewed_weights(self) -> WordAlignment:
        """The weights of the view: of every head, or of one."""
        return self.weights(self.view.layer, self.view.head, merge_words=self.view.words, heads=self.view.heads)

    def _title(self) -> str:
        # The mark keeps the source left of its translation, also if it is written from right to left.
        title = f"\u200e{self.source} → \u200e{self.translation}"
        return title if len(title) <= 90 else title[:89] + "…"

    def next_token_options(self) -> list[list[NextToken]]:
        """The most probable tokens of every step, and the token of the translation."""
        probabilities = self._step_probabilities() if self.probabilities is None else self.probabilities
        probabilities = probabilities.index_fill(-1, torch.tensor([PAD_ID, BOS_ID], device=probabilities.device), 0)
        steps = []
        for row, token in zip(probabilities.cpu(), self.token_ids, strict=False):
            top_ids = row.topk(min(NUM_OPTIONS, len(row))).indices.tolist()
            if token not in top_ids:
                top_ids[-1] = token
            names = zip(top_ids, self.translator.target.convert_ids_to_tokens(top_ids), strict=True)
            steps.append([NextToken(name, float(row[i]), i == token) for i, name in names])
        return steps

    @torch.no_grad()
    def _step_probabilities(self) -> Tensor:
        """The probabilities of each next token by decoding steps, of an engine that has nothing else."""
        translator = self.translator
        steps = translator.model.start_decoding(*translator.pad(translator.encode([self.source])))
        previous = torch.tensor([BOS_ID, *self.token_ids[:-1]], device=translator.device)
        return torch.cat([steps.step(token).float().softmax(-1) for token in previous.split(1)])

    def _source_sentence(self) -> TokenizedSentence:
        translator, alignment = self.translator, self.alignment
        text = translator.clean(self.source)
        if alignment is None:
            token_ids = [*translator.encode_source(self.source), EOS_ID]
            return TokenizedSentence(text, translator.source.convert_ids_to_tokens(token_ids))
        return TokenizedSentence(text, alignment.source, alignment.words_of("source"), alignment.word_groups("source"))

    def _target_sentence(self) -> TokenizedSentence:
        tokenizer = self.translator.target
        tokens = tokenizer.convert_ids_to_tokens(self.token_ids)
        groups = tokenizer.group_words(self.hypothesis.token_ids)
        words = ["".join(tokens[position] for position in group).strip("▁") for group in groups]
        return TokenizedSentence(self.translation, tokens, words, groups, self.hypothesis.finished)

    def _best_path(self) -> list[int]:
        """The place of the translation's token among the candidates of each step; -1 after its end."""
        trace, last = self.trace, self.hypothesis.length - 1
        if not trace.steps:
            return []
        is_end = [candidate.finished == self.hypothesis.finished for candidate in trace.steps[last]]
        index = next(i for i, fits in enumerate(is_end) if fits and trace.path(last, i) == self.token_ids)
        path = [-1] * len(trace.steps)
        for step in range(last, -1, -1):
            path[step], index = index, trace.steps[step][index].parent
        return path


def explain(
    translator: Translator, text: str, target: str | None = None, options: ExplainOptions | None = None
) -> TranslationExplanation:
    """Translate a text, or score a given translation, with the attention weights and the alternatives of each token.

    Args:
        translator: the model
        text: to translate
        target: a translation of it; None: the best that the search finds
        options: of the search, and what is shown and measured; default: `ExplainOptions(target=target)`
    """
    view = options or ExplainOptions(target=target)
    best, trace = _search_or_score(translator, text, view)
    alignment, probabilities = translator.forced_pass(text, best.token_ids, view.target)
    maps = () if alignment is None else _cross_attention_maps(alignment)
    if alignment is not None and view.self_attention:
        maps += _self_attention_maps(translator, text, best.token_ids, alignment)
    check_head(view.layer, view.head, (0, 0) if alignment is None else alignment.weights.shape[:2])
    prediction = translator.make_predictions([text], [[best]], TranslateOptions())[0]
    if view.target is not None:
        prediction = replace(prediction, text=view.target)
    return TranslationExplanation(prediction, maps, translator, text, best, trace, alignment, probabilities, view)


def _search_or_score(translator: Translator, text: str, view: ExplainOptions) -> tuple[Hypothesis, SearchTrace]:
    """The best translation with its search; a given one has none."""
    target, token_ids, limit = view.target, list(view.token_ids), translator.max_length
    if not text.strip():
        raise EmptyInputError("there is nothing to show: the text is empty")
    if token_ids:
        for token in token_ids:
            if token >= len(translator.target) or token in (PAD_ID, BOS_ID, EOS_ID):
                raise InputError(f"{token} is not the id of a token of the translation")
        if len(token_ids) > limit + 1:  # an unfinished translation has one more
            raise InputTooLongError(f"the translation has {len(token_ids):,} tokens, but this model takes {limit:,}")
    elif target is None:
        hypotheses, trace = translator.search_with_trace(text, translator.search_config(view))
        if not hypotheses:
            raise UsageError("the search found no translation of this text; take a wider beam")
        return hypotheses[0], trace
    else:
        token_ids = translator.target.encode(target)
        if not target.strip() or len(token_ids) > limit:
            has = f"has {len(token_ids):,} tokens" if target.strip() else "is empty"
            raise InputTooLongError(f"the translation {has}, but this model takes 1 to {limit:,} (max_length)")
    if not isinstance(translator.model, InferenceEngine):
        return translator.score_token_ids([text], [token_ids])[0], SearchTrace(())
    unknown = [math.nan] * (len(token_ids) + 1)  # an engine returns no log-probabilities
    return Hypothesis(token_ids, math.nan, math.nan, unknown), SearchTrace(())


def _cross_attention_maps(alignment: Alignment) -> tuple[AttentionMap, ...]:
    """The cross-attention of each layer."""
    target, source = _axis_labels(alignment, "target"), _axis_labels(alignment, "source")
    names = ["cross"] if len(alignment.weights) == 1 else [f"cross {layer}" for layer in range(len(alignment.weights))]
    layers = zip(names, alignment.weights, strict=True)
    return tuple(_make_map(name, weights, target, source, group="cross") for name, weights in layers)


def _self_attention_maps(
    translator: Translator, text: str, token_ids: Sequence[int], alignment: Alignment
) -> tuple[AttentionMap, ...]:
    """The self-attention of each layer of encoder and decoder; none for other models than a Transformer."""
    model = translator.model
    if not isinstance(model, Transformer):
        return ()
    target_ids, _ = translator.pad([[BOS_ID, *token_ids]])
    with torch.no_grad(), watch(model, layers=SELF_ATTENTION) as records:
        model(*translator.pad(translator.encode([text])), target_ids)
    source, target = _axis_labels(alignment, "source"), _axis_labels(alignment, "target")
    bos = translator.target.convert_ids_to_tokens([BOS_ID])[0]
    words = ((bos, (0,)), *((word, tuple(i + 1 for i in group)) for word, group in target[1][:-1]))
    previous = (bos, *target[0][:-1]), words  # the inputs of the decoder: each token before the next
    sides = {"encoder": (source, source), "decoder": (target, previous)}
    maps, layers = [], {side: count() for side in sides}
    for record in records:
        side = record.name.split(".")[0]
        name, weights, is_causal = f"{side} self {next(layers[side])}", record.weights[0].cpu(), side == "decoder"
        maps.append(_make_map(name, weights, *sides[side], group=f"{side}_self", is_self=True, is_causal=is_causal))
    return tuple(maps)


def _axis_labels(alignment: Alignment, side: str) -> AxisLabels:
    """The tokens, and words with the positions of their tokens; the end of the sentence is the last one."""
    tokens: tuple[str, ...] = getattr(alignment, side)
    words = zip(alignment.words_of(side), map(tuple, alignment.word_groups(side)), strict=True)
    return tokens, (*words, (tokens[-1], (len(tokens) - 1,)))


def _make_map(name: str, weights: Tensor, queries: AxisLabels, keys: AxisLabels, **values: Any) -> AttentionMap:
    return AttentionMap(name, weights, queries[0], keys[0], query_words=queries[1], key_words=keys[1], **values)
