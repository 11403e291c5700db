"""What a translator is trained for: the next word, and for hard attention a look that helps to guess it."""

from __future__ import annotations

from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import AttentionOutput, Sample
from regard.data.captions import CaptionBatch
from regard.data.pair_batches import PairBatch
from regard.models import RNNSeq2Seq, Transformer
from regard.models.captioner import ShowAttendTell, doubly_stochastic_penalty
from regard.tasks.captioning.config import CaptioningConfig
from regard.training import Loss
from regard.training.loss import linear_cross_entropy

BASELINE_DECAY = 0.9  # how slowly the baseline follows the reward


BASELINE_POSITIONS = (
    64  # of words, from the first; each has a baseline of its own, and later words share the last
)


class NextTokenLoss(nn.Module):
    """The cross entropy of each next word, summed over a batch.

    Where attention is sampled, its choices are rewarded by REINFORCE (Williams 1992) as in Xu et al. (2015), eq.
    11 and 12: a choice at step t is worth what the words from t on gained by it,

        reward_t = sum_{u >= t} discount^(u - t) log p(word_u)
        loss    += -(reward_t - baseline) log p(choice_t) - entropy H(choices at t)

    with a moving average of the reward as the baseline. Xu et al. reward each choice with the whole sentence
    (discount 1 and u from the first word), and have one baseline; later words count less here, and each place of a
    sentence has its own average, which makes the gradient calmer.
    """

    baseline: Tensor

    def __init__(
        self,
        model: RNNSeq2Seq | Transformer | ShowAttendTell,
        label_smoothing: float = 0.1,
        entropy_bonus: float = 0.01,
        reward_discount: float = 0.5,
    ):
        super().__init__()
        self.model: Any = model
        self.label_smoothing, self.entropy_bonus, self.reward_discount = (
            label_smoothing,
            entropy_bonus,
            reward_discount,
        )
        self.sampled = any(isinstance(part, Sample) for part in model.modules())
        if self.sampled:
            self.register_buffer("baseline", torch.zeros(BASELINE_POSITIONS))

    def forward(self, batch: PairBatch) -> Loss:
        if self.sampled and self.training:
            return self._reinforce_loss(batch)
        hidden = self.model.forward_hidden(batch.source, batch.source_lengths, batch.target[:, :-1])
        total, plain, _ = self._token_losses(hidden, batch)
        return Loss(total, batch.num_tokens, {"nll": float(plain.sum())})

    def _decode(self, batch: Any) -> tuple[Tensor, list[AttentionOutput]]:
        """What is said after each word, and the looks before."""
        return self.model.decode(batch.source, batch.source_lengths, batch.target[:, :-1])

    def _token_losses(self, hidden: Tensor, batch: PairBatch | CaptionBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Smoothed loss, plain losses of the real words, and where these stand among all."""
        real = target_positions(batch)
        rows, words = hidden.flatten(0, 1), batch.target[:, 1:].flatten()
        if len(real) < len(words):
            rows, words = rows.index_select(0, real), words.index_select(0, real)
        output = self.model.lm_head
        total, plain = linear_cross_entropy(rows, output.weight, output.bias, words, self.label_smoothing)
        return total, plain, real

    def _reinforce_loss(self, batch: PairBatch | CaptionBatch) -> Loss:
        hidden, seen = self._decode(batch)
        total, plain, real = self._token_losses(hidden, batch)
        log_prob = torch.cat([cast(Tensor, look.log_prob) for look in seen], 1)
        openness = torch.cat([cast(Tensor, look.entropy) for look in seen], 1)
        gain = plain.new_zeros(log_prob.numel()).index_copy(0, real, -plain).view_as(log_prob)
        reward = discounted_returns(gain, self.reward_discount).flatten()[real]
        place = (real % log_prob.shape[1]).clamp(max=BASELINE_POSITIONS - 1)
        choice = -((reward - self._update_baseline(reward, place)) * log_prob.flatten()[real]).sum()
        open_ = -self.entropy_bonus * openness.flatten()[real].sum()
        return Loss(total + choice + open_, batch.num_tokens, {"nll": float(plain.sum())})

    @torch.no_grad()
    def _update_baseline(
        self, reward: Float[Tensor, " words"], position: Int[Tensor, " words"]
    ) -> Float[Tensor, " words"]:
        """What to expect of each word, going by the batches before; then this one counts for those to come.

        A baseline that knew this reward would take a part of it away.
        """
        before = self.baseline
        count = torch.bincount(position, minlength=BASELINE_POSITIONS)
        mean = torch.zeros_like(before).index_add(0, position, reward.to(before.dtype)) / count.clamp(min=1)
        self.baseline = torch.where(count > 0, torch.lerp(before, mean, 1 - BASELINE_DECAY), before)
        return before[position]


def target_positions(batch: PairBatch | CaptionBatch) -> Int[Tensor, " words"]:
    """Where the words to predict stand in the flattened target, without what fills it up."""
    length = batch.target.shape[1] - 1
    real = torch.arange(length, device=batch.target.device) < (batch.target_lengths - 1)[:, None]
    return real.flatten().nonzero().squeeze(1)


def discounted_returns(gain: Float[Tensor, "rows words"], discount: float) -> Float[Tensor, "rows words"]:
    """Each word's gain and that of the words after it, less and less.

    >>> discounted_returns(torch.tensor([[1.0, 1.0, 1.0]]), 0.5).tolist()
    [[1.75, 1.5, 1.0]]
    """
    after, columns = torch.zeros_like(gain[:, 0]), []
    for column in reversed(gain.unbind(1)):
        after = column + discount * after
        columns.append(after)
    return torch.stack(columns[::-1], 1)


class CaptionLoss(NextTokenLoss):
    """The cross entropy of each next word of a caption, and for soft attention the doubly stochastic penalty.

        loss += penalty sum_cells (1 - sum_words weights)^2

    Hard attention is rewarded as in `NextWord`. At first all captions see the expected look, which learns by the
    gradient where to look; who draws before that mostly draws in vain.
    """

    num_batches: Tensor

    def __init__(self, model: ShowAttendTell, config: CaptioningConfig):
        super().__init__(model, config.label_smoothing, config.entropy_bonus, config.reward_discount)
        self.doubly_stochastic_weight = (
            config.doubly_stochastic_weight if config.attention_scope == "soft" else 0.0
        )
        self.num_soft_batches = config.soft_warmup * config.steps * config.grad_accumulation  # batches
        self.soft_fraction = config.soft_fraction
        if self.sampled:
            self.register_buffer("num_batches", torch.zeros(()))  # batches of training

    def forward(self, batch: CaptionBatch) -> Loss:  # type: ignore[override]
        if self.sampled and self.training:
            return self._reinforce_loss(batch)
        hidden, seen = self._decode(batch)
        total, plain, _ = self._token_losses(hidden, batch)
        if self.doubly_stochastic_weight and self.training:
            words = torch.arange(hidden.shape[1], device=hidden.device) < batch.target_lengths[:, None] - 1
            total = total + self.doubly_stochastic_weight * doubly_stochastic_penalty(seen, words).sum()
        return Loss(total, batch.num_tokens, {"nll": float(plain.sum())})

    def _decode(self, batch: CaptionBatch) -> tuple[Tensor, list[AttentionOutput]]:
        share = None
        if self.sampled and self.training:
            share = torch.where(self.num_batches < self.num_soft_batches, 1.0, self.soft_fraction)
            self.num_batches = self.num_batches + 1
        return self.model.decode(batch.images, batch.target[:, :-1], share)
