"""Small random worlds that the laws are tried in."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention import Dot, Mask, dense, padding, softmax

SIZES: dict[str, Any] = {
    "dim": 4,
    "query_dim": 4,
    "key_dim": 4,
    "hidden_dim": 5,
    "heads": 3,
    "max_keys": 64,
    "width": 2.0,
    "k": 2,
    "p": 0.5,
    "t": 0.7,
    "alpha": 1.5,
    "centre": 1.0,
    "sigma": 1.5,
    "normalize": softmax,
    "score": Dot(),
}


def built(part: Any) -> Any:
    """A part as it is; a class made with small values for the arguments that it must be given."""
    if not isinstance(part, type):
        return part
    needed = {
        word: SIZES[word]
        for word, parameter in inspect.signature(part).parameters.items()
        if parameter.default is parameter.empty and word in SIZES
    }
    try:
        return part(**needed)
    except TypeError as error:
        raise TypeError(
            f"{part.__name__} could not be made ({error}); give an object, not the class"
        ) from None


class World(NamedTuple):
    """Queries, keys and values to try a law on."""

    query: Tensor
    key: Tensor
    value: Tensor

    @property
    def queries(self) -> int:
        return self.query.shape[-2]

    @property
    def keys(self) -> int:
        return self.key.shape[-2]

    @property
    def batch(self) -> int:
        """How many batch axes there are."""
        return self.query.dim() - 2

    def to(self, dtype: torch.dtype) -> World:
        return World(*(tensor.to(dtype) for tensor in self))

    def tracked(self) -> World:
        """The same numbers as leaves that want gradients."""
        return World(*(tensor.detach().clone().requires_grad_() for tensor in self))


def world(
    queries: int = 5,
    keys: int = 6,
    batch: tuple[int, ...] = (2, 3),
    query_dim: int = 4,
    key_dim: int = 4,
    value_dim: int = 3,
    dtype: torch.dtype = torch.float64,
) -> World:
    """Normal numbers, always the same; of the two batch axes the second may stand for heads."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*batch, *shape, generator=generator, dtype=torch.float64).to(dtype)

    return World(normal(queries, query_dim), normal(keys, key_dim), normal(keys, value_dim))


def blinding(queries: int, keys: int) -> Mask:
    """Hides some keys from each query, every key from the second one, and the end of a padded batch entry."""
    generator = torch.Generator().manual_seed(1)
    seen = torch.rand(queries, keys, generator=generator) < 0.7
    seen[:, 0] = True
    seen[1] = False
    return dense(seen) & padding(torch.tensor([keys, max(keys - 2, 0)]))
