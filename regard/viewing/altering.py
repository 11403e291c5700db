"""Run a model with other weights than its own, to see whether its weights matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Dropout, Normalizer
from regard.attention._call import usual
from regard.attention.normalizers.base import Normalize, takes
from regard.errors import UnsupportedError
from regard.viewing._choice import OURS, Choice, Layers, Sites


@contextmanager
def altered(
    model: nn.Module, change: Callable[[Normalize], Normalize], layers: Layers = None
) -> Iterator[None]:
    """Let every attention of ours in a model share out by `change(its normalizer)`; afterwards all is as before.

    >>> attention, x = Attention(), torch.randn(1, 3, 4)
    >>> with altered(attention, Uniform):
    ...     torch.testing.assert_close(attention(x, x, x).context, x.mean(1, keepdim=True).expand_as(x))
    """
    sites = Sites(model)
    choice = Choice(sites, layers, None)
    chosen = [m for m in sites.modules if isinstance(m, OURS) and choice.layer(sites.names[m])]
    if not chosen:
        raise UnsupportedError("there is no attention of regard's in this model to alter")
    before = [module.__dict__.get("normalize", sites) for module in chosen]
    # An attribute stands before a registered module of the same name, which stays registered where it is.
    for module in chosen:
        module.__dict__["normalize"] = _changed(module, change)
    try:
        yield
    finally:
        for module, held in zip(chosen, before, strict=True):
            if held is sites:  # a mark: there was no attribute
                del module.__dict__["normalize"]
            else:
                module.__dict__["normalize"] = held


def _changed(module: nn.Module, change: Callable[[Normalize], Normalize]) -> Normalize:
    old = module.normalize or usual(module.score)
    if not isinstance(old, Dropout):
        return change(old)  # type: ignore[arg-type]
    drop = Dropout(change(old.normalize), old.p)  # what drops goes outermost
    drop.training = old.training
    return drop


class Uniform(Normalizer):
    """Regard shared out evenly over the visible keys, whatever the scores.

        w_i = 1 / number of visible keys

    >>> Uniform()(torch.tensor([[5.0, 0.0, -torch.inf]])).tolist()
    [[0.5, 0.5, 0.0]]
    """

    def __init__(self, normalize: Normalize | None = None) -> None:
        super().__init__()
        self._takes = "logits" if normalize is None else takes(normalize)

    @property
    def takes(self) -> str:
        return self._takes

    def share(self, scores: Tensor) -> Tensor:
        return (scores > -torch.inf) / (scores > -torch.inf).sum(-1, keepdim=True).clamp(min=1)


class Permuted(Normalizer):
    """The weights of another normalizer, dealt out anew at random among the visible keys, for each query.

        w_i = normalize(s)_pi(i)          pi a permutation of the visible keys

    >>> weights = Permuted(softmax, torch.Generator().manual_seed(0))(torch.tensor([[5.0, 0.0, 1.0, -torch.inf]]))
    >>> weights.sort().values.equal(softmax(torch.tensor([[5.0, 0.0, 1.0, -torch.inf]])).sort().values)
    True
    """

    random = True
    positional = True

    def __init__(self, normalize: Normalize, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.normalize, self.generator = normalize, generator

    @property
    def takes(self) -> str:
        return takes(self.normalize)

    def forward(self, scores: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries keys"]:
        weights, hidden = self.normalize(scores), scores == -torch.inf
        drawn = torch.rand(scores.shape, generator=self.generator, device=_device(self.generator))
        # Both orders have the visible keys first, one as they stand, one at random.
        there = hidden.to(torch.uint8).sort(dim=-1, stable=True).indices
        dealt = drawn.to(scores.device).masked_fill(hidden, 2.0).sort(-1).indices
        return torch.zeros_like(weights).scatter(-1, there, weights.gather(-1, dealt))


def _device(generator: torch.Generator | None) -> torch.device:
    return torch.device("cpu") if generator is None else generator.device
