"""Whether a translation depends on its attention: weights are no explanation unless something depends on them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import load_translations
from regard.data.vocabulary import BOS_ID, EOS_ID
from regard.decoding import Alignment
from regard.errors import EmptyInputError, UnknownNameError, UnsupportedError
from regard.models import Transformer
from regard.tasks.translation.inference import InferenceEngine
from regard.tasks.translation.predictor import Translator
from regard.tasks.translation.scorer import CANNOT_ALIGN, MAX_BATCH_TOKENS
from regard.viewing.interventions import PermutedWeights, UniformWeights, replace_normalizers

__all__ = ["Faithfulness", "OutputChange", "can_measure", "measure_faithfulness"]

SMALL_CHANGE = 0.1  # of the probability: below it, a change is small
CLEAR_RATIO = 1.5  # of two changes: above it, one is larger than the other
# Removing each word computes everything again: at most this many tokens, and probabilities, are measured.
MAX_TOKENS, MAX_PROBABILITIES = 20_000, 50_000_000


@dataclass(frozen=True)
class OutputChange:
    """How much the predictions of the tokens of a translation change, on average.

    Args:
        probability_mass: 1/2 sum_w |p(w) - p'(w)|, the total variation of the next token's distribution
        argmax_rate: share of tokens where the most probable token is another one
    """

    probability_mass: float
    argmax_rate: float


@dataclass(frozen=True)
class Faithfulness:
    """How much of a translation changes when its attention, or its source, is changed.

    Args:
        permuted: the weights of every attention to the source are permuted at random
        uniform: all weights are equal
        most_attended, least_attended: each token loses the source word that it attends to most, or least
        random: each token loses one source word; the mean over all words
        num_draws: number of permutations
        num_tokens: tokens of the translation with its end
    """

    permuted: OutputChange
    uniform: OutputChange
    most_attended: OutputChange
    least_attended: OutputChange
    random: OutputChange
    num_draws: int
    num_tokens: int

    def to_json(self) -> dict[str, Any]:
        """Plain numbers with the verdict in all languages."""
        sentences = {language: self.sentence(language) for language in LANGUAGES}
        return asdict(self) | {"verdict": self.verdict(), "sentence": sentences}

    def sentence(self, language: str = "en") -> str:
        """The result for people.

        Args:
            language: "en" or "zh"
        """
        if language not in LANGUAGES:
            raise UnknownNameError(f"there is no sentence in {language!r}; there is {' and '.join(LANGUAGES)}")
        names = ("permuted", "uniform", "most_attended", "random", "least_attended")
        changes = {name: f"{100 * getattr(self, name).probability_mass:.0f} %" for name in names}
        changes["flipped"] = f"{100 * self.permuted.argmax_rate:.0f} %"
        translations = load_translations(language)
        facts, verdict = (translations.get(f"Faithfulness.{key}", SENTENCES[key]) for key in ("facts", self.verdict()))
        return facts.format(**changes) + verdict

    def verdict(self) -> str:
        """What these numbers mean for a picture of the weights: it "matters", is "idle", or "unclear"."""
        if self.permuted.probability_mass < SMALL_CHANGE:
            return "idle"
        is_clear = self.most_attended.probability_mass > CLEAR_RATIO * self.random.probability_mass
        return "matters" if is_clear else "unclear"


SENTENCES = {
    "facts": "With these weights permuted at random, {permuted} of the next word's probability moves and "
    "{flipped} of the words change; with uniform weights, {uniform} moves. Without the most attended word, "
    "{most_attended} moves; without any one word, {random}; without the least attended, {least_attended}. ",
    "matters": "So this translation does depend on the weights; that is not yet a reason for its words.",
    "idle": "So this translation hardly depends on the weights: do not read the picture as an explanation.",
    "unclear": "So the weights matter, but the most attended words hardly more than others: do not read the "
    "picture as an explanation.",
}
LANGUAGES = ("en", "zh")


def can_measure(translator: Translator, alignment: Alignment) -> bool:
    """Whether a translation is measured in reasonable time: with a PyTorch model, and not too long.

    Args:
        translator: the model
        alignment: of the translation
    """
    num_tokens = len(alignment.word_groups("source")) * (len(alignment.source) + len(alignment.target))
    is_short = num_tokens <= MAX_TOKENS and num_tokens * len(translator.target) <= MAX_PROBABILITIES
    return is_short and not isinstance(translator.model, InferenceEngine)


@torch.no_grad()
def measure_faithfulness(
    translator: Translator,
    source: str,
    target: str | Sequence[int] | None = None,
    *,
    num_draws: int = 8,
    seed: int = 0,
    forced: tuple[Alignment | None, Tensor | None] | None = None,
) -> Faithfulness:
    """Measure how much a translation depends on its attention weights.

    The translation stays as it is (forced decoding); the probabilities of its next tokens change.

    Args:
        translator: the model
        source: the source text
        target: the translation, a text or token ids; None: that of the translator
        num_draws: number of random permutations of the weights
        seed: of the permutations
        forced: what `forced_pass` returned for the translation, if it has been computed
    """
    if not source.strip():
        raise EmptyInputError("an empty text has no translation to be measured")
    if target is None:
        target = translator.search([source])[0][0].token_ids
    token_ids = translator.target.encode(target) if isinstance(target, str) else list(target)
    alignment, before = forced or translator.forced_pass(source, token_ids)
    if alignment is None or before is None:
        assert translator.torch_model  # an engine is refused
        raise UnsupportedError(CANNOT_ALIGN)
    source_ids, groups = [*translator.encode_source(source), EOS_ID], alignment.word_groups("source")
    measure, generator = partial(_measure_changes, translator, token_ids, before), torch.Generator().manual_seed(seed)
    permuted = measure([source_ids] * num_draws, lambda normalize: PermutedWeights(normalize, generator))
    uniform = measure([source_ids], UniformWeights)
    shortened = measure([[token for i, token in enumerate(source_ids) if i not in group] for group in groups])
    weights = alignment.weights.float().mean((0, 1))
    by_word = torch.stack([weights[:, list(group)].sum(-1) for group in groups], -1)
    tokens = torch.arange(len(by_word))
    most, least = shortened[by_word.argmax(-1), tokens], shortened[by_word.argmin(-1), tokens]
    names = ("permuted", "uniform", "most_attended", "least_attended", "random")
    means = permuted.mean((0, 1)), uniform.mean((0, 1)), most.mean(0), least.mean(0), shortened.flatten(0, 1).mean(0)
    changes = {name: OutputChange(*mean.tolist()) for name, mean in zip(names, means, strict=True)}
    return Faithfulness(**changes, num_draws=num_draws, num_tokens=len(token_ids) + 1)


def _measure_changes(
    translator: Translator, token_ids: Sequence[int], before: Tensor, sources: list[list[int]], replacement: Any = None
) -> Float[Tensor, "sources tokens 2"]:
    """For other sources, in batches, or with other weights: of every token of the translation, the probability that
    moved, and whether the most probable token is another one."""
    model, target = translator.torch_model, torch.tensor([[BOS_ID, *token_ids]], device=translator.device)
    pattern = "decoder.layers.*.cross_attn" if isinstance(model, Transformer) else "attention"
    step = max(1, MAX_BATCH_TOKENS // max([target.shape[1], *map(len, sources)]))
    batches = [target.new_zeros(0, target.shape[1], before.shape[1]).float()]
    with nullcontext() if replacement is None else replace_normalizers(model, replacement, pattern):
        for start in range(0, len(sources), step):
            tokens, lengths = translator.pad(sources[start : start + step])
            batches.append(model(tokens, lengths, target.expand(len(tokens), -1)).float().softmax(-1))
    after = torch.cat(batches)
    mass = (after - before).abs().sum(-1) / 2
    return torch.stack([mass, (after.argmax(-1) != before.argmax(-1)).float()], -1).cpu()
