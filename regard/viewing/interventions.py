"""Run a model with other weights than its own, to see whether its weights matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Dropout, Normalizer
from regard.attention.equation import default_normalizer
from regard.attention.normalizers.base import NormalizeFunction, input_kind
from regard.errors import UnsupportedError
from regard.viewing.watching import ATTENTION_TYPES, AttentionModules, LayerHeadFilter, LayerSelection


@contextmanager
def replace_normalizers(
    model: nn.Module, change: Callable[[NormalizeFunction], NormalizeFunction], layers: LayerSelection = None
) -> Iterator[None]:
    """Let every attention of ours in a model share out by `change(its normalizer)`; afterwards all is as before.

    >>> attention, x = Attention(), torch.randn(1, 3, 4)
    >>> with replace_normalizers(attention, UniformWeights):
    ...     torch.testing.assert_close(attention(x, x, x).context, x.mean(1, keepdim=True).expand_as(x))
    """
    sites = AttentionModules(model)
    choice = LayerHeadFilter(sites, layers, None)
    chosen = [
        m for m in sites.modules if isinstance(m, ATTENTION_TYPES) and choice.includes_layer(sites.names[m])
    ]
    if not chosen:
        raise UnsupportedError("there is no attention of regard's in this model to alter")
    before = [module.__dict__.get("normalize", sites) for module in chosen]
    # An attribute stands before a registered module of the same name, which stays registered where it is.
    for module in chosen:
        module.__dict__["normalize"] = _build_replacement(module, change)
    try:
        yield
    finally:
        for module, held in zip(chosen, before, strict=True):
            if held is sites:  # a mark: there was no attribute
                del module.__dict__["normalize"]
            else:
                module.__dict__["normalize"] = held


def _build_replacement(
    module: nn.Module, change: Callable[[NormalizeFunction], NormalizeFunction]
) -> NormalizeFunction:
    old = module.normalize or default_normalizer(module.score)
    if not isinstance(old, Dropout):
        return change(old)  # type: ignore[arg-type]
    drop = Dropout(change(old.normalize), old.p)  # what drops goes outermost
    drop.training = old.training
    return drop


class UniformWeights(Normalizer):
    """Regard shared out evenly over the visible keys, whatever the scores.

        w_i = 1 / number of visible keys

    >>> UniformWeights()(torch.tensor([[5.0, 0.0, -torch.inf]])).tolist()
    [[0.5, 0.5, 0.0]]
    """

    def __init__(self, normalize: NormalizeFunction | None = None) -> None:
        super().__init__()
        self._input_kind = "logits" if normalize is None else input_kind(normalize)

    @property
    def input_kind(self) -> str:
        return self._input_kind

    def compute_weights(self, scores: Tensor) -> Tensor:
        return (scores > -torch.inf) / (scores > -torch.inf).sum(-1, keepdim=True).clamp(min=1)


class PermutedWeights(Normalizer):
    """The weights of another normalizer, dealt out anew at random among the visible keys, for each query.

        w_i = normalize(s)_pi(i)          pi a permutation of the visible keys

    >>> weights = PermutedWeights(softmax, torch.Generator().manual_seed(0))(torch.tensor([[5.0, 0.0, 1.0, -torch.inf]]))
    >>> weights.sort().values.equal(softmax(torch.tensor([[5.0, 0.0, 1.0, -torch.inf]])).sort().values)
    True
    """

    is_random = True
    is_positional = True

    def __init__(self, normalize: NormalizeFunction, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.normalize, self.generator = normalize, generator

    @property
    def input_kind(self) -> str:
        return input_kind(self.normalize)

    def forward(self, scores: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries keys"]:
        weights, hidden = self.normalize(scores), scores == -torch.inf
        drawn = torch.rand(scores.shape, generator=self.generator, device=_generator_device(self.generator))
        # Both orders have the visible keys first, one as they stand, one at random.
        there = hidden.to(torch.uint8).sort(dim=-1, stable=True).indices
        dealt = drawn.to(scores.device).masked_fill(hidden, 2.0).sort(-1).indices
        return torch.zeros_like(weights).scatter(-1, there, weights.gather(-1, dealt))


def _generator_device(generator: torch.Generator | None) -> torch.device:
    return torch.device("cpu") if generator is None else generator.device
