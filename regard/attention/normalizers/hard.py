"""Normalizers that look at one key, or roll dice before they look."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.normalizers.base import Normalizer, over_visible, show, where_visible, widen
from regard.attention.normalizers.checks import Number, check_positive, keep
from regard.attention.normalizers.soft import cooled


def one_hot(scores: Tensor) -> Tensor:
    """1 at the first largest score of each row, 0 elsewhere; no gradient passes."""
    best = scores.argmax(-1, keepdim=True)
    return torch.zeros_like(scores).scatter(-1, best, 1.0)


def gumbel_noise(scores: Tensor, generator: torch.Generator | None) -> Tensor:
    """-log(-log u), u uniform in (0, 1): always finite, so that a hidden key stays at -inf."""
    if generator is None:  # torch.rand(..., generator=None) does not compile with dynamic shapes
        uniform = torch.rand_like(scores)
    else:
        uniform = torch.rand(scores.shape, generator=generator, dtype=scores.dtype, device=scores.device)
    limits = torch.finfo(scores.dtype)
    return -torch.log(-torch.log(uniform.clamp(limits.tiny, 1 - limits.eps / 2)))


@over_visible
def hardmax(scores: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries keys"]:
    """Look at the best key only, the first if several are equally good. The gradient is 0.

        w_i = 1 if i = argmax_j s_j else 0

    >>> hardmax(torch.tensor([[1.0, 3.0, 3.0, -torch.inf]])).tolist()
    [[0.0, 1.0, 0.0, 0.0]]
    """
    return one_hot(scores)


class Sample(Normalizer):
    """Look at one key, drawn as softmax would share; in eval mode at the best one. The gradient is 0.

        w_i = 1 with probability softmax(s)_i

    Hard attention of Xu et al. (2015), arXiv 1502.03044. Train it with REINFORCE: `log_prob` of the choice
    carries a gradient to the scores, and `entropy` keeps the choice open. A generator must live on the
    scores' device, and torch.compile cannot trace one (the graph breaks; fullgraph=True refuses); without it
    everything compiles.

    >>> weights = Sample()(torch.tensor([[0.5, 1.0, -torch.inf]]))
    >>> weights.sum().item(), weights[0, 2].item()
    (1.0, 0.0)
    """

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.generator = generator

    @property
    def random(self) -> bool:
        return self.training

    def share(self, scores: Tensor) -> Tensor:
        # The key with the largest noisy score is a draw from softmax (the Gumbel-max trick).
        return one_hot(scores + gumbel_noise(scores, self.generator) if self.training else scores)

    def log_prob(
        self, scores: Float[Tensor, "*batch queries keys"], weights: Float[Tensor, "*batch queries keys"]
    ) -> Float[Tensor, "*batch queries"]:
        """The log-probability of the keys chosen in `weights`; 0 for a query that could look at nothing."""
        if scores.shape[-1] == 0:
            return scores.sum(-1)
        wide = widen(scores)
        log_probs = torch.log_softmax(show(wide), -1)
        chosen = log_probs.gather(-1, weights.argmax(-1, keepdim=True))
        return where_visible(chosen, wide.detach().amax(-1, keepdim=True)).squeeze(-1).to(scores.dtype)

    def entropy(self, scores: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries"]:
        """How open the choice is, -sum_i w_i log w_i with w = softmax(s); 0 where nothing can be looked
        at."""
        if scores.shape[-1] == 0:
            return scores.sum(-1)
        wide = widen(scores)
        log_probs = torch.log_softmax(show(wide), -1)
        # 0 log 0 = 0: a hidden key would make it 0 * -inf, and a row without keys counts for nothing.
        return -(log_probs.exp() * where_visible(log_probs, wide)).sum(-1).to(scores.dtype)


class Gumbel(Normalizer):
    """Softmax of noisy scores: a draw of one key, made soft so that gradients pass; no noise in eval mode.

        w = softmax((s + g) / temperature),    g_i = -log(-log u_i)

    Jang, Gu and Poole (2017), arXiv 1611.01144; Maddison, Mnih and Teh (2017), arXiv 1611.00712. The
    temperature is a positive number or tensor as in `Temperature`; for the generator see `Sample`.

    >>> Gumbel(temperature=0.5).eval()(torch.zeros(1, 4)).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """

    temperature: Tensor | Number

    def __init__(self, temperature: Tensor | Number = 1.0, generator: torch.Generator | None = None) -> None:
        super().__init__()
        check_positive("Gumbel", "temperature", temperature)
        keep(self, "temperature", temperature)
        self.generator = generator

    @property
    def random(self) -> bool:
        return self.training

    def share(self, scores: Tensor) -> Tensor:
        noisy = scores + gumbel_noise(scores, self.generator) if self.training else scores
        return torch.softmax(cooled(noisy, self.temperature), -1)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"
