"""One call of the equation: its letters, checked, and the state of the world it was made in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.attention.masks import Grid, Mask, as_mask
from regard.attention.normalizers import Dropout, kernel_sum, softmax
from regard.attention.normalizers.base import is_random, lawful, takes
from regard.attention.scores.base import Given, Score, autocasting, name
from regard.errors import DtypeError, ShapeError, StaleStateError, UsageError

Part = TypeVar("Part")
EXAMPLE = {"score": "Additive(...)", "normalize": "sparsemax"}


@dataclass
class Call:
    """The letters of one call: query, key, value, mask, score, normalize, and what is dropped afterwards."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Mask | None
    score: Score
    normalize: Callable[[Tensor], Tensor]
    drop: Dropout | None = None

    @property
    def queries(self) -> int:
        return self.query.shape[-2]

    @property
    def keys(self) -> int:
        return self.key.shape[-2]

    @property
    def batch(self) -> int:
        """How many batch axes the scores have; the leading ones are those of lengths and centres."""
        own = max(self.query.dim(), self.key.dim(), self.value.dim()) - 2
        return own if self.mask is None else max(own, self.mask.axes())

    @property
    def chance(self) -> bool:
        """Whether a random choice is part of the weights, which are then computed once and kept."""
        return is_random(self.normalize) or self.score.random

    @property
    def dropping(self) -> bool:
        return self.drop is not None and self.drop.training and self.drop.p > 0

    def grid(self) -> Grid:
        return Grid.full(self.queries, self.keys, self.batch, self.query.device)

    def part(self, **letters: object) -> Call:
        """The same call with other letters: what a fast path asks of a part of the positions."""
        return replace(self, **letters)  # type: ignore[arg-type]


def checked(
    query: Tensor | None,
    key: Tensor,
    value: Tensor,
    mask: Mask | Tensor | None,
    score: Callable[[Tensor, Tensor], Tensor],
    normalize: Callable[[Tensor], Tensor] | None,
) -> Call:
    """The call, or one sentence that says what does not fit."""
    score = made(score, "score")
    normalize = None if normalize is None else made(normalize, "normalize")
    wanted = score if isinstance(score, Score) else Given(score)
    if query is None:  # a score that asks nothing of the query: pooling
        query = key.new_zeros(1, 0) if isinstance(key, Tensor) else torch.zeros(1, 0)
    check_axes(query, key, value)
    _check_types(query, key, value)
    batch = _broadcast(query, key, value)
    wanted.check(query, key)
    seen = None if mask is None else as_mask(mask)
    if seen is not None:
        batch = (1,) * (seen.axes() - len(batch)) + batch
        seen.check(batch, query.shape[-2], key.shape[-2])
    gives = wanted.gives
    if normalize is None:
        normalize = usual(wanted)
    elif takes(normalize) != gives:
        raise UsageError(
            f"{name(score)} gives {_words(gives)}, but {name(normalize)} shares out {_words(takes(normalize))}; "
            f"leave normalize out to take {name(usual(wanted))}"
        )
    drop = normalize if isinstance(normalize, Dropout) else None
    share = lawful(normalize if drop is None else drop.normalize)
    return Call(query, key, value, seen, wanted, share, drop)


def usual(score: object) -> Callable[[Tensor], Tensor]:
    """The normalizer that a score takes by itself."""
    return kernel_sum if getattr(score, "gives", "logits") == "kernel" else softmax


def _words(gives: str) -> str:
    return "kernel values" if gives == "kernel" else gives


def made(part: Part, what: str) -> Part:
    """``SigmoidSum`` may be given for ``SigmoidSum()``; what is no function at all is refused."""
    if isinstance(part, type):
        try:
            return part()
        except TypeError:
            raise TypeError(
                f"{what} must be made first: write {part.__name__}(...) with its arguments"
            ) from None
    if not callable(part):
        raise TypeError(f"{what} must be a function or module, as in {what}={EXAMPLE[what]}, got {part!r}")
    return part


def check_axes(query: Tensor, key: Tensor, value: Tensor) -> None:
    for what, tensor, axis in (("query", query, "queries"), ("key", key, "keys"), ("value", value, "keys")):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{what} must be a tensor, got {type(tensor).__name__}")
        if tensor.dim() < 2:
            raise ShapeError(f"{what} must be (*batch, {axis}, dim), got {tuple(tensor.shape)}")
    if key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"every key has one value, got {key.shape[-2]} keys and {value.shape[-2]} values: key "
            f"{tuple(key.shape)}, value {tuple(value.shape)}"
        )


