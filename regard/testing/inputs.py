"""Small random worlds that the laws are tried in."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention import Dot, Mask, dense, padding, softmax

SMALL_SIZES: dict[str, Any] = {
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


def build_with_small_sizes(part: Any) -> Any:
    """A part as it is; a class made with small values for the arguments that it must be given."""
    if not isinstance(part, type):
        return part
    needed = {
        word: SMALL_SIZES[word]
        for word, parameter in inspect.signature(part).parameters.items()
        if parameter.default is parameter.empty and word in SMALL_SIZES
    }
    try:
        return part(**needed)
    except TypeError as error:
        raise TypeError(
            f"{part.__name__} could not be made ({error}); give an object, not the class"
        ) from None


class SampleInputs(NamedTuple):
    """Queries, keys and values to try a law on."""

    query: Tensor
    key: Tensor
    value: Tensor

    @property
    def num_queries(self) -> int:
        return self.query.shape[-2]

    @property
    def num_keys(self) -> int:
        return self.key.shape[-2]

    @property
    def num_batch_axes(self) -> int:
        """How many batch axes there are."""
        return self.query.dim() - 2

    def to(self, dtype: torch.dtype) -> SampleInputs:
        return SampleInputs(*(tensor.to(dtype) for tensor in self))

    def requiring_grad(self) -> SampleInputs:
        """The same numbers as leaves that want gradients."""
        return SampleInputs(*(tensor.detach().clone().requires_grad_() for tensor in self))


def make_inputs(
    num_queries: int = 5,
    num_keys: int = 6,
    batch_shape: tuple[int, ...] = (2, 3),
    query_dim: int = 4,
    key_dim: int = 4,
    value_dim: int = 3,
    dtype: torch.dtype = torch.float64,
) -> SampleInputs:
    """Normal numbers, always the same; of the two batch axes the second may stand for heads."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*batch_shape, *shape, generator=generator, dtype=torch.float64).to(dtype)

    return SampleInputs(
        normal(num_queries, query_dim), normal(num_keys, key_dim), normal(num_keys, value_dim)
    )


def make_hiding_mask(num_queries: int, num_keys: int) -> Mask:
    """Hides some keys from each query, every key from the second one, and the end of a padded batch entry."""
    generator = torch.Generator().manual_seed(1)
    seen = torch.rand(num_queries, num_keys, generator=generator) < 0.7
    seen[:, 0] = True
    seen[1] = False
    return dense(seen) & padding(torch.tensor([num_keys, max(num_keys - 2, 0)]))
