"""Where to read from and write to in a memory: by content, then by location (Neural Turing Machine).

    w_c = softmax(beta * cosine(k, M[i]))        content       rows similar to the key
    w_g = g w_c + (1 - g) w_previous             interpolate   with the previous weights
    w_s[i] = sum_j w_g[j] s[i - j mod N]         shift         along the rows, cyclically
    w[i] = w_s[i]^gamma / sum_j w_s[j]^gamma     sharpen       the weights

Graves, Wayne and Danihelka (2014), "Neural Turing Machines", arXiv 1410.5401, section 3. Several heads share
one memory: their axis precedes the rows. Everything is a function of tensors. Every call checks the shapes,
and computes bfloat16 and float16 in float32, also under autocast.
"""

import functools

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention._common import is_transformed
from regard.attention.equation import attend_unwatched
from regard.attention.fast.additive import autocast_disabled
from regard.attention.fast.addressing import address_fast, can_use_fast_address, write_fast
from regard.attention.observers import notify_watchers
from regard.attention.output import AttentionOutput
from regard.attention.scores.distance import Cosine
from regard.errors import ShapeError, UsageError

__all__ = ["address", "content", "interpolate", "read", "sharpen", "shift", "write"]

HeadVectors = Float[Tensor, "*batch heads width"]
Memory = Float[Tensor, "*batch rows width"]
RowWeights = Float[Tensor, "*batch heads rows"]
OffsetWeights = Float[Tensor, "*batch heads offsets"]
PerHead = Float[Tensor, "*batch heads"]

MAX_ROLLED_OFFSETS = 7  # up to here a sum of rolled copies is faster than windows, measured on CPU


def _check_and_upcast(function: str, *values: Tensor) -> tuple[torch.dtype, list[Tensor]]:
    """The dtype of the result, and the arguments in float32 or wider; raises if a shape does not fit."""
    sizes: dict[str, tuple[object, str]] = {}
    for (name, axes), value in zip(AXES[function].items(), values, strict=True):
        _check_axes(f"{function}: {name}", axes, value, sizes)
    dtype = functools.reduce(torch.promote_types, [value.dtype for value in values])
    wide = torch.promote_types(dtype, torch.float32)
    return dtype, [value.to(wide) for value in values]


def _check_axes(name: str, axes: list[str], value: Tensor, sizes: dict[str, tuple[object, str]]) -> None:
    """Raise if a tensor has too few axes, or another size than an earlier argument has in an axis."""
    expected = f"{name} must be a tensor ({', '.join(axes)})"
    if not isinstance(value, Tensor):
        raise TypeError(f"{expected}, not {type(value).__name__}.")
    shape, batch_axes = tuple(value.shape), value.ndim - (len(axes) - 1)
    if batch_axes < 0:
        raise ShapeError(f"{expected}, but its shape is {shape}.")
    for axis, size in zip(axes, (shape[:batch_axes], *shape[batch_axes:]), strict=True):
        first, other = sizes.setdefault(axis, (size, name.split()[-1]))
        if first != size:
            raise ShapeError(f"{expected} with {axis.strip('*')} {first} as in {other}, but its shape is {shape}.")


def content(key: HeadVectors, memory: Memory, strength: PerHead) -> RowWeights:
    """Content addressing: weights of the rows by their similarity to the key.

        w[i] = softmax_i(strength * cosine(key, memory[i]))

    This is attention with a cosine score.

    Args:
        key: the key of each head
        memory: the rows
        strength: 0 or more; the larger, the more the weights concentrate on the most similar row

    Shape: key (*batch, heads, width), memory (*batch, rows, width), strength (*batch, heads) -> (*batch, heads, rows)

    Returns: the weights

    Reference: Graves et al. (2014), arXiv 1410.5401, equations 5 and 6.

    Example:
        >>> content(torch.randn(2, 1, 4), torch.randn(2, 8, 4), torch.ones(2, 1)).shape
        torch.Size([2, 1, 8])
    """
    dtype, (key, memory, strength) = _check_and_upcast("content", key, memory, strength)
    with autocast_disabled(memory):
        return notify_watchers(None, _content_unwatched(key, memory, strength)).weights.to(dtype)


def _content_unwatched(key: Tensor, memory: Tensor, strength: Tensor) -> AttentionOutput:
    """`content` without notifying watchers: inside `address` these are not yet the weights of a head."""
    # Only the weights are needed, so the values have width 0.
    return attend_unwatched(key, memory, memory[..., :0], None, Cosine(strength), None)