def _check_types(query: Tensor, key: Tensor, value: Tensor) -> None:
    if query.dtype == key.dtype == value.dtype and query.is_floating_point():
        return
    kinds = f"query {query.dtype}, key {key.dtype}, value {value.dtype}"
    if not (query.is_floating_point() and key.is_floating_point() and value.is_floating_point()):
        raise DtypeError(f"query, key and value must be floating point, got {kinds}")
    if not autocasting(query.device.type):
        raise DtypeError(f"query, key and value must have one dtype outside of autocast, got {kinds}")


def batch_shape(*tensors: Tensor) -> tuple[int, ...]:
    """What the leading axes broadcast to; torch.broadcast_shapes is slow, and they are mostly the same."""
    first, *others = (tensor.shape[:-2] for tensor in tensors)
    same = all(other == first for other in others)
    return tuple(first) if same else tuple(torch.broadcast_shapes(first, *others))


def _broadcast(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, ...]:
    try:
        return batch_shape(query, key, value)
    except RuntimeError:
        raise ShapeError(
            f"the leading axes do not broadcast: query {tuple(query.shape)}, key {tuple(key.shape)}, value "
            f"{tuple(value.shape)}"
        ) from None


class Moment:
    """What a call saw of the world: its modes (grad, autocast, training), settings, and versions of tensors.

    A compiler and inference tensors keep no versions, so there the promise to notice changes is not made.
    """

    def __init__(self, call: Call):
        self.grad = torch.is_grad_enabled()
        self.autocast = _autocast(call.query.device.type)
        self.modes: list[tuple[nn.Module, bool]] = []
        self.settings: list[tuple[nn.Module, list[object]]] = []
        self.versions: list[tuple[Tensor, int]] = []
        if not torch.compiler.is_compiling():
            modules = _modules(call)
            self.modes = [(module, module.training) for module in modules]
            self.settings = [(module, _settings(module)) for module in modules]
            tensors = [call.query, call.key, *([] if call.mask is None else call.mask.tensors())]
            tensors += [
                held for _, all_held in self.settings for held in all_held if isinstance(held, Tensor)
            ]
            self.versions = [(tensor, tensor._version) for tensor in tensors if not tensor.is_inference()]

    def check(self) -> None:
        """Raise if something of the call was changed since: the weights would be those of another call."""
        written = any(tensor._version != version for tensor, version in self.versions)
        if written or not all(_same(_settings(module), then) for module, then in self.settings):
            raise StaleStateError(
                "the weights can no longer be read: a tensor, parameter or setting of this call was changed since "
                "(by an optimizer step, perhaps); read .weights before that"
            )

    def again(self, look: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """What ``look`` finds in the same modes as then."""
        changed = [(module, module.training) for module, mode in self.modes if module.training != mode]
        for module, mode in changed:
            module.training = not mode
        try:
            device, enabled, dtype = self.autocast
            with torch.set_grad_enabled(self.grad):
                if self.autocast == _autocast(device):
                    return look()
                with torch.autocast(device, dtype, enabled):
                    return look()
        finally:
            for module, mode in changed:
                module.training = mode


def _modules(call: Call) -> list[nn.Module]:
    parts = [part for part in (call.score, call.normalize) if isinstance(part, nn.Module)]
    return [module for part in parts for module in part.modules()]


def _settings(module: nn.Module) -> list[object]:
    """What a module computes with: its parameters, buffers, other tensors and numbers."""
    held = (value for word, value in vars(module).items() if word != "training")
    own = (value for value in held if isinstance(value, (Tensor, float, int, str)))
    return [*module._parameters.values(), *module._buffers.values(), *own]


def _same(now: list[object], then: list[object]) -> bool:
    pairs = zip(now, then, strict=False)
    return len(now) == len(then) and all(a is b or (not isinstance(a, Tensor) and a == b) for a, b in pairs)


def _autocast(device: str) -> tuple[str, bool, torch.dtype | None]:
    enabled = autocasting(device)
    return device, enabled, torch.get_autocast_dtype(device) if enabled else None
