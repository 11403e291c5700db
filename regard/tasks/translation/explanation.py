"""One translation with everything that can be shown of it: its search, alternatives and weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.data.vocabulary import BOS_ID, EOS_ID, PAD_ID
from regard.decoding import Alignment, DecodingConfig, Hypothesis, SearchTrace, WordAlignment
from regard.errors import EmptyInputError, InputError, InputTooLongError, UnsupportedError, UsageError
from regard.tasks.predictor import Explanation
from regard.tasks.translation.alignment import cross_attention_maps
from regard.tasks.translation.config import ExplainOptions, TranslateOptions
from regard.tasks.translation.faithfulness import Faithfulness, can_measure, measure_faithfulness
from regard.tasks.translation.inference import InferenceEngine
from regard.tasks.translation.maps import self_attention_maps
from regard.tasks.translation.predictor import Translator, check_head
from regard.viewing import pages
from regard.viewing.pages import BeamNode, HtmlPage, NextToken, TokenizedSentence

__all__ = ["TranslationExplanation", "explain", "next_token_options"]

if TYPE_CHECKING:
    from regard.viewing.figures import Figure

NUM_OPTIONS = 8  # alternatives of a token that are shown
NO_ATTENTION = {
    "en": "This model has no attention, so there are no weights to draw.",
    "zh": "这个模型没有注意力，没有权重可画。",
}


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
        options: of the search
        target: the translation, if it was given
        alignment: None for a model without attention
        probabilities: of each next token of the translation, (tokens, vocabulary); None of an engine
        view: which layer and head are shown, and whether words or tokens
    """

    translator: Translator
    source: str
    hypothesis: Hypothesis
    trace: SearchTrace
    options: DecodingConfig
    target: str | None = None
    alignment: Alignment | None = None
    probabilities: Tensor | None = None
    view: ExplainOptions = field(default_factory=ExplainOptions)

    @cached_property
    def faithfulness(self) -> Faithfulness | None:
        """How much the translation depends on the weights, measured when it is read; None without attention."""
        return None if self.alignment is None or not self.view.faithfulness else self._measure_faithfulness()

    @property
    def translation(self) -> str:
        """The text of the translation."""
        return self.translator.to_text(self.hypothesis) if self.target is None else self.target

    @property
    def token_ids(self) -> list[int]:
        """The tokens, with EOS if it was reached."""
        return [*self.hypothesis.token_ids, EOS_ID][: self.hypothesis.length]

    def weights(self, layer: int | None = None, head: int | None = None, *, merge_words: bool = True) -> WordAlignment:
        """The attention weights of words, or of tokens with the ends of the sentences.

        Args:
            layer, head: counted from 0; None: the mean
            merge_words: words instead of tokens
        """
        return self._select_words(self._require_alignment().select_head(layer, head), merge_words)

    def head_weights(self, *, merge_words: bool = True) -> WordAlignment:
        """The weights of every layer and head."""
        return self._select_words(self._require_alignment(), merge_words)

    def summary(self, language: str = "en") -> str:
        """The translation and, if it was measured, how much it depends on the weights."""
        measured = [] if self.faithfulness is None else [self.faithfulness.sentence(language)]
        return "\n".join([self.translation, *measured])

    def to_text(self, *, color: bool | None = None, width: int | None = None, language: str = "en") -> str:
        """For the terminal: the translation, the weights and the measure."""
        from regard.viewing import terminal

        if self.alignment is None:
            return f"{self.summary(language)}\n\n{NO_ATTENTION[language]}"
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
        measure, alignment = self.faithfulness, self.alignment
        return pages.TranslationPageData(
            source=_source_sentence(self),
            target=_target_sentence(self),
            next_tokens=next_token_options(self),
            score=self.hypothesis.score,
            weights=None if alignment is None else alignment.weights[:, :, : self.hypothesis.length],
            tree=_search_tree(self),
            best_path=_best_path(self),
            beam_size=self.options.beam_size,
            forced=self.target is not None,
            faithfulness=None if measure is None else {name: measure.sentence(name) for name in ("en", "zh")},
        )

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        options = [[vars(option) for option in step] for step in next_token_options(self)]
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
        if self.view.heads:
            return self.head_weights(merge_words=self.view.words)
        return self.weights(self.view.layer, self.view.head, merge_words=self.view.words)

    def _title(self) -> str:
        # The mark keeps the source left of its translation, also if it is written from right to left.
        title = f"\u200e{self.source} → \u200e{self.translation}"
        return title if len(title) <= 90 else title[:89] + "…"

    def _require_alignment(self) -> Alignment:
        if self.alignment is None:
            raise UnsupportedError(
                "this model has no attention, so there are no weights to draw; --out x.html shows the rest"
            )
        return self.alignment

    def _select_words(self, alignment: Alignment, merge_words: bool) -> WordAlignment:
        words = alignment.merge_words()
        if merge_words and words.source and words.target:
            return words
        return WordAlignment(alignment.source, alignment.target, alignment.weights)


