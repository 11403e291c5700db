"""Replace the attention weights of a model, to test whether its output depends on them."""

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

__all__ = ["PermutedWeights", "UniformWeights", "replace_normalizers"]


@contextmanager
def replace_normalizers(
    model: nn.Module, change: Callable[[NormalizeFunction], NormalizeFunction], layers: LayerSelection = None
) -> Iterator[None]:
    """Replace the normalizers of all attention modules of regard in a model; they are restored at the end.

    Args:
        model: the model
        change: called with each normalizer, returns its replacement, such as `UniformWeights`
        layers: numbers, names or patterns of names; None: all

    Example:
        >>> attention, x = Attention(), torch.randn(1, 3, 4)
        >>> with replace_normalizers(attention, UniformWeights):
        ...     torch.testing.assert_close(attention(x, x, x).context, x.mean(1, keepdim=True).expand_as(x))
    """
    modules = AttentionModules(model)
    layer_filter = LayerHeadFilter(modules, layers, None)
    candidates = [module for module in modules.modules if isinstance(module, ATTENTION_TYPES)]
    selected = [module for module in candidates if layer_filter.includes_layer(modules.names[module])]
    if not selected:
        raise UnsupportedError("this model has no attention modules of regard")
    previous = [{"normalize": vars(module)["normalize"]} if "normalize" in vars(module) else {} for module in selected]
    # An instance attribute hides a registered module of the same name, which stays registered.
    for module in selected:
        module.__dict__["normalize"] = _build_replacement(module, change)
    try:
        yield
    finally:
        for module, attributes in zip(selected, previous, strict=True):
            del module.__dict__["normalize"]
            module.__dict__.update(attributes)


def _build_replacement(
    module: nn.Module, change: Callable[[NormalizeFunction], NormalizeFunction]
) -> NormalizeFunction:
    normalize = module.normalize or default_normalizer(module.score)
    if not isinstance(normalize, Dropout):
        return change(normalize)  # type: ignore[arg-type]
    dropout = Dropout(change(normalize.normalize), normalize.p)  # dropout stays outermost
    dropout.training = normalize.training
    return dropout


class UniformWeights(Normalizer):
    """Equal weights for all visible keys, whatever the scores.

        w_i = 1 / number of visible keys

    Args:
        normalize: the normalizer that it replaces; None: one that expects logits

    Shape:
        scores (*batch, queries, keys) -> (*batch, queries, keys)

    Example:
        >>> UniformWeights()(torch.tensor([[5.0, 0.0, -torch.inf]])).tolist()
        [[0.5, 0.5, 0.0]]
    """

    def __init__(self, normalize: NormalizeFunction | None = None) -> None:
        super().__init__()
        self._input_kind = "logits" if normalize is None else input_kind(normalize)

    @property
    def input_kind(self) -> str:
        return self._input_kind

    def extra_repr(self) -> str:
        return f"input_kind={self._input_kind}"

    def compute_weights(self, scores: Tensor) -> Tensor:
        return (scores > -torch.inf) / (scores > -torch.inf).sum(-1, keepdim=True).clamp(min=1)


class PermutedWeights(Normalizer):
    """The weights of another normalizer, randomly permuted among the visible keys of each query.

        w_i = normalize(s)_pi(i)          pi a permutation of the visible keys

    Args:
        normalize: the other normalizer
        generator: the source of randomness; None: the default generator

    Shape:
        scores (*batch, queries, keys) -> (*batch, queries, keys)

    Example:
        >>> scores = torch.tensor([[5.0, 0.0, 1.0, -torch.inf]])
        >>> weights = PermutedWeights(softmax, torch.Generator().manual_seed(0))(scores)
        >>> weights.sort().values.equal(softmax(scores).sort().values)
        True
    """

    is_random = True
    is_positional = True

    def __init__(self, normalize: NormalizeFunction, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.normalize, self.generator = normalize, generator

    def extra_repr(self) -> str:
        return getattr(self.normalize, "__name__", "")

    @property
    def input_kind(self) -> str:
        return input_kind(self.normalize)

    def forward(self, scores: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries keys"]:
        weights, hidden = self.normalize(scores), scores == -torch.inf
        device = torch.device("cpu") if self.generator is None else self.generator.device
        noise = torch.rand(scores.shape, generator=self.generator, device=device).to(scores.device)
        # Both orders begin with the visible keys, one in their order, one in a random order.
        ordered = hidden.to(torch.uint8).sort(dim=-1, stable=True).indices
        shuffled = noise.masked_fill(hidden, 2.0).sort(-1).indices
        return torch.zeros_like(weights).scatter(-1, ordered, weights.gather(-1, shuffled))
