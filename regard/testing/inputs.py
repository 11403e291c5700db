"""Small random inputs for the laws."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention import Dot, Mask, dense, padding, softmax

__all__ = ["SampleInputs", "build_with_small_sizes", "make_hiding_mask", "make_inputs"]

SMALL_SIZES: dict[str, Any] = {
    "embed_dim": 4,
    "query_dim": 4,
    "key_dim": 4,
    "hidden_dim": 5,
    "num_heads": 3,
    "max_keys": 64,
    "width": 2.0,
    "k": 2,
    "p": 0.5,
    "temperature": 0.7,
    "alpha": 1.5,
    "center": 1.0,
    "sigma": 1.5,
    "normalize": softmax,
    "score": Dot(),
}


def build_with_small_sizes(part: Any) -> Any:
    """Return the part itself, or an instance of a class with small values for its required arguments.

    Args:
        part: a score, normalizer or mask, or its class

    Example:
        >>> from regard.attention import Additive
        >>> build_with_small_sizes(Additive).query_proj.in_features
        4
    """
    if not isinstance(part, type):
        return part
    required = {
        name: SMALL_SIZES[name]
        for name, parameter in inspect.signature(part).parameters.items()
        if parameter.default is parameter.empty and name in SMALL_SIZES
    }
    try:
        return part(**required)
    except TypeError as error:
        raise TypeError(
            f"{part.__name__} could not be constructed ({error}); pass an instance instead of the class"
        ) from None


class SampleInputs(NamedTuple):
    """Queries, keys and values for the check of a law.

    Args:
        query: queries, (*batch, queries, query_dim)
        key: keys, (*batch, keys, key_dim)
        value: values, (*batch, keys, value_dim)
    """

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
        """The number of batch axes."""
        return self.query.dim() - 2

    def to(self, dtype: torch.dtype) -> SampleInputs:
        """The same values in another dtype."""
        return SampleInputs(*(tensor.to(dtype) for tensor in self))

    def requiring_grad(self) -> SampleInputs:
        """The same values as leaves that require gradients."""
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
    """Make normal random inputs, the same in every call; of two batch axes the second may be that of heads.

    Args:
        num_queries, num_keys: lengths
        batch_shape: the batch axes
        query_dim, key_dim, value_dim: sizes of the vectors
        dtype: the dtype of all three

    Example:
        >>> [tuple(tensor.shape) for tensor in make_inputs(batch_shape=(2,))]
        [(2, 5, 4), (2, 6, 4), (2, 6, 3)]
    """
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*batch_shape, *shape, generator=generator, dtype=torch.float64).to(dtype)

    return SampleInputs(normal(num_queries, query_dim), normal(num_keys, key_dim), normal(num_keys, value_dim))


def make_hiding_mask(num_queries: int, num_keys: int) -> Mask:
    """Make a mask that hides some keys of each query, all of the second one, and pads one batch entry.

    Args:
        num_queries, num_keys: lengths

    Example:
        >>> make_hiding_mask(3, 4).materialize(3, 4, 1)[0].sum(-1).tolist()
        [3, 0, 4]
    """
    generator = torch.Generator().manual_seed(1)
    visible = torch.rand(num_queries, num_keys, generator=generator) < 0.7
    visible[:, 0] = True
    visible[1] = False
    return dense(visible) & padding(torch.tensor([num_keys, max(num_keys - 2, 0)]))
