"""Helpers for dtypes and shapes that the whole package shares."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad

from regard.errors import DtypeError, ShapeError, UsageError

EXAMPLES = {"score": "Additive(...)", "normalize": "sparsemax", "mask": "causal()"}
HALF_DTYPES = (torch.bfloat16, torch.float16)


def upcast_half(tensor: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """bfloat16 and float16 as float32, in which sums over many keys stay accurate; other dtypes unchanged."""
    return tensor.float() if tensor.dtype in HALF_DTYPES else tensor


def is_autocast_enabled(device_type: str) -> bool:
    """Whether autocast is enabled for a device type; False for types without autocast, such as meta."""
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """torch.broadcast_shapes, which takes half of the time of a small call."""
    for shape in shapes[1:]:
        if len(shape) != len(shapes[0]) or shape != shapes[0]:  # a compiler guards on each size that is compared
            break
    else:
        return tuple(shapes[0])
    if torch.compiler.is_compiling():
        return tuple(torch.broadcast_shapes(*shapes))
    result = [1] * max(map(len, shapes))
    for shape in shapes:
        for axis in range(-len(shape), 0):
            if shape[axis] != 1 and shape[axis] != result[axis]:
                if result[axis] != 1:
                    raise RuntimeError(f"shapes {shapes} do not broadcast")
                result[axis] = shape[axis]
    return tuple(result)


def is_symbolic(size: int) -> bool:
    """Whether torch.export traces this size for any value: a choice by it would restrict the program to some sizes."""
    return isinstance(size, torch.SymInt)


def broadcast_batch_shape(*tensors: Tensor) -> tuple[int, ...]:
    """The broadcast shape of all axes but the last two."""
    return broadcast_shape(*[tensor.shape[:-2] for tensor in tensors])


def fold_heads(tensor: Tensor, num_groups: int) -> Tensor:
    """(*batch, heads, n, dim) as (*batch, heads / num_groups, num_groups * n, dim): heads that share keys are one."""
    return tensor.unflatten(-3, (-1, num_groups)).flatten(-3, -2)


def unfold_heads(tensor: Tensor, num_groups: int) -> Tensor:
    """The inverse of `fold_heads`."""
    return tensor.unflatten(-2, (num_groups, tensor.shape[-2] // num_groups)).flatten(-4, -3)


def is_transformed() -> bool:
    """Whether a compiler, torch.func or forward-mode differentiation traces every operation.

    Tensors inside such a transform do not report what is required of them (a tensor inside of vmap or jvp does not
    require a gradient), and a node with a backward of its own is opaque to them, so they must see the definition.
    """
    return (
        torch.compiler.is_compiling()
        or forward_ad._current_level >= 0
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def part_name(part: object) -> str:
    """The name of a score or normalizer in a message."""
    return getattr(part, "__name__", type(part).__name__)


def instantiate(component: Any, argument: str) -> Any:
    """An instance of a class without required arguments, such as ``SigmoidSum`` for ``SigmoidSum()``."""
    if isinstance(component, type):
        return call_without_arguments(component, argument)
    if not callable(component):
        raise DtypeError(
            f"{argument} must be a function or module, as in {argument}={EXAMPLES[argument]}, got {component!r}"
        )
    if hasattr(component, "output_kind" if argument == "normalize" else "input_kind"):
        kind = "score" if argument == "normalize" else "normalizer"
        raise UsageError(f"{argument}={part_name(component)} is a {kind}, write {argument}={EXAMPLES[argument]}")
    return component


def call_without_arguments(factory: Any, argument: str) -> Any:
    """``factory()``, or an error that says which arguments it requires."""
    try:
        parameters = inspect.signature(factory).parameters.values()
        required = [
            p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
    except ValueError:  # a built-in class without a signature
        required = ["..."]
    if required:
        kind = "an instance, not a class" if isinstance(factory, type) else "a mask, got function"
        raise DtypeError(f"{argument} must be {kind}: write {part_name(factory)}({', '.join(required)})")
    return factory()


def check_result(part: str, result: object, shape: tuple[int, ...]) -> None:
    """Raise unless a score or normalizer has returned floating point numbers of this shape."""
    if not isinstance(result, Tensor) or result.shape != shape or not result.is_floating_point():
        returned = f"{result.dtype} {tuple(result.shape)}" if isinstance(result, Tensor) else repr(result)
        raise ShapeError(f"{part} must return floating point numbers (*batch, queries, keys) = {shape}, got {returned}")


def check_declared_dims(
    score: nn.Module, query: Tensor, key: Tensor, query_dim: int | None, key_dim: int | None
) -> None:
    """Raise unless query and key have the sizes that the score was constructed with, and its dtype."""
    for side, tensor, dim in (("query", query, query_dim), ("key", key, key_dim)):
        if dim is not None and tensor.shape[-1] != dim:
            raise ShapeError(
                f"{part_name(score)} expects {side}_dim={dim}, got {side} {tuple(tensor.shape)} of size "
                f"{tensor.shape[-1]}"
            )
    dtype = next(score.parameters()).dtype
    if dtype != query.dtype and not is_autocast_enabled(query.device.type):
        raise DtypeError(
            f"{part_name(score)} has parameters of {dtype}, got query of {query.dtype}; convert one of them, as in "
            f"score.to({query.dtype})"
        )


def differentiable_backward(function: Callable[..., Any], inputs: Sequence[Tensor], grads: Any) -> list[Tensor | None]:
    """The gradients of the inputs by autograd, so that they can be differentiated again.

    It is used where the backward pass builds a graph: explicit gradients would be constants in it.

    Args:
        function: the forward pass
        inputs: its arguments
        grads: the gradients of its results

    Shape: the shapes of the inputs

    Returns: the gradients, None for inputs that require none

    Example:
        >>> x = torch.tensor([3.0], requires_grad=True)
        >>> differentiable_backward(lambda x: x**2, [x], torch.ones(1))[0].tolist()
        [6.0]
    """
    # Views, since one input may have been computed from another, and gradients must not propagate to that.
    views = [tensor.view_as(tensor) for tensor in inputs]
    required = [tensor for tensor in views if tensor.requires_grad]
    outputs = function(*views)
    gradients = iter(torch.autograd.grad(outputs, required, grads, create_graph=True, allow_unused=True))
    return [next(gradients) if tensor.requires_grad else None for tensor in views]
