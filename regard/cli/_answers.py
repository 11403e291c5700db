"""Translations with all that can be said of them: scores, tokens, where they looked, how they were found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import UnknownNameError

if TYPE_CHECKING:
    import torch

    from regard.decoding import Alignment, DecodingConfig, Hypothesis, SearchTrace
    from regard.tasks import Translator


@dataclass(frozen=True)
class Found:
    """One translation of a text."""

    text: str
    hypothesis: Hypothesis
    tokens: list[str]
    alignment: Alignment | None = None

    def as_dict(self) -> dict[str, Any]:
        plain = {
            "translation": self.text,
            "score": self.hypothesis.score,
            "log_prob": self.hypothesis.log_prob,
            "tokens": self.tokens,
            "token_log_probs": self.hypothesis.token_log_probs,
            "finished": self.hypothesis.finished,
        }
        return plain | ({} if self.alignment is None else {"alignment": self.alignment.to_json()})


@dataclass(frozen=True)
class Answer:
    """A text and its translations, the best first; an empty text has none."""

    source: str
    found: tuple[Found, ...]
    trace: SearchTrace | None = None

    @property
    def text(self) -> str:
        return self.found[0].text if self.found else ""

    def as_dict(self, line: int, several: bool) -> dict[str, Any]:
        best = self.found[0].as_dict() if self.found else {"translation": ""}
        nbest = {"nbest": [one.as_dict() for one in self.found]} if several else {}
        return {"line": line, "source": self.source, **best, **nbest}

    def drawn(self, layer: int | None, head: int | None) -> str:
        """Where each word of the translation looked, as a picture for the terminal."""
        from regard.viewing.terminal import heatmap

        if not self.found or self.found[0].alignment is None:
            return ""
        seen = self.found[0].alignment.select_head(layer, head).merge_words()
        return heatmap(seen.weights[0, 0], seen.target, seen.source) if seen.target and seen.source else ""


@dataclass(frozen=True)
class Searching:
    """How to translate, and what else to find out on the way."""

    translator: Translator
    options: DecodingConfig
    generator: torch.Generator | None = None
    align: bool = False
    unknown: bool = False
    trace: bool = False

    def answers(self, texts: Sequence[str]) -> list[Answer]:
        """The translations of texts that the model can take, in their order."""
        traces: list[SearchTrace | None] = [None] * len(texts)
        if self.trace:
            both = [self.translator.search_with_trace(text, self.options) for text in texts]
            found, traces = [several for several, _ in both], [tree for _, tree in both]
        else:
            found = self.translator.search(texts, self.options, self.generator)
        flat = [(text, one) for text, several in zip(texts, found, strict=True) for one in several]
        done = iter(self._found([text for text, _ in flat], [one for _, one in flat]))
        return [
            Answer(text, tuple(next(done) for _ in several), tree)
            for text, several, tree in zip(texts, found, traces, strict=True)
        ]

    def _found(self, sources: Sequence[str], hypotheses: Sequence[Hypothesis]) -> list[Found]:
        target = self.translator.target
        seen: Sequence[Alignment | None] = [None] * len(sources)
        if self.align or self.unknown:
            seen = self.translator.align_token_ids(sources, [one.token_ids for one in hypotheses])
        return [
            Found(
                self._text(one, alignment),
                one,
                target.convert_ids_to_tokens(one.token_ids),
                alignment if self.align else None,
            )
            for one, alignment in zip(hypotheses, seen, strict=True)
        ]

    def _text(self, one: Hypothesis, seen: Alignment | None) -> str:
        if not self.unknown or seen is None:
            return self.translator.to_text(one)
        return self.translator.replace_unknown(one.token_ids, seen)


def check_choice(layer: int | None, head: int | None, counts: Sequence[int]) -> None:
    """Refuse a layer or a head that a model with so many of them has not."""
    for name, number, count in zip(("layer", "head"), (layer, head), counts, strict=True):
        if number is not None and not 0 <= number < count:
            raise UnknownNameError(f"There is no {name} {number}; this model has {count}, counted from 0.")


def write_traces(path: Path, answers: Sequence[Answer], translator: Translator) -> None:
    """Keep the searches as JSON: the candidates of each step, their scores and their parents."""
    import json

    def name(token: int) -> str:
        return translator.target.convert_ids_to_tokens([token])[0]

    traces = [
        {"source": one.source, "translation": one.text, **one.trace.to_json(name)}
        for one in answers
        if one.trace is not None
    ]
    path.write_text(json.dumps({"traces": traces}, ensure_ascii=False) + "\n", encoding="utf-8")
