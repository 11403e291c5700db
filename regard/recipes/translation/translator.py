"""A trained model, ready to translate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import torch
from torch import Tensor

from regard.data.batch import BOS, EOS, UNK, filled
from regard.data.tokenizer import Tokenizer
from regard.decoding import Alignment, Decoding, Hypothesis, Trace, copy_unknown, decode, force, trace
from regard.errors import InputTooLongError, UnsupportedError, UsageError
from regard.models import Recurrent, Transformer
from regard.recipes._task import Recipe
from regard.recipes.translation._sides import Side, joined
from regard.recipes.translation._together import side_by_side
from regard.recipes.translation.engine import Engine
from regard.recipes.translation.settings import Translation
from regard.training.memory import keep_memory

Looks = Callable[[Tensor, Tensor, Tensor], list[Tensor]]  # of source, its lengths and target: a layer each

FEW = 10  # with less than a tenth of a batch for each thread, one batch with all threads is faster
AT_ONCE = 16_000  # tokens on all beams of a batch: more makes no CPU faster


def too_long_error(row: int, length: int, limit: int) -> InputTooLongError:
    """The error for a text with more tokens than the model was trained for; `row` is counted from 0."""
    return InputTooLongError(
        f"text {row + 1} has {length:,} tokens, but this model takes {limit:,} (max_length); split it",
        row=row,
        length=length,
        limit=limit,
    )


class Translator:
    """A model with its tokenizers: texts in, texts out, and where each word looked.

    `regard.load(RUN)` gives one. `settings.beam` and `settings.length_penalty` are how it translates unless
    `Decoding` options are given.
    """

    def __init__(
        self,
        model: Recurrent | Transformer | Engine,
        source: Tokenizer,
        target: Tokenizer,
        settings: Translation,
        recipe: Recipe | None = None,
    ):
        keep_memory()  # a step frees what the next one wants again
        self.model = model if isinstance(model, Engine) else model.eval()
        self.source, self.target, self.settings, self.recipe = source, target, settings, recipe
        self.max_length = settings.max_length
        self.clean = str if recipe is None else recipe.clean
        self.unlinked = frozenset() if recipe is None else recipe.unlinked

    @property
    def device(self) -> torch.device:
        return self.model.device if isinstance(self.model, Engine) else self.model.output.weight.device

    @property
    def network(self) -> Recurrent | Transformer:
        """The model itself, to look into; one that another engine computes has none left."""
        if isinstance(self.model, Engine):
            raise UnsupportedError(
                f"this needs the network itself, which {self.model.name} hides; use the run it was exported from"
            )
        return self.model

    @property
    def attends(self) -> bool:
        """Whether there is anything to align by."""
        if isinstance(self.model, Engine):
            return self.model.attends
        return not isinstance(self.model, Recurrent) or self.model.attention is not None

    def decoding(self, **options: Any) -> Decoding:
        """The options to search with: those of the run, changed by what is given."""
        usual: dict[str, Any] = {
            "beam": self.settings.beam,
            "alpha": self.settings.length_penalty,
            "max_length": self.max_length + 1,  # the end of the sentence counts here
        }
        usual |= {name: value for name, value in options.items() if value is not None}
        if "method" not in usual:
            usual["method"] = "greedy" if usual["beam"] == 1 and usual.get("best", 1) == 1 else "beam"
        return Decoding(**usual)

    @overload
    def translate(self, texts: str, *, unknown: bool = False, **options: Any) -> str: ...
    @overload
    def translate(self, texts: list[str], *, unknown: bool = False, **options: Any) -> list[str]: ...

    def translate(self, texts: str | list[str], *, unknown: bool = False, **options: Any) -> str | list[str]:
        """The best translation of each text; `unknown` copies words it has no token for from the source."""
        several = [texts] if isinstance(texts, str) else list(texts)
        found = [best[0] if best else None for best in self.search(several, self.decoding(**options))]
        answers = [self.text(one) for one in found]
        if unknown:
            answers = self._copied(several, found, answers)
        return answers[0] if isinstance(texts, str) else answers

    def text(self, hypothesis: Hypothesis | None) -> str:
        return "" if hypothesis is None else self.target.decode(hypothesis.ids)

    def search(
        self, texts: Sequence[str], options: Decoding | None = None, generator: torch.Generator | None = None
    ) -> list[list[Hypothesis]]:
        """The best translations of each text with their scores, in the order of the texts; none for an empty text."""
        options = options or self.decoding()
        if isinstance(self.model, Engine):
            return self._by_engine(self.model, texts, options, generator)
        model, found = self.model, [list[Hypothesis]() for _ in texts]

        def searched(batch: tuple[list[int], Tensor, Tensor]) -> None:
            rows, source, lengths = batch
            for row, several in zip(
                rows, decode(model, source, lengths, options, generator=generator), strict=True
            ):
                found[row] = several

        batches = self._batches(texts, options)
        if _one_by_one(options, self.device):
            for batch in batches:
                searched(batch)
        else:
            side_by_side(searched, batches)
        return found

    def with_model(self, model: Engine) -> Translator:
        """The same with another engine."""
        return Translator(model, self.source, self.target, self.settings, self.recipe)

    def _by_engine(
        self, engine: Engine, texts: Sequence[str], options: Decoding, generator: torch.Generator | None
    ) -> list[list[Hypothesis]]:
        encoded = [[*self.source.encode(self.clean(text)), EOS] for text in texts]
        self._check(encoded)
        found: list[list[Hypothesis]] = [[] for _ in texts]
        rows = [row for row, text in enumerate(texts) if text.strip()]
        best = engine.search([encoded[row] for row in rows], options, generator)
        for row, several in zip(rows, best, strict=True):
            found[row] = several
        return found

    def trace(self, text: str, options: Decoding | None = None) -> tuple[list[Hypothesis], Trace]:
        """One translation with its whole search: every candidate, its score and its parent."""
        options = options or self.decoding()
        for _, source, lengths in self._batches([text], options):
            return trace(self.model, source, lengths, options)[0]
        return [], Trace(())

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Hypothesis]:
        """How probable the given translations are, token by token."""
        _refuse_one("score", sources, targets)
        found: list[Any] = [None] * len(sources)
        ids = [self.target.encode(text) for text in targets]
        for rows, source, lengths, target in self._forced(sources, ids):
            known = torch.tensor([len(ids[row]) + 2 for row in rows], device=self.device)
            best = force(self.network, source, lengths, target, known, self.decoding())
            for row, one in zip(rows, best, strict=True):
                found[row] = one
        return found

    @overload
    def align(self, source: str, target: str, *, spaced: bool | None = None) -> Alignment: ...
    @overload
    def align(
        self, source: list[str], target: list[str], *, spaced: bool | None = None
    ) -> list[Alignment]: ...

    def align(
        self, source: str | list[str], target: str | list[str], *, spaced: bool | None = None
    ) -> Alignment | list[Alignment]:
        """Where each word of a translation looked in its source: also of one that somebody else made.

        `spaced` says that words are what stands between spaces, in Chinese and Japanese too: as in gold alignments.
        """
        if isinstance(source, str) and isinstance(target, str):
            return self.align([source], [target], spaced=spaced)[0]
        if isinstance(source, str) or isinstance(target, str):
            raise TypeError("align takes two texts or two lists of texts, not one of each")
        return self._looked(source, target, self.model.looks, spaced)

    @property
    def has_hindsight(self) -> bool:
        """Whether `hindsight` can be asked: of a recurrent model with attention."""
        return isinstance(self.model, Recurrent) and self.attends

    def hindsight(
        self, sources: Sequence[str], targets: Sequence[str], *, spaced: bool | None = None
    ) -> list[Alignment]:
        """The same in a recurrent model, now that each word is known (Bayes' rule)."""
        _refuse_one("hindsight", sources, targets)
        network = self.network
        if not isinstance(network, Recurrent):
            raise UnsupportedError(
                "hindsight needs one attention through which all of the source is seen; a Transformer has many"
            )
        return self._looked(sources, targets, network.hindsight, spaced)

    def aligned(self, sources: Sequence[str], targets: Sequence[list[int]]) -> list[Alignment]:
        """The same for translations given as tokens, such as the `ids` of a `Hypothesis`."""
        weights = self._weights(sources, targets, self.model.looks)
        return [
            joined(self._side(text), Side.of(self.target, ids), some)
            for text, ids, some in zip(sources, targets, weights, strict=True)
        ]

    def _looked(
        self, sources: Sequence[str], targets: Sequence[str], looks_of: Looks, spaced: bool | None
    ) -> list[Alignment]:
        weights = self._weights(sources, [self.target.encode(text) for text in targets], looks_of)
        return [
            joined(self._side(text, spaced), Side.read(self.target, given, spaced), some)
            for text, given, some in zip(sources, targets, weights, strict=True)
        ]

    def _weights(self, sources: Sequence[str], targets: Sequence[list[int]], looks_of: Looks) -> list[Tensor]:
        """Where each token of the translations looked, the ends of sentences included."""
        found: list[Any] = [None] * len(sources)
        for rows, source, lengths, target in self._forced(sources, targets):
            with torch.no_grad():
                looks = looks_of(source, lengths, target)
            if not looks:
                raise UnsupportedError("this model has no attention to align by; train one with scope=global")
            weights = torch.stack(looks, 1).cpu()
            for row, size, some in zip(rows, lengths.tolist(), weights, strict=True):
                found[row] = some[:, :, : len(targets[row]) + 1, :size].clone()
        return found

    def _side(self, text: str, spaced: bool | None = None) -> Side:
        return Side.read(self.source, self.clean(text), spaced)

    def _copied(
        self, sources: Sequence[str], found: Sequence[Hypothesis | None], answers: Sequence[str]
    ) -> list[str]:
        """Unknown words replaced by the source words that they looked at."""
        if not self.attends:
            return list(answers)
        copied, rows = list(answers), [i for i, one in enumerate(found) if one is not None and UNK in one.ids]
        ids = [one.ids for one in found if one is not None and UNK in one.ids]
        for row, numbers, seen in zip(rows, ids, self.aligned([sources[i] for i in rows], ids), strict=True):
            copied[row] = self.copied(numbers, seen)
        return copied

    def copied(self, numbers: Sequence[int], seen: Alignment) -> str:
        """The text of a translation, its unknown words replaced by the source words that they looked at."""
        unknown = {place for place, number in enumerate(numbers) if number == UNK}
        instead: dict[int, str] = {}
        for word, group in zip(copy_unknown(seen, unknown), seen.groups("target"), strict=True):
            if not unknown.isdisjoint(group):
                instead |= {**dict.fromkeys(group, ""), group[0]: word}
        return self.target.decode(numbers, instead)

    def _batches(self, texts: Sequence[str], options: Decoding) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Texts of similar length together; empty ones are left out, as there is nothing to translate."""
        encoded = [[*self.source.encode(self.clean(text)), EOS] for text in texts]
        self._check(encoded)
        width = options.beam if options.method == "beam" else options.best
        rows = [row for row, text in enumerate(texts) if text.strip()]
        together = 1 if _one_by_one(options, self.device) else torch.get_num_threads()
        for group in grouped(rows, [len(numbers) for numbers in encoded], max(1, AT_ONCE // width), together):
            source, lengths = filled([encoded[row] for row in group])
            yield group, source.to(self.device), lengths.to(self.device)

    def _forced(
        self, sources: Sequence[str], targets: Sequence[list[int]]
    ) -> Iterator[tuple[list[int], Tensor, Tensor, Tensor]]:
        """Batches of sources and given targets."""
        if len(sources) != len(targets):
            raise UsageError(f"there are {len(sources)} sources, but {len(targets)} translations of them")
        encoded = [[*self.source.encode(self.clean(text)), EOS] for text in sources]
        self._check(encoded)
        wanted = [[BOS, *numbers, EOS] for numbers in targets]
        longest = [max(len(a), len(b)) for a, b in zip(encoded, wanted, strict=True)]
        for group in grouped(list(range(len(sources))), longest, AT_ONCE):
            source, lengths = filled([encoded[row] for row in group])
            target, _ = filled([wanted[row] for row in group])
            yield group, source.to(self.device), lengths.to(self.device), target.to(self.device)

    def _check(self, encoded: Sequence[Sequence[int]]) -> None:
        for row, numbers in enumerate(encoded):
            if len(numbers) > self.max_length + 1:
                raise too_long_error(row, len(numbers) - 1, self.max_length)


def _refuse_one(name: str, sources: Sequence[str], targets: Sequence[str]) -> None:
    """A text is a sequence of letters, which would be taken for texts."""
    if isinstance(sources, str) or isinstance(targets, str):
        raise TypeError(f"{name} takes two lists of texts; for one pair, {name}([source], [target])")


def _one_by_one(options: Decoding, device: torch.device) -> bool:
    """Whether batches must wait for each other: chance goes by their order, and other devices have no threads."""
    return options.method == "sample" or device.type != "cpu"


def grouped(
    rows: Sequence[int], lengths: Sequence[int], tokens: int, together: int = 1
) -> Iterator[list[int]]:
    """Rows of similar length, the longest first, in groups of as many tokens, so that all take about as long.

    A group has about `tokens` at most, and never more than twice as many with the padding. Where there are enough for
    that, the number of groups is a multiple of `together`: that many workers then end at the same time.

    >>> list(grouped([0, 1, 2, 3], [5, 1, 4, 2], tokens=10))
    [[0, 2], [3, 1]]
    """
    total = sum(lengths[row] for row in rows)
    groups = max(1, -(-total // tokens))
    if FEW * total > together * tokens:
        groups = -(-groups // together) * together
    group: list[int] = []
    done = ended = 0
    for row in sorted(rows, key=lambda row: -lengths[row]):
        if group and (
            done * groups >= total * (ended + 1) or lengths[group[0]] * (len(group) + 1) > 2 * tokens
        ):
            yield group
            group, ended = [], ended + 1
        group.append(row)
        done += lengths[row]
    if group:
        yield group
