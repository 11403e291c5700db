"""What a translator is trained for: the next word, and for hard attention a look that helps to guess it."""

from __future__ import annotations

from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attended, Sample
from regard.data.batch import Batch
from regard.data.captions import CaptionBatch
from regard.models import Recurrent, Transformer
from regard.models.captioner import ShowAttendTell
from regard.training import Loss, fill
from regard.training.losses import word_loss

MOVING = 0.9  # how slowly the baseline follows the reward
PLACES = 64  # of words, from the first; each has a baseline of its own, and later words share the last


class NextWord(nn.Module):
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
        model: Recurrent | Transformer | ShowAttendTell,
        smoothing: float = 0.1,
        entropy: float = 0.01,
        discount: float = 0.5,
    ):
        super().__init__()
        self.model: Any = model
        self.smoothing, self.entropy, self.discount = smoothing, entropy, discount
        self.loops = not isinstance(model, Transformer)
        self.sampled = any(isinstance(part, Sample) for part in model.modules())
        if self.sampled:
            self.register_buffer("baseline", torch.zeros(PLACES))

    def take(self, weights: dict[str, Tensor], where: str) -> None:
        """Begin with the weights of another run; what it counted, such as its baseline, is no weight."""
        for name in [name for name in weights if not name.startswith("model.")]:
            del weights[name]
        weights.update(self.named_buffers(recurse=False))
        fill(self, weights, where)

    def forward(self, batch: Batch) -> Loss:
        if self.sampled and self.training:
            return self._rewarded(batch)
        hidden = self.model(batch.source, batch.source_lengths, batch.target[:, :-1])
        total, plain, _ = self._words(hidden, batch)
        return Loss(total, batch.tokens, {"nll": float(plain.sum())})

    def _decoded(self, batch: Any) -> tuple[Tensor, list[Attended]]:
        """What is said after each word, and the looks before."""
        return self.model.decode(batch.source, batch.source_lengths, batch.target[:, :-1])

    def _words(self, hidden: Tensor, batch: Batch | CaptionBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Smoothed loss, plain losses of the real words, and where these stand among all."""
        real = places(batch)
        rows, words = hidden.flatten(0, 1), batch.target[:, 1:].flatten()
        if len(real) < len(words):
            rows, words = rows.index_select(0, real), words.index_select(0, real)
        output = self.model.output
        total, plain = word_loss(rows, output.weight, output.bias, words, self.smoothing)
        return total, plain, real

    def _rewarded(self, batch: Batch | CaptionBatch) -> Loss:
        hidden, seen = self._decoded(batch)
        total, plain, real = self._words(hidden, batch)
        log_prob = torch.cat([cast(Tensor, look.log_prob) for look in seen], 1)
        openness = torch.cat([cast(Tensor, look.entropy) for look in seen], 1)
        gain = plain.new_zeros(log_prob.numel()).index_copy(0, real, -plain).view_as(log_prob)
        reward = to_come(gain, self.discount).flatten()[real]
        place = (real % log_prob.shape[1]).clamp(max=PLACES - 1)
        choice = -((reward - self._usual(reward, place)) * log_prob.flatten()[real]).sum()
        open_ = -self.entropy * openness.flatten()[real].sum()
        return Loss(total + choice + open_, batch.tokens, {"nll": float(plain.sum())})

    @torch.no_grad()
    def _usual(
        self, reward: Float[Tensor, " words"], place: Int[Tensor, " words"]
    ) -> Float[Tensor, " words"]:
        """What to expect of each word, going by the batches before; then this one counts for those to come.

        A baseline that knew this reward would take a part of it away.
        """
        before = self.baseline
        count = torch.bincount(place, minlength=PLACES)
        mean = torch.zeros_like(before).index_add(0, place, reward.to(before.dtype)) / count.clamp(min=1)
        self.baseline = torch.where(count > 0, torch.lerp(before, mean, 1 - MOVING), before)
        return before[place]


def places(batch: Batch | CaptionBatch) -> Int[Tensor, " words"]:
    """Where the words to predict stand in the flattened target, without what fills it up."""
    length = batch.target.shape[1] - 1
    real = torch.arange(length, device=batch.target.device) < (batch.target_lengths - 1)[:, None]
    return real.flatten().nonzero().squeeze(1)


def to_come(gain: Float[Tensor, "rows words"], discount: float) -> Float[Tensor, "rows words"]:
    """Each word's gain and that of the words after it, less and less.

    >>> to_come(torch.tensor([[1.0, 1.0, 1.0]]), 0.5).tolist()
    [[1.75, 1.5, 1.0]]
    """
    after, columns = torch.zeros_like(gain[:, 0]), []
    for column in reversed(gain.unbind(1)):
        after = column + discount * after
        columns.append(after)
    return torch.stack(columns[::-1], 1)
