"""The laws of attention, each a function that raises LawViolation when a combination violates it.

They hold for every valid combination of score, normalizer and mask; the catalogue lists the exceptions of each
mechanism. ``check_score``, ``check_normalizer`` and ``check_mask`` run them on user-defined parts, and the tests of the
library on its own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError, gradcheck

from regard.attention import AttentionOutput, Dropout, Mask, attend

__all__ = [
    "AttentionUnderTest", "LawViolation", "SampleInputs", "batch_equals_loop", "context_equals_weighted_sum",
    "dtypes_agree", "empty_axes_are_handled", "gradients_are_correct", "hidden_keys_are_irrelevant",
    "hidden_keys_have_zero_weight", "key_order_is_irrelevant", "reading_weights_changes_nothing", "same_random_state",
]  # fmt: skip


TOLERANCE = 1e-9  # in float64


class LawViolation(AssertionError):
    """A score, normalizer or mask violates one of the laws."""


def require(condition: bool | Tensor, message: str) -> None:
    """Raise LawViolation with the message unless the condition holds."""
    if not condition:
        raise LawViolation(message)


def require_close(actual: Tensor, expected: Tensor, message: str, tolerance: float = TOLERANCE) -> None:
    """Raise LawViolation unless shapes are equal and values differ by at most the tolerance."""
    shapes = f"shapes {tuple(actual.shape)} and {tuple(expected.shape)}"
    require(actual.shape == expected.shape, f"{message}: {shapes} differ")
    off = float((actual.detach().double() - expected.detach().double()).abs().max()) if actual.numel() else 0.0
    require(off <= tolerance, f"{message}: off by {off:.3g}, allowed {tolerance:.3g}")


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

    def to(self, dtype: torch.dtype) -> SampleInputs:
        """The same values in another dtype."""
        return SampleInputs(*(tensor.to(dtype) for tensor in self))

    def requiring_grad(self) -> SampleInputs:
        """The same values as leaves that require gradients."""
        return SampleInputs(*(tensor.detach().clone().requires_grad_() for tensor in self))


class AttentionUnderTest(nn.Module):
    """Attention with copies of a score and a normalizer, for the check of a law.

    Args:
        score: the score, which is copied
        normalize: the normalizer, which is copied; that of the score by default
        dtype: the dtype of their parameters

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim), value (*batch, keys, value_dim) ->
    AttentionOutput

    Example:
        >>> from regard.testing.checks import make_inputs
        >>> AttentionUnderTest(Dot())(*make_inputs(), None).context.shape
        torch.Size([2, 3, 5, 3])
    """

    def __init__(self, score: Any, normalize: Any = None, dtype: torch.dtype = torch.float64):
        super().__init__()
        self.score, self.normalize = copy.deepcopy(score), copy.deepcopy(normalize)
        self.to(dtype)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | Tensor | None) -> AttentionOutput:
        return attend(query, key, value, mask, score=self.score, normalize=self.normalize)

    @property
    def is_random(self) -> bool:
        """Whether a call draws random numbers in the current mode."""
        return any(getattr(part, "is_random", False) for part in (self.score, self.normalize))

    @property
    def is_dropout_active(self) -> bool:
        return isinstance(self.normalize, Dropout) and self.normalize.training and self.normalize.p > 0

    @property
    def is_positional(self) -> bool:
        """Whether score or normalizer depend on the positions of the keys."""
        return any(getattr(part, "is_positional", False) for part in (self.score, self.normalize))


@contextmanager
def same_random_state() -> Iterator[None]:
    """Run the block from a fixed state of the random number generator, and restore the state afterwards."""
    before = torch.get_rng_state()
    torch.set_rng_state(torch.Generator().manual_seed(11).get_state())
    try:
        yield
    finally:
        torch.set_rng_state(before)


def materialize_mask(sample: SampleInputs, mask: Mask | None) -> Tensor:
    """Return the mask as a bool tensor.

    Args:
        sample: queries, keys and values
        mask: the mask; None: all keys are visible

    Shape:
        -> (queries, keys), possibly with batch axes before them

    Returns:
        True where a key is visible.
    """
    if mask is None:
        return torch.ones(sample.num_queries, sample.num_keys, dtype=torch.bool)
    return mask.materialize(sample.num_queries, sample.num_keys, sample.query.dim() - 2)


def hidden_keys_have_zero_weight(attention: AttentionUnderTest, sample: SampleInputs, mask: Mask | None) -> None:
    """1. Hidden keys have weight 0, queries without visible keys context 0; gradients are finite, and 0 there.

    Args:
        attention: the attention under test
        sample: queries, keys and values
        mask: the mask, or None

    Example:
        >>> from regard.testing.checks import make_hiding_mask, make_inputs
        >>> hidden_keys_have_zero_weight(AttentionUnderTest(Dot()), make_inputs(), make_hiding_mask(5, 6))
    """
    sample = sample.requiring_grad()
    with same_random_state():
        output = attention(*sample, mask)
        weights, scores = output.weights, output.scores
    require(output.context.isfinite().all(), "a context is not finite")
    require(weights.isfinite().all(), "a weight is not finite")
    visible = scores > -torch.inf
    require(not (visible & ~materialize_mask(sample, mask)).any(), "a hidden key has a score above -inf")
    require((weights[~visible] == 0).all(), "a hidden key has weight")
    blind_queries, hidden_keys = ~visible.any(-1), ~visible.any(-2)
    require((output.context[blind_queries] == 0).all(), "the context of a query without visible keys is not 0")
    for name, result in (("context", output.context), ("weights", weights)):
        gradients = _compute_gradients(result, [*sample, *attention.parameters()])
        require(all(g.isfinite().all() for g in gradients), f"a gradient of the {name} is not finite")
        query, key, value = gradients[:3]
        require((query[blind_queries] == 0).all(), f"a query without visible keys has a gradient by the {name}")
        is_zero = (key[hidden_keys] == 0).all() & (value[hidden_keys] == 0).all()
        require(is_zero, f"a key that is hidden from every query has a gradient by the {name}")


def _compute_gradients(result: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of a sum with fixed random factors (a plain sum of weights is 1, without a gradient)."""
    if not result.requires_grad:
        return [torch.zeros_like(tensor) for tensor in inputs]
    generator = torch.Generator().manual_seed(2)
    factors = torch.randn(result.shape, generator=generator, dtype=torch.float64).to(result.dtype)
    total = (result * factors).sum()
    gradients = torch.autograd.grad(total, inputs, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(tensor) if g is None else g for g, tensor in zip(gradients, inputs, strict=True)]


