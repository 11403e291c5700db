"""The laws of the equation, each a function that raises one sentence when a combination breaks it.

They hold for every score x normalizer x mask that makes sense; the catalogue says of each part which of them
it does not promise. They are what ``check_score``, ``check_normalizer`` and ``check_mask`` run on a part
from outside, and what the tests of the library run on every part inside.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError, gradcheck

from regard.attention import AttentionOutput, Dropout, Mask, attend
from regard.testing.inputs import SampleInputs


class LawViolation(AssertionError):
    """A part does not keep one of the laws."""


def require(condition: bool | Tensor, message: str) -> None:
    if not condition:
        raise LawViolation(message)


def require_close(actual: Tensor, expected: Tensor, message: str, tolerance: float) -> None:
    require(
        actual.shape == expected.shape,
        f"{message}: shapes {tuple(actual.shape)} and {tuple(expected.shape)} differ",
    )
    off = (
        float((actual.detach().double() - expected.detach().double()).abs().max()) if actual.numel() else 0.0
    )
    require(off <= tolerance, f"{message}: off by {off:.3g}, allowed {tolerance:.3g}")


class AttentionUnderTest:
    """The equation with a score and a normalizer filled in: what a law is tried on.

    ``look(query, key, value, mask)`` is a call of the equation; the parts are copies, so that whoever gave
    them finds them as they were.
    """

    def __init__(self, score: Any, normalize: Any = None, dtype: torch.dtype = torch.float64):
        self.score, self.normalize = copy.deepcopy(score), copy.deepcopy(normalize)
        self.modules = [part for part in (self.score, self.normalize) if isinstance(part, nn.Module)]
        for module in self.modules:
            module.to(dtype)

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | Tensor | None
    ) -> AttentionOutput:
        return attend(query, key, value, mask, score=self.score, normalize=self.normalize)

    def to(self, dtype: torch.dtype) -> AttentionUnderTest:
        return AttentionUnderTest(self.score, self.normalize, dtype)

    def train(self, mode: bool) -> AttentionUnderTest:
        for module in self.modules:
            module.train(mode)
        return self

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [parameter for module in self.modules for parameter in module.parameters()]

    @property
    def is_random(self) -> bool:
        """Whether a call draws random numbers now."""
        parts = (self.score, self.normalize)
        return any(getattr(part, "is_random", False) for part in parts)

    @property
    def is_dropout_active(self) -> bool:
        return isinstance(self.normalize, Dropout) and self.normalize.training and self.normalize.p > 0

    @property
    def is_positional(self) -> bool:
        """Whether score or normalizer go by the place of a key."""
        return any(getattr(part, "is_positional", False) for part in (self.score, self.normalize))


@contextmanager
def same_random_state() -> Iterator[None]:
    """Whatever is drawn inside is drawn from the same state of the generator."""
    before = torch.get_rng_state()
    torch.set_rng_state(torch.Generator().manual_seed(11).get_state())
    try:
        yield
    finally:
        torch.set_rng_state(before)


def materialize_mask(sample: SampleInputs, mask: Mask | None) -> Tensor:
    """The mask written out, (queries, keys) or with batch axes before them."""
    if mask is None:
        return torch.ones(sample.num_queries, sample.num_keys, dtype=torch.bool)
    return mask.materialize(sample.num_queries, sample.num_keys, sample.num_batch_axes)


def hidden_keys_have_zero_weight(
    attention: AttentionUnderTest, sample: SampleInputs, mask: Mask | None
) -> None:
    """1. A hidden key weighs exactly 0; who may look at nothing sees 0, with finite, zero gradients."""
    sample = sample.requiring_grad()
    with same_random_state():
        seen = attention(*sample, mask)
        weights, scores = seen.weights, seen.scores
    require(seen.context.isfinite().all(), "a context is not finite")
    require(weights.isfinite().all(), "a weight is not finite")
    visible = scores > -torch.inf
    require(not (visible & ~materialize_mask(sample, mask)).any(), "a hidden key has a score above -inf")
    require((weights[~visible] == 0).all(), "a hidden key has weight")
    blind, unseen = ~visible.any(-1), ~visible.any(-2)
    require((seen.context[blind] == 0).all(), "a query that may look at nothing does not see 0")
    for what, result in (("context", seen.context), ("weights", weights)):
        gradients = _compute_gradients(result, [*sample, *attention.parameters])
        require(all(g.isfinite().all() for g in gradients), f"a gradient of the {what} is not finite")
        query, key, value = gradients[:3]
        require((query[blind] == 0).all(), f"a query that may look at nothing has a gradient by the {what}")
        nothing = (key[unseen] == 0).all() & (value[unseen] == 0).all()
        require(nothing, f"a key that nobody may look at has a gradient by the {what}")


def _compute_gradients(result: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of a sum with fixed random factors (a plain sum of weights is 1, without a gradient)."""
    if not result.requires_grad:
        return [torch.zeros_like(tensor) for tensor in inputs]
    generator = torch.Generator().manual_seed(2)
    factors = torch.randn(result.shape, generator=generator, dtype=torch.float64).to(result.dtype)
    total = (result * factors).sum()
    found = torch.autograd.grad(total, inputs, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(tensor) if g is None else g for g, tensor in zip(found, inputs, strict=True)]


