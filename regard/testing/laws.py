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

from regard.attention import Attended, Dropout, Mask, attend
from regard.testing._world import World


class LawViolation(AssertionError):
    """A part does not keep one of the laws."""


def hold(condition: bool | Tensor, law: str) -> None:
    if not condition:
        raise LawViolation(law)


def close(got: Tensor, want: Tensor, law: str, tolerance: float) -> None:
    hold(got.shape == want.shape, f"{law}: shapes {tuple(got.shape)} and {tuple(want.shape)} differ")
    off = float((got.detach().double() - want.detach().double()).abs().max()) if got.numel() else 0.0
    hold(off <= tolerance, f"{law}: off by {off:.3g}, allowed {tolerance:.3g}")


class Look:
    """The equation with a score and a normalizer filled in: what a law is tried on.

    ``look(query, key, value, mask)`` is a call of the equation; the parts are copies, so that whoever gave
    them finds them as they were.
    """

    def __init__(self, score: Any, normalize: Any = None, dtype: torch.dtype = torch.float64):
        self.score, self.normalize = copy.deepcopy(score), copy.deepcopy(normalize)
        self.modules = [part for part in (self.score, self.normalize) if isinstance(part, nn.Module)]
        for module in self.modules:
            module.to(dtype)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | Tensor | None) -> Attended:
        return attend(query, key, value, mask, score=self.score, normalize=self.normalize)

    def to(self, dtype: torch.dtype) -> Look:
        return Look(self.score, self.normalize, dtype)

    def train(self, mode: bool) -> Look:
        for module in self.modules:
            module.train(mode)
        return self

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [parameter for module in self.modules for parameter in module.parameters()]

    @property
    def random(self) -> bool:
        """Whether a call draws random numbers now."""
        parts = (self.score, self.normalize)
        return any(getattr(part, "random", False) for part in parts)

    @property
    def dropping(self) -> bool:
        return isinstance(self.normalize, Dropout) and self.normalize.training and self.normalize.p > 0

    @property
    def positional(self) -> bool:
        """Whether score or normalizer go by the place of a key."""
        return any(getattr(part, "positional", False) for part in (self.score, self.normalize))


@contextmanager
def same_chance() -> Iterator[None]:
    """Whatever is drawn inside is drawn from the same state of the generator."""
    before = torch.get_rng_state()
    torch.set_rng_state(torch.Generator().manual_seed(11).get_state())
    try:
        yield
    finally:
        torch.set_rng_state(before)


def mask_of(w: World, mask: Mask | None) -> Tensor:
    """The mask written out, (queries, keys) or with batch axes before them."""
    if mask is None:
        return torch.ones(w.queries, w.keys, dtype=torch.bool)
    return mask.materialize(w.queries, w.keys, w.batch)


def hidden_is_zero(look: Look, w: World, mask: Mask | None) -> None:
    """1. A hidden key weighs exactly 0; who may look at nothing sees 0, with finite, zero gradients."""
    w = w.tracked()
    with same_chance():
        seen = look(*w, mask)
        weights, scores = seen.weights, seen.scores
    hold(seen.context.isfinite().all(), "a context is not finite")
    hold(weights.isfinite().all(), "a weight is not finite")
    visible = scores > -torch.inf
    hold(not (visible & ~mask_of(w, mask)).any(), "a hidden key has a score above -inf")
    hold((weights[~visible] == 0).all(), "a hidden key has weight")
    blind, unseen = ~visible.any(-1), ~visible.any(-2)
    hold((seen.context[blind] == 0).all(), "a query that may look at nothing does not see 0")
    for what, result in (("context", seen.context), ("weights", weights)):
        gradients = _gradients(result, [*w, *look.parameters])
        hold(all(g.isfinite().all() for g in gradients), f"a gradient of the {what} is not finite")
        query, key, value = gradients[:3]
        hold((query[blind] == 0).all(), f"a query that may look at nothing has a gradient by the {what}")
        nothing = (key[unseen] == 0).all() & (value[unseen] == 0).all()
        hold(nothing, f"a key that nobody may look at has a gradient by the {what}")