def reading_weights_changes_nothing(attention: AttentionUnderTest, sample: SampleInputs, mask: Mask | None) -> None:
    """2. Reading the weights does not change a bit of the context, with and without gradients.

    Args:
        attention: the attention under test
        sample: queries, keys and values
        mask: the mask, or None
    """
    for grad in (True, False):
        tensors = sample.requiring_grad() if grad else sample
        with torch.set_grad_enabled(grad):
            with same_random_state():
                unread = attention(*tensors, mask).context.detach().clone()
            with same_random_state():
                output = attention(*tensors, mask)
                before = output.context.detach().clone()
                _ = output.weights, output.scores
        require(torch.equal(before, output.context), "reading the weights changed the context")
        require(torch.equal(before, unread), "the same call gave a different context")
        require(torch.equal(output.weights, output.weights), "reading the weights twice gave different weights")


def key_order_is_irrelevant(attention: AttentionUnderTest, sample: SampleInputs, mask: Mask | None) -> None:
    """3. Permuting keys, values and mask permutes the weights and leaves the context.

    Args:
        attention: the attention under test
        sample: queries, keys and values
        mask: the mask, or None
    """
    visible = materialize_mask(sample, mask)
    output = attention(*sample, visible)
    order = torch.randperm(sample.num_keys, generator=torch.Generator().manual_seed(3))
    other = attention(sample.query, sample.key[..., order, :], sample.value[..., order, :], visible[..., order])
    require_close(other.weights, output.weights[..., order], "permuting keys does not permute the weights")
    require_close(other.context, output.context, "permuting keys changes the context")


