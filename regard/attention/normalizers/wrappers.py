"""Normalizers around another normalizer."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from regard.attention.normalizers.base import (
    NormalizeFunction,
    Normalizer,
    Number,
    check_positive,
    input_kind,
    is_random,
    require_callable,
    store_setting,
    upcast_half,
)
from regard.attention.normalizers.basic import Sample, first_argmax_one_hot, hardmax, softmax
from regard.errors import ShapeError, UsageError


class NormalizerWrapper(Normalizer):
    """A normalizer that does something to the weights of the one inside, `normalize`, which keeps the law."""

    normalize: NormalizeFunction

    def __init__(self, normalize: NormalizeFunction) -> None:
        super().__init__()
        name = type(self).__name__
        require_callable(name, normalize)
        if isinstance(normalize, Dropout):
            raise UsageError(
                f"{name} cannot wrap a Dropout, which goes outermost: write Dropout({name}(...), p)"
            )
        self.normalize = normalize

    @property
    def input_kind(self) -> str:
        return input_kind(self.normalize)

    @property
    def is_random(self) -> bool:
        return is_random(self.normalize)

    @property
    def is_positional(self) -> bool:
        """Whether permuting keys does more than permute weights."""
        return getattr(self.normalize, "is_positional", False)

    def extra_repr(self) -> str:
        return "" if isinstance(self.normalize, torch.nn.Module) else getattr(self.normalize, "__name__", "")


class Dropout(NormalizerWrapper):
    """Forget some of the weights in training, and make up for them with the others.

        w_i = normalize(s)_i / (1 - p) with probability 1 - p, else 0

    Srivastava et al. (2014); on attention weights Vaswani et al. (2017), arXiv 1706.03762. `attend` shows the
    weights of `.normalize` and uses those that `.drop` returns.

    >>> Dropout(softmax, p=0.5).eval()(torch.zeros(1, 4)).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """

    def __init__(self, normalize: NormalizeFunction, p: Number) -> None:
        super().__init__(normalize)
        if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 <= p <= 1:
            raise UsageError(f"Dropout: p must be a probability from 0 to 1, not {p!r}")
        self.p = float(p)

    @property
    def is_random(self) -> bool:
        return (self.training and self.p > 0) or is_random(self.normalize)

    def forward(self, scores: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries keys"]:
        return self.drop_weights(self.normalize(scores))

    def drop_weights(
        self, weights: Float[Tensor, "*batch queries keys"]
    ) -> Float[Tensor, "*batch queries keys"]:
        """The weights after dropping; in eval mode the weights."""
        if not self.training or self.p == 0:
            return weights
        # rand and a comparison cost a third of bernoulli_ on a CPU; bfloat16 would round the probability.
        kept = torch.rand(weights.shape, device=weights.device, dtype=torch.float32) >= self.p
        return weights * kept * (1 / (1 - self.p) if self.p < 1 else 0.0)

    def extra_repr(self) -> str:
        return ", ".join(filter(None, [super().extra_repr(), f"p={self.p}"]))


class StraightThrough(NormalizerWrapper):
    """Look at one key, but learn as if the regard had been shared softly.

        forward  w = one-hot of argmax_i normalize(s)_i, the first on ties
        backward the gradient of normalize(s)

    Around `hardmax` or `Sample` the forward is their choice and the gradient that of softmax; around `Sample`
    there are also its `log_prob` and `entropy`. Around `Gumbel` this is the straight-through estimator of
    Jang, Gu and Poole (2017), arXiv 1611.01144; the idea is of Bengio, Léonard and Courville (2013), arXiv
    1308.3432.

    >>> scores = torch.tensor([[0.0, 1.0, -torch.inf]], requires_grad=True)
    >>> weights = StraightThrough(softmax)(scores)
    >>> weights.tolist(), torch.autograd.grad(weights[0, 1], scores)[0].abs().sum().item() > 0
    ([[0.0, 1.0, 0.0]], True)
    """

    def __init__(self, normalize: NormalizeFunction) -> None:
        super().__init__(normalize)
        if isinstance(normalize, Sample):
            self.log_prob = normalize.log_prob
            self.entropy = normalize.entropy

    def forward(self, scores: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries keys"]:
        if scores.shape[-1] == 0:
            return scores
        wide = upcast_half(scores)
        if self.normalize is hardmax or isinstance(self.normalize, Sample):
            hard, soft = self.normalize(wide), softmax(wide)
        else:
            soft = self.normalize(wide)
            hard = first_argmax_one_hot(soft) * (soft.amax(-1, keepdim=True) > 0)
        # The bracket is exactly 0, so the answer is exactly one-hot.
        return (hard.detach() + (soft - soft.detach())).to(scores.dtype)


class GaussianWindow(NormalizerWrapper):
    """Look mostly near a point: weights times a bell around it, not normalized again.

        w_i = normalize(s)_i exp(-(i - centre)^2 / (2 sigma^2))

    Local attention with predicted alignment ("local-p"), Luong, Pham and Manning (2015), arXiv 1508.04025,
    eq. 10. `centre` and `sigma` are numbers or tensors (*batch, queries); the batch axes are the leading ones
    of the scores, so with heads (batch, queries) means the same centre for each head.

    >>> GaussianWindow(softmax, center=torch.tensor([0.0]), sigma=1.0)(torch.zeros(1, 2))
    tensor([[0.5000, 0.3033]])
    """

    is_positional = True
    center: Tensor | Number
    sigma: Tensor | Number
    key_positions: Tensor | None

    def __init__(self, normalize: NormalizeFunction, center: Tensor | Number, sigma: Tensor | Number) -> None:
        super().__init__(normalize)
        check_positive("Bell", "sigma", sigma)
        store_setting(self, "center", center)
        store_setting(self, "sigma", sigma)
        self.key_positions = None

    @property
    def sampler(self) -> NormalizeFunction:
        """Under a bell, the choice of a key is that of the normalizer inside."""
        return self.normalize

    def with_key_positions(self, key_positions: Shaped[Tensor, "..."]) -> "GaussianWindow":
        """A bell like this for keys at `positions`, broadcastable to (*batch, queries, keys), not 0 ..
        n-1."""
        bell = GaussianWindow(self.normalize, self.center, self.sigma)
        bell.training = self.training  # not train(), which would also switch what is inside
        bell.key_positions = key_positions
        return bell

    def forward(self, scores: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries keys"]:
        wide = upcast_half(scores)
        places = self.key_positions
        if places is None:
            places = torch.arange(scores.shape[-1], device=scores.device)
        distance = places.to(wide.dtype) - _align_batch_axes("centre", self.center, wide)
        bell = torch.exp(-0.5 * (distance / _align_batch_axes("sigma", self.sigma, wide)) ** 2)
        return (self.normalize(wide) * bell).to(scores.dtype)


def _align_batch_axes(name: str, value: Tensor | Number, scores: Tensor) -> Tensor | Number:
    """(*batch, queries) -> (*batch, 1 ..., queries, 1): the batch axes meet the leading ones of the
    scores."""
    if not isinstance(value, Tensor) or value.ndim == 0:
        return value
    missing = scores.ndim - 1 - value.ndim
    if missing < 0:
        shape, given = tuple(scores.shape), tuple(value.shape)
        raise ShapeError(f"Bell: {name} must have axes (*batch, queries) of the scores {shape}, not {given}")
    return value.reshape(*value.shape[:-1], *[1] * missing, value.shape[-1], 1).to(scores.dtype)