def reading_weights_changes_nothing(
    attention: AttentionUnderTest, sample: SampleInputs, mask: Mask | None
) -> None:
    """2. Reading the weights leaves the context bit for bit as it was, with gradients or without."""
    for grad in (True, False):
        given = sample.requiring_grad() if grad else sample
        with torch.set_grad_enabled(grad):
            with same_random_state():
                unread = attention(*given, mask).context.detach().clone()
            with same_random_state():
                seen = attention(*given, mask)
                before = seen.context.detach().clone()
                _ = seen.weights, seen.scores
        require(torch.equal(before, seen.context), "reading the weights changed the context")
        require(torch.equal(before, unread), "the same call gave another context")
        require(torch.equal(seen.weights, seen.weights), "reading the weights twice gave other weights")


def key_order_is_irrelevant(
    attention: AttentionUnderTest, sample: SampleInputs, mask: Mask | None, tolerance: float = 1e-9
) -> None:
    """3. Permuting keys, values and mask permutes the weights and leaves the context."""
    visible = materialize_mask(sample, mask)
    seen = attention(*sample, visible)
    order = torch.randperm(sample.num_keys, generator=torch.Generator().manual_seed(3))
    other = attention(
        sample.query, sample.key[..., order, :], sample.value[..., order, :], visible[..., order]
    )
    require_close(
        other.weights, seen.weights[..., order], "permuting keys does not permute the weights", tolerance
    )
    require_close(other.context, seen.context, "permuting keys changes the context", tolerance)


def hidden_keys_are_irrelevant(
    attention: AttentionUnderTest, sample: SampleInputs, mask: Mask | None, tolerance: float = 1e-9
) -> None:
    """3. More hidden keys change nothing."""
    visible = materialize_mask(sample, mask)
    seen = attention(*sample, visible)
    key, value = (torch.cat([t, torch.full_like(t[..., :2, :], 7.0)], -2) for t in (sample.key, sample.value))
    more = torch.cat([visible, torch.zeros_like(visible[..., :1]).expand(*visible.shape[:-1], 2)], -1)
    longer = attention(sample.query, key, value, more)
    require_close(
        longer.weights[..., : sample.num_keys], seen.weights, "more hidden keys change the weights", tolerance
    )
    require_close(longer.context, seen.context, "more hidden keys change the context", tolerance)


def batch_equals_loop(
    attention: AttentionUnderTest, sample: SampleInputs, mask: Mask | None, tolerance: float = 1e-9
) -> None:
    """4. Leading axes equal a loop over them."""
    seen = attention(*sample, mask)
    visible = materialize_mask(sample, mask).expand(
        *sample.query.shape[:-2], sample.num_queries, sample.num_keys
    )
    for index, (query, key, value) in enumerate(zip(*sample, strict=True)):
        one = attention(query, key, value, None if mask is None else visible[index])
        require_close(one.weights, seen.weights[index], "a batch is not a loop over its entries", tolerance)
        require_close(one.context, seen.context[index], "a batch is not a loop over its entries", tolerance)


def dtypes_agree(attention: AttentionUnderTest, sample: SampleInputs, mask: Mask | None) -> None:
    """4. float32 and bfloat16 answer as float64 does, as far as they can, and in their own dtype."""
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 0.05)):
        given = sample.to(dtype)  # rounded first, so that what is compared is the computing
        other = attention.to(dtype)
        seen, exact = other(*given, mask), other.to(torch.float64)(*given.to(torch.float64), mask)
        for what in ("context", "weights"):
            got, want = getattr(seen, what), getattr(exact, what)
            require(got.dtype == dtype, f"the {what} of {dtype} have dtype {got.dtype}")
            largest = max(1.0, float(want.detach().abs().max())) if want.numel() else 1.0
            require_close(got, want, f"the {what} of {dtype} disagree with float64", tolerance * largest)


def context_equals_weighted_sum(
    attention: AttentionUnderTest, sample: SampleInputs, mask: Mask | None, tolerance: float = 1e-9
) -> None:
    """5. The context, by whichever path it came, is weights @ value, and so are its gradients."""
    sample = sample.requiring_grad()
    with same_random_state():
        seen = attention(*sample, mask)
    defined = seen.weights @ sample.value
    require_close(seen.context, defined, "the context is not weights @ value", tolerance)
    inputs = [*sample, *attention.parameters]
    for got, want in zip(
        _compute_gradients(seen.context, inputs), _compute_gradients(defined, inputs), strict=True
    ):
        require_close(got, want, "the gradient of the context is not that of weights @ value", 10 * tolerance)


def gradients_are_correct(attention: AttentionUnderTest, sample: SampleInputs, mask: Mask | None) -> None:
    """5. gradcheck in float64, of context and weights, at query, key, value and parameters."""
    sample = sample.requiring_grad()

    def seen(*_: Tensor) -> tuple[Tensor, Tensor]:
        found = attention(*sample, mask)
        return found.context, found.weights

    try:
        gradcheck(seen, (*sample, *attention.parameters))
    except GradcheckError as error:
        line = next(line for line in str(error).splitlines() if line.strip())
        raise LawViolation(f"the gradient is not the slope: {line}") from None


def empty_axes_are_handled(attention: AttentionUnderTest, sample: SampleInputs) -> None:
    """No keys: weights of no size, context 0. No queries: a context of no size."""
    seen = attention(sample.query, sample.key[..., :0, :], sample.value[..., :0, :], None)
    require(seen.weights.shape[-1] == 0, "without keys there are weights")
    require((seen.context == 0).all(), "without keys something is seen")
    none = attention(sample.query[..., :0, :], sample.key, sample.value, None)
    require(none.context.shape[-2] == none.weights.shape[-2] == 0, "without queries something is seen")