def hidden_keys_are_irrelevant(attention: AttentionUnderTest, sample: SampleInputs, mask: Mask | None) -> None:
    """3. Additional hidden keys change nothing.

    Args:
        attention: the attention under test
        sample: queries, keys and values
        mask: the mask, or None
    """
    visible = materialize_mask(sample, mask)
    output = attention(*sample, visible)
    key, value = (torch.cat([t, torch.full_like(t[..., :2, :], 7.0)], -2) for t in (sample.key, sample.value))
    more = torch.cat([visible, torch.zeros_like(visible[..., :1]).expand(*visible.shape[:-1], 2)], -1)
    longer = attention(sample.query, key, value, more)
    require_close(longer.weights[..., : sample.num_keys], output.weights, "additional hidden keys change the weights")
    require_close(longer.context, output.context, "additional hidden keys change the context")


def batch_equals_loop(attention: AttentionUnderTest, sample: SampleInputs, mask: Mask | None) -> None:
    """4. Batch axes are equivalent to a loop over them.

    Args:
        attention: the attention under test
        sample: queries, keys and values
        mask: the mask, or None
    """
    output = attention(*sample, mask)
    visible = materialize_mask(sample, mask).expand(*sample.query.shape[:-2], sample.num_queries, sample.num_keys)
    for index, (query, key, value) in enumerate(zip(*sample, strict=True)):
        entry = attention(query, key, value, None if mask is None else visible[index])
        require_close(entry.weights, output.weights[index], "a batch is not a loop over its entries")
        require_close(entry.context, output.context[index], "a batch is not a loop over its entries")


def dtypes_agree(attention: AttentionUnderTest, sample: SampleInputs, mask: Mask | None) -> None:
    """4. float32 and bfloat16 agree with float64 to their precision, and return their own dtype.

    Args:
        attention: the attention under test
        sample: queries, keys and values
        mask: the mask, or None
    """
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 0.05)):
        tensors = sample.to(dtype)  # rounded first, so that only the computation is compared
        other = copy.deepcopy(attention).to(dtype)
        output, exact = other(*tensors, mask), copy.deepcopy(other).double()(*tensors.to(torch.float64), mask)
        for name in ("context", "weights"):
            actual, expected = getattr(output, name), getattr(exact, name)
            require(actual.dtype == dtype, f"the {name} of {dtype} have dtype {actual.dtype}")
            largest = max(1.0, float(expected.detach().abs().max())) if expected.numel() else 1.0
            require_close(actual, expected, f"the {name} of {dtype} disagree with float64", tolerance * largest)


def context_equals_weighted_sum(attention: AttentionUnderTest, sample: SampleInputs, mask: Mask | None) -> None:
    """5. The context is weights @ value on every path, and so are its gradients.

    Args:
        attention: the attention under test
        sample: queries, keys and values
        mask: the mask, or None
    """
    sample = sample.requiring_grad()
    with same_random_state():
        output = attention(*sample, mask)
    defined = output.weights @ sample.value
    require_close(output.context, defined, "the context is not weights @ value")
    inputs = [*sample, *attention.parameters()]
    gradients = (_compute_gradients(result, inputs) for result in (output.context, defined))
    for actual, expected in zip(*gradients, strict=True):
        require_close(actual, expected, "the gradient of the context is not that of weights @ value", 10 * TOLERANCE)


def gradients_are_correct(attention: AttentionUnderTest, sample: SampleInputs, mask: Mask | None) -> None:
    """5. Gradients pass gradcheck in float64: of context and weights by query, key, value and parameters.

    Args:
        attention: the attention under test
        sample: queries, keys and values
        mask: the mask, or None
    """
    sample = sample.requiring_grad()

    def output(*_: Tensor) -> tuple[Tensor, Tensor]:
        result = attention(*sample, mask)
        return result.context, result.weights

    try:
        gradcheck(output, (*sample, *attention.parameters()))
    except GradcheckError as error:
        line = next(line for line in str(error).splitlines() if line.strip())
        raise LawViolation(f"gradcheck fails: {line}") from None


def empty_axes_are_handled(attention: AttentionUnderTest, sample: SampleInputs) -> None:
    """Without keys the weights are empty and the context is 0; without queries the context is empty.

    Args:
        attention: the attention under test
        sample: queries, keys and values
    """
    output = attention(sample.query, sample.key[..., :0, :], sample.value[..., :0, :], None)
    require(output.weights.shape[-1] == 0, "without keys there are weights")
    require((output.context == 0).all(), "the context without keys is not 0")
    none = attention(sample.query[..., :0, :], sample.key, sample.value, None)
    require(none.context.shape[-2] == none.weights.shape[-2] == 0, "the context without queries is not empty")