def _gradients(result: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of a sum with fixed random factors (a plain sum of weights is 1, without a gradient)."""
    if not result.requires_grad:
        return [torch.zeros_like(tensor) for tensor in inputs]
    generator = torch.Generator().manual_seed(2)
    factors = torch.randn(result.shape, generator=generator, dtype=torch.float64).to(result.dtype)
    total = (result * factors).sum()
    found = torch.autograd.grad(total, inputs, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(tensor) if g is None else g for g, tensor in zip(found, inputs, strict=True)]


def reading_changes_nothing(look: Look, w: World, mask: Mask | None) -> None:
    """2. Reading the weights leaves the context bit for bit as it was, with gradients or without."""
    for grad in (True, False):
        given = w.tracked() if grad else w
        with torch.set_grad_enabled(grad):
            with same_chance():
                unread = look(*given, mask).context.detach().clone()
            with same_chance():
                seen = look(*given, mask)
                before = seen.context.detach().clone()
                _ = seen.weights, seen.scores
        hold(torch.equal(before, seen.context), "reading the weights changed the context")
        hold(torch.equal(before, unread), "the same call gave another context")
        hold(torch.equal(seen.weights, seen.weights), "reading the weights twice gave other weights")


def order_is_free(look: Look, w: World, mask: Mask | None, tolerance: float = 1e-9) -> None:
    """3. Permuting keys, values and mask permutes the weights and leaves the context."""
    visible = mask_of(w, mask)
    seen = look(*w, visible)
    order = torch.randperm(w.keys, generator=torch.Generator().manual_seed(3))
    other = look(w.query, w.key[..., order, :], w.value[..., order, :], visible[..., order])
    close(other.weights, seen.weights[..., order], "permuting keys does not permute the weights", tolerance)
    close(other.context, seen.context, "permuting keys changes the context", tolerance)


def hidden_keys_are_free(look: Look, w: World, mask: Mask | None, tolerance: float = 1e-9) -> None:
    """3. More hidden keys change nothing."""
    visible = mask_of(w, mask)
    seen = look(*w, visible)
    key, value = (torch.cat([t, torch.full_like(t[..., :2, :], 7.0)], -2) for t in (w.key, w.value))
    more = torch.cat([visible, torch.zeros_like(visible[..., :1]).expand(*visible.shape[:-1], 2)], -1)
    longer = look(w.query, key, value, more)
    close(longer.weights[..., : w.keys], seen.weights, "more hidden keys change the weights", tolerance)
    close(longer.context, seen.context, "more hidden keys change the context", tolerance)


def batch_is_a_loop(look: Look, w: World, mask: Mask | None, tolerance: float = 1e-9) -> None:
    """4. Leading axes equal a loop over them."""
    seen = look(*w, mask)
    visible = mask_of(w, mask).expand(*w.query.shape[:-2], w.queries, w.keys)
    for index, (query, key, value) in enumerate(zip(*w, strict=True)):
        one = look(query, key, value, None if mask is None else visible[index])
        close(one.weights, seen.weights[index], "a batch is not a loop over its entries", tolerance)
        close(one.context, seen.context[index], "a batch is not a loop over its entries", tolerance)


def dtypes_agree(look: Look, w: World, mask: Mask | None) -> None:
    """4. float32 and bfloat16 answer as float64 does, as far as they can, and in their own dtype."""
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 0.05)):
        given = w.to(dtype)  # rounded first, so that what is compared is the computing
        other = look.to(dtype)
        seen, exact = other(*given, mask), other.to(torch.float64)(*given.to(torch.float64), mask)
        for what in ("context", "weights"):
            got, want = getattr(seen, what), getattr(exact, what)
            hold(got.dtype == dtype, f"the {what} of {dtype} have dtype {got.dtype}")
            largest = max(1.0, float(want.detach().abs().max())) if want.numel() else 1.0
            close(got, want, f"the {what} of {dtype} disagree with float64", tolerance * largest)


def weights_make_the_context(look: Look, w: World, mask: Mask | None, tolerance: float = 1e-9) -> None:
    """5. The context, by whichever path it came, is weights @ value, and so are its gradients."""
    w = w.tracked()
    with same_chance():
        seen = look(*w, mask)
    defined = seen.weights @ w.value
    close(seen.context, defined, "the context is not weights @ value", tolerance)
    inputs = [*w, *look.parameters]
    for got, want in zip(_gradients(seen.context, inputs), _gradients(defined, inputs), strict=True):
        close(got, want, "the gradient of the context is not that of weights @ value", 10 * tolerance)


def gradient_is_right(look: Look, w: World, mask: Mask | None) -> None:
    """5. gradcheck in float64, of context and weights, at query, key, value and parameters."""
    w = w.tracked()

    def seen(*_: Tensor) -> tuple[Tensor, Tensor]:
        found = look(*w, mask)
        return found.context, found.weights

    try:
        gradcheck(seen, (*w, *look.parameters))
    except GradcheckError as error:
        line = next(line for line in str(error).splitlines() if line.strip())
        raise LawViolation(f"the gradient is not the slope: {line}") from None


def empty_is_fine(look: Look, w: World) -> None:
    """No keys: weights of no size, context 0. No queries: a context of no size."""
    seen = look(w.query, w.key[..., :0, :], w.value[..., :0, :], None)
    hold(seen.weights.shape[-1] == 0, "without keys there are weights")
    hold((seen.context == 0).all(), "without keys something is seen")
    none = look(w.query[..., :0, :], w.key, w.value, None)
    hold(none.context.shape[-2] == none.weights.shape[-2] == 0, "without queries something is seen")