def explain(
    translator: Translator,
    text: str,
    target: str | None = None,
    options: DecodingConfig | None = None,
    view: ExplainOptions | None = None,
) -> TranslationExplanation:
    """Translate a text, or score a given translation, with the attention weights and the alternatives of each token.

    Args:
        translator: the model
        text: to translate
        target: a translation of it; None: the best that the search finds
        options: of the search
        view: which layer and head are shown, words or tokens, and whether faithfulness is measured
    """
    options, view = options or translator.decoding_config(), view or ExplainOptions()
    best, trace = _search_or_score(translator, text, target, options, view.token_ids)
    known_text = None if view.token_ids else target
    alignment, probabilities = translator.forced_pass(text, best.token_ids, known_text)
    maps = () if alignment is None else cross_attention_maps(alignment)
    if alignment is not None and view.self_attention:
        maps += self_attention_maps(translator, text, best.token_ids, alignment)
    check_head(view.layer, view.head, (0, 0) if alignment is None else alignment.weights.shape[:2])
    prediction = translator.make_predictions([text], [[best]], TranslateOptions())[0]
    return TranslationExplanation(
        prediction if target is None else replace(prediction, text=target),
        maps,
        translator,
        text,
        best,
        trace,
        options,
        target,
        alignment,
        probabilities,
        view,
    )


def next_token_options(explanation: TranslationExplanation) -> list[list[NextToken]]:
    """The most probable tokens of every step, and the token of the translation.

    Args:
        explanation: of the translation
    """
    probabilities = explanation.probabilities
    if probabilities is None:
        probabilities = _step_probabilities(explanation)
    probabilities = probabilities.index_fill(-1, torch.tensor([PAD_ID, BOS_ID], device=probabilities.device), 0)
    rows = zip(probabilities.cpu(), explanation.token_ids, strict=False)
    return [_token_options(explanation.translator, row, token) for row, token in rows]


@torch.no_grad()
def _step_probabilities(explanation: TranslationExplanation) -> Tensor:
    """The probabilities of each next token by decoding steps, of an engine that has nothing else."""
    translator = explanation.translator
    source, lengths = translator.pad(translator.encode([explanation.source]))
    steps = translator.model.start_decoding(source, lengths)
    previous = torch.tensor([BOS_ID, *explanation.token_ids[:-1]], device=translator.device)
    return torch.cat([steps.step(token).float().softmax(-1) for token in previous.split(1)])


