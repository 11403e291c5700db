"""One translation with all that can be shown of it: the search, what else could have come, where it looked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.data.batch import BOS, EOS, PAD
from regard.decoding import Alignment, Decoding, Hypothesis, Trace, Words
from regard.errors import EmptyInputError, InputTooLongError, UnsupportedError, UsageError
from regard.recipes.translation.translator import Translator

if TYPE_CHECKING:
    from regard.recipes.translation.faithfulness import Faithfulness
    from regard.viewing.players import Decoded, Node, Option, Player, Sentence

OPTIONS = 8  # what could have come next: more than one reads


@dataclass(frozen=True)
class Shown:
    """A text and its translation, ready to be played, drawn or told.

    `trace` is empty for a translation that was given; `alignment` and `faith` are None for a model without
    attention, and `faith` also where nobody asked for it.
    """

    translator: Translator
    text: str
    best: Hypothesis
    trace: Trace
    options: Decoding
    given: str | None = None
    alignment: Alignment | None = None
    faith: Faithfulness | None = None

    @property
    def translation(self) -> str:
        return self.translator.text(self.best) if self.given is None else self.given

    @property
    def written(self) -> list[int]:
        """The tokens with EOS, if it was reached."""
        return [*self.best.ids, EOS][: self.best.length]

    def looks(self, layer: int | None = None, head: int | None = None, *, merged: bool = True) -> Words:
        """Who looked at whom: words, or tokens with the ends of the sentences; the mean where no number is given."""
        return self._chosen(self._seen().looked(layer, head), merged)

    def heads(self, *, merged: bool = True) -> Words:
        """The same of every layer and head."""
        return self._chosen(self._seen(), merged)

    def player(
        self,
        layer: int | None = None,
        head: int | None = None,
        *,
        merged: bool = True,
        language: str | None = None,
    ) -> Player:
        """The page that goes through this translation step by step."""
        from regard.viewing.players import translation

        return translation(self.decoded(), layer=layer, head=head, merged=merged, language=language)

    def decoded(self) -> Decoded:
        """The same as plain data."""
        from regard.viewing.players import Decoded

        return Decoded(
            source=_source(self),
            target=_target(self),
            next=next_words(self),
            score=self.best.score,
            weights=None if self.alignment is None else self.alignment.weights[:, :, : self.best.length],
            tree=_tree(self),
            path=_path(self),
            beam=self.options.beam,
            forced=self.given is not None,
            faith=None if self.faith is None else {name: self.faith.sentence(name) for name in ("en", "zh")},
        )

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        told = [[vars(option) for option in step] for step in next_words(self)]
        name = self.translator.target.tokens
        return {
            "source": self.text,
            "translation": self.translation,
            **self.best.to_json(),
            "next": told,
            "search": self.trace.to_json(lambda token: name([token])[0])["steps"],
            "alignment": None if self.alignment is None else self.alignment.to_json(),
            "faithfulness": None if self.faith is None else self.faith.to_json(),
        }

    def _seen(self) -> Alignment:
        if self.alignment is None:
            raise UnsupportedError(
                "this model has no attention, so there are no weights to draw; --out x.html shows the rest"
            )
        return self.alignment

    def _chosen(self, seen: Alignment, merged: bool) -> Words:
        words = seen.words()
        if merged and words.source and words.target:
            return words
        return Words(seen.source, seen.target, seen.weights)


def show(
    translator: Translator,
    text: str,
    target: str | None = None,
    options: Decoding | None = None,
    *,
    measure: bool = True,
) -> Shown:
    """Translate a text, or read the given translation `target` of it, and keep everything there is to see.

    With `measure`, it is also found out how far the translation depends on the weights, which takes some passes more.
    """
    options = options or translator.decoding()
    best, trace = _found(translator, text, target, options)
    seen = faith = None
    if translator.attends:
        seen = translator.aligned([text], [best.ids])[0]
    if translator.attends and measure:
        from regard.recipes.translation.faithfulness import faithfulness

        faith = faithfulness(translator, text, best.ids)
    return Shown(translator, text, best, trace, options, target, seen, faith)


def next_words(shown: Shown) -> list[list[Option]]:
    """At every step, the likeliest tokens and the one that was written."""
    translator = shown.translator
    ids = [*translator.source.encode(translator.clean(shown.text)), EOS]
    source, lengths = torch.tensor([ids]), torch.tensor([len(ids)])
    told = []
    with torch.no_grad():
        steps = translator.model.begin(source.to(translator.device), lengths.to(translator.device))
        for before, token in zip([BOS, *shown.written], shown.written, strict=False):
            shares = steps.step(torch.tensor([before], device=translator.device))[0].float().softmax(-1)
            shares[[PAD, BOS]] = 0  # these are never written
            told.append(_options(translator, shares.cpu(), token))
    return told


def _found(
    translator: Translator, text: str, target: str | None, options: Decoding
) -> tuple[Hypothesis, Trace]:
    """The best translation with its search; a given one has none."""
    if not text.strip():
        raise EmptyInputError("there is nothing to show: the text is empty")
    if target is None:
        several, trace = translator.trace(text, options)
        if not several:
            raise UsageError("the search found no translation of this text; take a wider beam")
        return several[0], trace
    length = len(translator.target.encode(target))
    if not target.strip() or length > translator.max_length:
        has = f"has {length:,} tokens" if target.strip() else "is empty"
        raise InputTooLongError(
            f"the translation {has}, but this model takes 1 to {translator.max_length:,} (max_length)"
        )
    return translator.score([text], [target])[0], Trace(())


def _options(translator: Translator, shares: Tensor, token: int) -> list[Option]:
    from regard.viewing.players import Option

    likeliest = shares.topk(min(OPTIONS, len(shares))).indices.tolist()
    if token not in likeliest:
        likeliest[-1] = token
    names = translator.target.tokens(likeliest)
    return [Option(name, float(shares[i]), i == token) for i, name in zip(likeliest, names, strict=True)]


def _source(shown: Shown) -> Sentence:
    from regard.viewing.players import Sentence

    text, seen = shown.translator.clean(shown.text), shown.alignment
    if seen is None:
        tokenizer = shown.translator.source
        return Sentence(text, tokenizer.tokens([*tokenizer.encode(text), EOS]))
    return Sentence(text, seen.source, seen.names("source"), seen.groups("source"))


def _target(shown: Shown) -> Sentence:
    from regard.viewing.players import Sentence

    tokenizer = shown.translator.target
    tokens, groups = tokenizer.tokens(shown.written), tokenizer.words(shown.best.ids)
    words = ["".join(tokens[place] for place in group).strip("▁") for group in groups]
    return Sentence(shown.translation, tokens, words, groups, shown.best.finished)


def _tree(shown: Shown) -> list[list[Node]]:
    from regard.viewing.players import Node

    name = shown.translator.target.tokens
    return [
        [Node(name([c.token])[0], math.exp(c.log_prob), c.score, c.parent, c.finished) for c in step]
        for step in shown.trace.steps
    ]


def _path(shown: Shown) -> list[int]:
    """The place of the translation's token among the candidates of each step; -1 after its end."""
    trace, last = shown.trace, shown.best.length - 1
    if not trace.steps:
        return []
    index = next(
        i
        for i, candidate in enumerate(trace.steps[last])
        if candidate.finished == shown.best.finished and trace.path(last, i) == shown.written
    )
    path = [-1] * len(trace.steps)
    for step in range(last, -1, -1):
        path[step], index = index, trace.steps[step][index].parent
    return path
