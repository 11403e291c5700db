"""Losses of models that write token by token: cross entropy, REINFORCE for sampled attention, captions."""

from __future__ import annotations

from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import AttentionOutput
from regard.attention.module import ResettableModule
from regard.data.captions import CaptionBatch
from regard.data.pair_batches import PairBatch
from regard.models.captioner import doubly_stochastic_penalty
from regard.training import Loss
from regard.training.loss import linear_cross_entropy

__all__ = [
    "CaptionLoss", "HardCaptionLoss", "NextTokenLoss", "ReinforceLoss", "discounted_returns", "target_positions",
]  # fmt: skip

BASELINE_DECAY = 0.9  # of the moving average of the reward
BASELINE_POSITIONS = 64  # each target position has its own baseline; later positions share the last


class NextTokenLoss(ResettableModule):
    """The cross entropy of each next token, summed over a batch.

    Args:
        label_smoothing: share of the target probability that is spread over the vocabulary; in evaluation mode, the
            metric "nll" is without it

    Example:
        >>> NextTokenLoss(label_smoothing=0.1).label_smoothing
        0.1
    """

    def __init__(self, label_smoothing: float = 0.1):
        super().__init__()
        self.label_smoothing = label_smoothing

    def extra_repr(self) -> str:
        return f"label_smoothing={self.label_smoothing}"

    def forward(self, model: Any, batch: Any) -> Loss:
        """The loss of a batch.

        Args:
            model: a network with `forward_hidden` and `lm_head`
            batch: sources and targets
        """
        total, nll, _ = self._token_losses(model, self._forward_hidden(model, batch), batch)
        return Loss(total, batch.num_tokens, {"nll": float(nll.sum())})

    def _forward_hidden(self, model: Any, batch: Any) -> Tensor:
        """The hidden state of each token."""
        return model.forward_hidden(batch.source, batch.source_lengths, batch.target[:, :-1])

    def _token_losses(
        self, model: Any, hidden: Tensor, batch: PairBatch | CaptionBatch
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The smoothed loss, the negative log-likelihood of each token, and the positions of the tokens."""
        positions = target_positions(batch)
        rows, tokens = hidden.flatten(0, 1), batch.target[:, 1:].flatten()
        if len(positions) < len(tokens):
            rows, tokens = rows.index_select(0, positions), tokens.index_select(0, positions)
        output = model.lm_head
        total, nll = linear_cross_entropy(rows, output.weight, output.bias, tokens, self.label_smoothing)
        return total, nll, positions


class ReinforceLoss(NextTokenLoss):
    """Cross entropy, and REINFORCE (Williams 1992) for the choices of sampled attention.

    As in Xu et al. (2015), eq. 11 and 12, the choice at step t is worth what the tokens from t on gained by it:

        reward_t = sum_{u >= t} reward_discount^(u - t) log p(token_u)
        loss    += -(reward_t - baseline_t) log p(choice_t) - entropy_bonus H(choices at t)

    with a moving average of the reward as the baseline. Xu et al. reward each choice with the whole sentence
    (reward_discount 1 and u from the first token) and have one baseline; here later tokens count less and each
    position has its own average, which reduces the variance of the gradient.

    Args:
        label_smoothing: as in `NextTokenLoss`
        entropy_bonus: weight of the entropy of the choices
        reward_discount: weight of the next token's reward
    """

    baseline: Tensor

    def __init__(self, label_smoothing: float = 0.1, entropy_bonus: float = 0.01, reward_discount: float = 0.5):
        super().__init__(label_smoothing)
        self.entropy_bonus, self.reward_discount = entropy_bonus, reward_discount
        self.register_buffer("baseline", torch.zeros(BASELINE_POSITIONS))

    def _init_parameters(self) -> None:
        self.baseline.zero_()

    def forward(self, model: Any, batch: Any) -> Loss:
        """The loss of a batch; in evaluation mode, cross entropy only."""
        if not self.training:
            return super().forward(model, batch)
        hidden, attention = self._decode(model, batch)
        total, nll, positions = self._token_losses(model, hidden, batch)
        log_prob = torch.cat([cast(Tensor, step.log_prob) for step in attention], 1)
        entropy = torch.cat([cast(Tensor, step.entropy) for step in attention], 1)
        gain = nll.new_zeros(log_prob.numel()).index_copy(0, positions, -nll).view_as(log_prob)
        reward = discounted_returns(gain, self.reward_discount).flatten()[positions]
        steps = (positions % log_prob.shape[1]).clamp(max=BASELINE_POSITIONS - 1)
        advantage = reward - self._update_baseline(reward, steps)
        policy = -(advantage * log_prob.flatten()[positions]).sum()
        bonus = -self.entropy_bonus * entropy.flatten()[positions].sum()
        return Loss(total + policy + bonus, batch.num_tokens, {"nll": float(nll.sum())})

    def _decode(self, model: Any, batch: Any) -> tuple[Tensor, list[AttentionOutput]]:
        """The hidden state of each token, and the attention of each step."""
        return model.decode(batch.source, batch.source_lengths, batch.target[:, :-1])

    @torch.no_grad()
    def _update_baseline(
        self, reward: Float[Tensor, " tokens"], position: Int[Tensor, " tokens"]
    ) -> Float[Tensor, " tokens"]:
        """The expected reward of each token by the batches before; this batch counts for later ones only.

        A baseline that depends on the reward of the same batch would bias the gradient.
        """
        before = self.baseline
        count = torch.bincount(position, minlength=BASELINE_POSITIONS)
        mean = torch.zeros_like(before).index_add(0, position, reward.to(before.dtype)) / count.clamp(min=1)
        self.baseline = torch.where(count > 0, torch.lerp(before, mean, 1 - BASELINE_DECAY), before)
        return before[position]


class CaptionLoss(NextTokenLoss):
    """The cross entropy of each next word of a caption, with the doubly stochastic penalty of Xu et al. (2015), eq. 14.

        loss += doubly_stochastic_weight sum_cells (1 - sum_words weights)^2

    Args:
        label_smoothing: as in `NextTokenLoss`
        doubly_stochastic_weight: weight of the penalty
    """

    def __init__(self, label_smoothing: float = 0.0, doubly_stochastic_weight: float = 0.0):
        super().__init__(label_smoothing)
        self.doubly_stochastic_weight = doubly_stochastic_weight

    def forward(self, model: Any, batch: CaptionBatch) -> Loss:
        """The loss of a batch."""
        hidden, attention = model.decode(batch.images, batch.target[:, :-1], None)
        total, nll, _ = self._token_losses(model, hidden, batch)
        if self.doubly_stochastic_weight and self.training:
            words = torch.arange(hidden.shape[1], device=hidden.device) < batch.target_lengths[:, None] - 1
            total = total + self.doubly_stochastic_weight * doubly_stochastic_penalty(attention, words).sum()
        return Loss(total, batch.num_tokens, {"nll": float(nll.sum())})


class HardCaptionLoss(ReinforceLoss):
    """`ReinforceLoss` for captions, which begins with soft attention.

    During the first batches, all captions are decoded with the expected context, whose gradient trains the score;
    choices that are sampled before the score is trained seldom help.

    Args:
        label_smoothing, entropy_bonus, reward_discount: as in `ReinforceLoss`
        num_soft_batches: number of batches with the expected context only
        soft_fraction: fraction of the captions with the expected context afterwards
    """

    num_batches: Tensor

    def __init__(
        self,
        label_smoothing: float = 0.0,
        entropy_bonus: float = 0.01,
        reward_discount: float = 0.5,
        num_soft_batches: float = 0,
        soft_fraction: float = 0.5,
    ):
        super().__init__(label_smoothing, entropy_bonus, reward_discount)
        self.num_soft_batches, self.soft_fraction = num_soft_batches, soft_fraction
        self.register_buffer("num_batches", torch.zeros(()))  # of training

    def _init_parameters(self) -> None:
        super()._init_parameters()
        self.num_batches.zero_()

    def _forward_hidden(self, model: Any, batch: CaptionBatch) -> Tensor:
        return model.decode(batch.images, batch.target[:, :-1], None)[0]

    def _decode(self, model: Any, batch: CaptionBatch) -> tuple[Tensor, list[AttentionOutput]]:
        fraction = torch.where(self.num_batches < self.num_soft_batches, 1.0, self.soft_fraction)
        self.num_batches = self.num_batches + 1
        return model.decode(batch.images, batch.target[:, :-1], fraction)


def target_positions(batch: PairBatch | CaptionBatch) -> Int[Tensor, " tokens"]:
    """The positions of the tokens to predict in the flattened target, without padding.

    Args:
        batch: the targets and their lengths

    Returns:
        The indices of the tokens.
    """
    length = batch.target.shape[1] - 1
    real = torch.arange(length, device=batch.target.device) < (batch.target_lengths - 1)[:, None]
    return real.flatten().nonzero().squeeze(1)


def discounted_returns(gain: Float[Tensor, "batch tokens"], discount: float) -> Float[Tensor, "batch tokens"]:
    """The gain of each token and the discounted gains of the tokens after it.

    Args:
        gain: of each token
        discount: of the next token's gain

    Shape:
        - gain, returns: (batch, tokens)

    Returns:
        The sums.

    >>> discounted_returns(torch.tensor([[1.0, 1.0, 1.0]]), 0.5).tolist()
    [[1.75, 1.5, 1.0]]
    """
    after, columns = torch.zeros_like(gain[:, 0]), []
    for column in reversed(gain.unbind(1)):
        after = column + discount * after
        columns.append(after)
    return torch.stack(columns[::-1], 1)