def _search_or_score(
    translator: Translator, text: str, target: str | None, options: DecodingConfig, token_ids: tuple[int, ...] = ()
) -> tuple[Hypothesis, SearchTrace]:
    """The best translation with its search; a given one has none."""
    if not text.strip():
        raise EmptyInputError("there is nothing to show: the text is empty")
    if token_ids:
        _check_token_ids(translator, token_ids)
        return _score(translator, text, list(token_ids)), SearchTrace(())
    if target is None:
        hypotheses, trace = translator.search_with_trace(text, options)
        if not hypotheses:
            raise UsageError("the search found no translation of this text; take a wider beam")
        return hypotheses[0], trace
    target_ids = translator.target.encode(target)
    length = len(target_ids)
    if not target.strip() or length > translator.max_length:
        has = f"has {length:,} tokens" if target.strip() else "is empty"
        raise InputTooLongError(
            f"the translation {has}, but this model takes 1 to {translator.max_length:,} (max_length)"
        )
    return _score(translator, text, target_ids), SearchTrace(())


def _score(translator: Translator, text: str, token_ids: list[int]) -> Hypothesis:
    """A given translation with its log-probabilities; NaN for an engine, which returns none."""
    if isinstance(translator.model, InferenceEngine):
        return Hypothesis(token_ids, math.nan, math.nan, [math.nan] * (len(token_ids) + 1))
    return translator.score_token_ids([text], [token_ids])[0]


def _check_token_ids(translator: Translator, token_ids: tuple[int, ...]) -> None:
    count, limit = len(translator.target), translator.max_length + 1  # an unfinished translation has one more
    for token in token_ids:
        if token >= count or token in (PAD_ID, BOS_ID, EOS_ID):
            raise InputError(f"{token} is not the id of a token of the translation")
    if len(token_ids) > limit:
        raise InputTooLongError(f"the translation has {len(token_ids):,} tokens, but this model takes {limit - 1:,}")


def _token_options(translator: Translator, probabilities: Tensor, token: int) -> list[NextToken]:
    top_ids = probabilities.topk(min(NUM_OPTIONS, len(probabilities))).indices.tolist()
    if token not in top_ids:
        top_ids[-1] = token
    names = translator.target.convert_ids_to_tokens(top_ids)
    return [NextToken(name, float(probabilities[i]), i == token) for i, name in zip(top_ids, names, strict=True)]


def _source_sentence(explanation: TranslationExplanation) -> TokenizedSentence:
    translator, alignment = explanation.translator, explanation.alignment
    text = translator.clean(explanation.source)
    if alignment is None:
        token_ids = [*translator.encode_source(explanation.source), EOS_ID]
        return TokenizedSentence(text, translator.source.convert_ids_to_tokens(token_ids))
    return TokenizedSentence(text, alignment.source, alignment.words_of("source"), alignment.word_groups("source"))


def _target_sentence(explanation: TranslationExplanation) -> TokenizedSentence:
    tokenizer = explanation.translator.target
    tokens = tokenizer.convert_ids_to_tokens(explanation.token_ids)
    groups = tokenizer.group_words(explanation.hypothesis.token_ids)
    words = ["".join(tokens[position] for position in group).strip("▁") for group in groups]
    return TokenizedSentence(explanation.translation, tokens, words, groups, explanation.hypothesis.finished)


def _search_tree(explanation: TranslationExplanation) -> list[list[BeamNode]]:
    name = explanation.translator.target.convert_ids_to_tokens
    return [
        [BeamNode(name([c.token])[0], math.exp(c.log_prob), c.score, c.parent, c.finished) for c in step]
        for step in explanation.trace.steps
    ]


def _best_path(explanation: TranslationExplanation) -> list[int]:
    """The place of the translation's token among the candidates of each step; -1 after its end."""
    trace, last = explanation.trace, explanation.hypothesis.length - 1
    if not trace.steps:
        return []
    index = next(
        i
        for i, candidate in enumerate(trace.steps[last])
        if candidate.finished == explanation.hypothesis.finished and trace.path(last, i) == explanation.token_ids
    )
    path = [-1] * len(trace.steps)
    for step in range(last, -1, -1):
        path[step], index = index, trace.steps[step][index].parent
    return path
