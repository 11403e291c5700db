"""Whether a translation hangs on where it looked: weights are not explanations until something depends on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.tokenizer import pad_rows
from regard.data.vocabulary import BOS_ID, EOS_ID
from regard.decoding import Alignment
from regard.errors import EmptyInputError, UnknownNameError
from regard.models import Transformer
from regard.tasks.translation.inference import InferenceEngine
from regard.tasks.translation.predictor import Translator
from regard.tasks.translation.scorer import MAX_BATCH_TOKENS
from regard.viewing.interventions import PermutedWeights, UniformWeights, replace_normalizers

SMALL_CHANGE = 0.1  # of probability that moves: below it, a change is small


CLEAR_RATIO = 1.5  # times as much as another: above it, a change is larger


@dataclass(frozen=True)
class OutputChange:
    """What another model says of the same translation, on average over its tokens.

    moved   = 1/2 sum_w |p(w) - p'(w)|          probability that went to other words (total variation)
    flipped = share of tokens where the most probable word is another one
    """

    probability_mass: float
    argmax_rate: float


@dataclass(frozen=True)
class Faithfulness:
    """How much of a translation changes when its attention, or what it looked at, is changed.

    `permuted`: the weights of every look at the source dealt out anew at random; `uniform`: all weights alike.
    `most`, `least`, `random`: for each token the word it looked at most, least, or any (their average) is taken out
    of the source.
    """

    permuted: OutputChange
    uniform: OutputChange
    most_attended: OutputChange
    least_attended: OutputChange
    random: OutputChange
    num_draws: int
    num_tokens: int

    def to_json(self) -> dict[str, Any]:
        sentences = {language: self.sentence(language) for language in SENTENCES}
        return asdict(self) | {"verdict": self.verdict(), "sentence": sentences}

    def sentence(self, language: str = "en") -> str:
        """What was found, for people; "en" or "zh"."""
        if language not in SENTENCES:
            raise UnknownNameError(f"there is no sentence in {language!r}; there is {' and '.join(SENTENCES)}")
        words, numbers = SENTENCES[language], {}
        for name in ("permuted", "uniform", "most_attended", "random", "least_attended"):
            numbers[name] = f"{100 * getattr(self, name).probability_mass:.0f} %"
        numbers["flipped"] = f"{100 * self.permuted.argmax_rate:.0f} %"
        return words["facts"].format(**numbers) + words[self.verdict()]

    def verdict(self) -> str:
        """What these numbers mean for a picture of the weights: it "matters", is "idle", or "unclear"."""
        if self.permuted.probability_mass < SMALL_CHANGE:
            return "idle"
        return (
            "matters" if self.most_attended.probability_mass > CLEAR_RATIO * self.random.probability_mass else "unclear"
        )


SENTENCES = {
    "en": {
        "facts": "With these weights permuted at random, {permuted} of the next word's probability moves and "
        "{flipped} of the words change; with uniform weights, {uniform} moves. Without the most attended word, "
        "{most_attended} moves; without any one word, {random}; without the least attended, {least_attended}. ",
        "matters": "So this translation does depend on the weights; that is not yet a reason for its words.",
        "idle": "So this translation hardly depends on the weights: do not read the picture as an explanation.",
        "unclear": "So the weights matter, but the most attended words hardly more than others: do not read the "
        "picture as an explanation.",
    },
    "zh": {
        "facts": "随机打乱注意力权重后，下一个词的概率有 {permuted} 发生转移，{flipped} 的词会改变；换成均匀权重，"
        "转移 {uniform}。去掉权重最大的源词，转移 {most_attended}；去掉任意一个源词，平均转移 {random}；"
        "去掉权重最小的源词，转移 {least_attended}。",
        "matters": "可见这句译文确实依赖注意力权重，但这还不足以解释它为什么这样译。",
        "idle": "可见这句译文几乎不依赖注意力权重：不要把这幅图当作解释。",
        "unclear": "可见注意力权重有作用，但权重最大的词并不比其他词重要多少：不要把这幅图当作解释。",
    },
}


# Removing each word computes everything again: at most so many tokens, and probabilities, are measured.
MAX_TOKENS, MAX_PROBABILITIES = 20_000, 50_000_000


def can_measure(translator: Translator, alignment: Alignment) -> bool:
    """Whether a translation is measured in reasonable time: with a PyTorch model, and not too long.

    Args:
        translator: the model
        alignment: of the translation
    """
    num_tokens = len(alignment.groups("source")) * (len(alignment.source) + len(alignment.target))
    is_short = num_tokens <= MAX_TOKENS and num_tokens * len(translator.target) <= MAX_PROBABILITIES
    return is_short and not isinstance(translator.model, InferenceEngine)


@torch.no_grad()
def measure_faithfulness(
    translator: Translator, source: str, target: str | Sequence[int] | None = None, *, num_draws: int = 8, seed: int = 0
) -> Faithfulness:
    """Measure how much a translation depends on where it looked; without `target`, that of the translator itself.

    The translation stays as it is (forced decoding); what changes is what the model would say next, in each place.
    """
    ids = _resolve_target(translator, source, target)
    seen = translator.align_token_ids([source], [ids])[0]  # says so if there is no attention
    text = [*translator.source.encode(translator.clean(source)), EOS_ID]
    said = _NextTokenProbabilities(translator, ids)
    before = said(text)
    generator = torch.Generator().manual_seed(seed)
    change = _output_changes(before, said([text] * num_draws, lambda normalize: PermutedWeights(normalize, generator)))
    permuted = OutputChange(*change.mean((0, 1)).tolist())
    uniform = OutputChange(*_output_changes(before, said(text, UniformWeights)).mean((0, 1)).tolist())
    without = _output_changes(before, said([_remove_tokens(text, group) for group in seen.groups("source")]))
    most, least, random = _changes_by_removal(seen, without)
    return Faithfulness(permuted, uniform, most, least, random, num_draws, len(ids) + 1)


class _NextTokenProbabilities:
    """What a translator's model says after each token of one translation, for other sources or other weights."""

    def __init__(self, translator: Translator, ids: Sequence[int]):
        self.model, self.device = translator.torch_model, translator.device
        self.target = torch.tensor([[BOS_ID, *ids]], device=self.device)
        cross = isinstance(self.model, Transformer)
        self.layer_pattern = "decoder.layers.*.cross_attn" if cross else "attention"

    def __call__(
        self, sources: Any, replacement: Callable[[Any], Any] | None = None
    ) -> Float[Tensor, "sources tokens words"]:
        """Probabilities of the next word; of many sources, some at a time."""
        rows: list[list[int]] = [sources] if sources and isinstance(sources[0], int) else sources
        longest = max([self.target.shape[1], *map(len, rows)])
        step, found = max(1, MAX_BATCH_TOKENS // longest), []
        with nullcontext() if replacement is None else replace_normalizers(self.model, replacement, self.layer_pattern):
            for start in range(0, len(rows), step):
                some, lengths = pad_rows(rows[start : start + step])
                target = self.target.expand(len(some), -1)
                logits = self.model(some.to(self.device), lengths.to(self.device), target)
                found.append(logits.float().softmax(-1))
        return torch.cat(found) if found else self.target.new_zeros(0, self.target.shape[1], 1).float()


def _resolve_target(translator: Translator, source: str, target: str | Sequence[int] | None) -> list[int]:
    if not source.strip():
        raise EmptyInputError("an empty text has no translation to be measured")
    if isinstance(target, str):
        return translator.target.encode(target)
    if target is not None:
        return list(target)
    return list(translator.search([source])[0][0].token_ids)


def _output_changes(
    before: Float[Tensor, "1 tokens words"], after: Float[Tensor, "sources tokens words"]
) -> Float[Tensor, "sources tokens 2"]:
    """For every token: the probability that moved, and whether the first choice is another."""
    moved = (after - before).abs().sum(-1) / 2
    return torch.stack([moved, (after.argmax(-1) != before.argmax(-1)).float()], -1).cpu()


def _remove_tokens(text: Sequence[int], group: Sequence[int]) -> list[int]:
    return [number for place, number in enumerate(text) if place not in group]


def _changes_by_removal(alignment: Alignment, changes: Float[Tensor, "words tokens 2"]) -> list[OutputChange]:
    """What taking out a word does: for each token that which it looked at most, that least, and any."""
    groups = alignment.groups("source")
    weights = alignment.weights.float().mean((0, 1))
    regard = torch.stack([weights[:, list(group)].sum(-1) for group in groups], -1)
    chosen: list[Int[Tensor, " tokens"]] = [regard.argmax(-1), regard.argmin(-1)]
    tokens = torch.arange(len(regard))
    picked = [changes[words, tokens] for words in chosen]
    return [OutputChange(*some.mean(0).tolist()) for some in (*picked, changes.flatten(0, 1))]