def interpolate(weights: RowWeights, previous: RowWeights, gate: PerHead) -> RowWeights:
    """Interpolates between the new weights and those of the previous step.

        w = gate * weights + (1 - gate) * previous

    Args:
        weights: the new weights
        previous: the weights of the previous step
        gate: from 0, the previous weights, to 1, the new ones

    Shape: weights and previous (*batch, heads, rows), gate (*batch, heads) -> (*batch, heads, rows)

    Returns: the weights

    Reference: Graves et al. (2014), arXiv 1410.5401, equation 7.

    Example:
        >>> interpolate(torch.eye(3), torch.eye(3), torch.ones(3)).shape
        torch.Size([3, 3])
    """
    dtype, (weights, previous, gate) = _check_and_upcast("interpolate", weights, previous, gate)
    return torch.lerp(previous, weights, gate.unsqueeze(-1)).to(dtype)  # exact at both ends


def shift(weights: RowWeights, offsets: OffsetWeights) -> RowWeights:
    """Moves the weights along the rows, cyclically, by a distribution over the offsets -r..r.

        w[i] = sum_j weights[j] offsets[i - j mod rows]

    Args:
        weights: the weights
        offsets: a distribution over -r..r, in this order: mass on +1, right of the middle, moves one row forward

    Shape: weights (*batch, heads, rows), offsets (*batch, heads, 2 r + 1) -> (*batch, heads, rows)

    Returns: the shifted weights

    Reference: Graves et al. (2014), arXiv 1410.5401, equation 8.

    Example:
        >>> shift(torch.eye(5), torch.tensor([0.0, 0.1, 0.9]).expand(5, 3)).shape
        torch.Size([5, 5])
    """
    dtype, (weights, offsets) = _check_and_upcast("shift", weights, offsets)
    rows, width = weights.shape[-1], offsets.shape[-1]
    if width % 2 == 0:
        raise UsageError(f"shift: offsets must have an odd size, for -r..r, but it is {width}.")
    lowest = -(width // 2)
    if width > rows:
        lowest, offsets = 0, _wrap(offsets, rows)
    if offsets.shape[-1] > MAX_ROLLED_OFFSETS:
        return _shift_by_windows(weights, offsets, lowest).to(dtype)
    shifted = [weights.roll(lowest + i, -1) * mass for i, mass in enumerate(offsets.split(1, -1))]
    return sum(shifted[1:], start=shifted[0]).to(dtype)


def _wrap(offsets: Tensor, rows: int) -> Tensor:
    """The distribution over 0..rows-1: offsets that lead to the same row are summed."""
    left = -(offsets.shape[-1] // 2) % rows
    right = -(left + offsets.shape[-1]) % rows
    return torch.nn.functional.pad(offsets, (left, right)).unflatten(-1, (-1, rows)).sum(-2)


def _shift_by_windows(weights: Tensor, offsets: Tensor, lowest: int) -> Tensor:
    """The same sum for many offsets, over the window of weights that can be shifted to each row."""
    width = offsets.shape[-1]
    rolled = weights.roll(lowest + width - 1, -1)
    windows = torch.cat((rolled, rolled[..., : width - 1]), -1).unfold(-1, width, 1)
    return (windows * offsets.flip(-1).unsqueeze(-2)).sum(-1)


def sharpen(weights: RowWeights, sharpness: PerHead) -> RowWeights:
    """Sharpens weights that a shift has blurred.

        w[i] = weights[i]^sharpness / sum_j weights[j]^sharpness

    Args:
        weights: the weights; if all are 0, the result is uniform
        sharpness: 1 or more; 1 leaves the weights unchanged

    Shape: weights (*batch, heads, rows), sharpness (*batch, heads) -> (*batch, heads, rows)

    Returns: the weights

    Reference: Graves et al. (2014), arXiv 1410.5401, equation 9.

    Example:
        >>> sharpen(torch.rand(2, 1, 8), torch.full((2, 1), 3.0)).shape
        torch.Size([2, 1, 8])
    """
    dtype, (weights, sharpness) = _check_and_upcast("sharpen", weights, sharpness)
    # In logarithms no power underflows to 0 / 0. The logarithm of 0 needs a floor, added and not clamped to,
    # so that the slope at 0 is right: 1 / sum for sharpness 1, 0 for more. Lower down, exp() would be 0.
    floor = 1e8 * torch.finfo(weights.dtype).tiny
    return torch.softmax(sharpness.unsqueeze(-1) * torch.log(weights + floor), -1).to(dtype)


def address(
    key: HeadVectors,
    strength: PerHead,
    gate: PerHead,
    offsets: OffsetWeights,
    sharpness: PerHead,
    memory: Memory,
    previous: RowWeights,
) -> RowWeights:
    """The weights of the rows in one step, from the outputs of a controller.

        w = sharpen(shift(interpolate(content(key, memory, strength), previous, gate), offsets), sharpness)

    Args:
        key: the key of each head
        strength: of `content`
        gate: of `interpolate`
        offsets: of `shift`
        sharpness: of `sharpen`
        memory: the rows
        previous: the weights of the previous step

    Shape: key (*batch, heads, width), strength, gate and sharpness (*batch, heads), offsets (*batch, heads, 2 r + 1),
        memory (*batch, rows, width), previous (*batch, heads, rows) -> (*batch, heads, rows)

    Returns: the weights

    Reference: Graves et al. (2014), arXiv 1410.5401, figure 2.

    Example:
        >>> ones, previous = torch.ones(2, 1), torch.full((2, 1, 8), 1 / 8)
        >>> offsets = torch.tensor([0.1, 0.8, 0.1]).expand(2, 1, 3)
        >>> address(torch.randn(2, 1, 4), ones, ones, offsets, ones, torch.randn(2, 8, 4), previous).shape
        torch.Size([2, 1, 8])
    """
    dtype, (key, strength, gate, offsets, sharpness, memory, previous) = _check_and_upcast(
        "address", key, strength, gate, offsets, sharpness, memory, previous
    )
    with autocast_disabled(memory):
        if can_use_fast_address(memory.shape[-2], offsets.shape[-1]):
            return address_fast(key, strength, gate, offsets, sharpness, memory, previous).to(dtype)
        weights = interpolate(_content_unwatched(key, memory, strength).weights, previous, gate)
        return sharpen(shift(weights, offsets), sharpness).to(dtype)


def read(weights: RowWeights, memory: Memory) -> HeadVectors:
    """Reads the weighted sum of the rows.

        r = sum_i weights[i] memory[i]

    Args:
        weights: the weights of the rows
        memory: the rows

    Shape: weights (*batch, heads, rows), memory (*batch, rows, width) -> (*batch, heads, width)

    Returns: the vector that each head reads

    Reference: Graves et al. (2014), arXiv 1410.5401, equation 2.

    Example:
        >>> read(torch.full((2, 1, 8), 1 / 8), torch.randn(2, 8, 4)).shape
        torch.Size([2, 1, 4])
    """
    dtype, (weights, memory) = _check_and_upcast("read", weights, memory)
    with autocast_disabled(memory):
        return (weights @ memory).to(dtype)


def write(memory: Memory, weights: RowWeights, erase: HeadVectors, add: HeadVectors) -> Memory:
    """The memory after all heads have erased and then all heads have added; their order does not matter.

        M'[i] = M[i] * prod_heads(1 - weights[i] erase) + sum_heads weights[i] add

    Args:
        memory: the rows
        weights: the weights of the rows
        erase: how much of each column a head erases, from 0 to 1
        add: what a head adds to each column

    Shape: memory (*batch, rows, width), weights (*batch, heads, rows), erase and add (*batch, heads, width) ->
        (*batch, rows, width)

    Returns: the new memory

    Reference: Graves et al. (2014), arXiv 1410.5401, equations 3 and 4.

    Example:
        >>> weights, ones = torch.full((2, 1, 8), 1 / 8), torch.ones(2, 1, 4)
        >>> write(torch.randn(2, 8, 4), weights, erase=ones, add=ones).shape
        torch.Size([2, 8, 4])
    """
    dtype, (memory, weights, erase, add) = _check_and_upcast("write", memory, weights, erase, add)
    if not is_transformed():
        with autocast_disabled(memory):
            return write_fast(memory, weights, erase, add).to(dtype)
    heads = [head.unsqueeze(-1) for head in weights.unbind(-2)]
    # Head by head: the gradient of one product over heads would search for zeros, and wait for the device.
    for head, head_erase in zip(heads, erase.unsqueeze(-2).unbind(-3), strict=True):
        memory = memory * (1 - head * head_erase)
    for head, head_add in zip(heads, add.unsqueeze(-2).unbind(-3), strict=True):
        memory = torch.addcmul(memory, head, head_add)
    return memory.to(dtype)


AXES = {
    function.__name__: {
        name: hint.dim_str.split() for name, hint in function.__annotations__.items() if name != "return"
    }
    for function in (address, content, interpolate, read, sharpen, shift, write)
}
"""The axes of each argument, from the annotations."""
