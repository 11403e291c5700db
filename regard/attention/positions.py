"""Absolute positions, added to the vectors: Sinusoidal and Learned.

    x'[i] = x[i] + p[offset + i]

Attention itself ignores order: permuted keys give the same context. Relative positions, which change the scores, are
defined in `regard.attention.relative_positions` and `regard.attention.rotary` and can be imported from here, too.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.module import Device, Dtype, ResettableModule
from regard.attention.relative_positions import Alibi, RelativeBias, RelativePositionBias
from regard.attention.rotary import Rotary
from regard.errors import ShapeError, UsageError

__all__ = ["Alibi", "Learned", "RelativeBias", "RelativePositionBias", "Rotary", "Sinusoidal", "binary_code"]

Offset = int | Int[Tensor, "*leading"]


class Sinusoidal(ResettableModule):
    """Adds sines and cosines of different frequencies to each position.

        p[i, 2j] = sin(i / base^(2j / d)),    p[i, 2j+1] = cos(i / base^(2j / d))

    There is no longest sequence and no parameter.

    Args:
        embed_dim: the size d of a vector, an even number
        base: the ratio of the longest wavelength to the shortest, approximately
        interleaved: whether sines and cosines alternate; otherwise all sines come first, as in Marian

    Shape: x (*batch, length, embed_dim) -> the same. ``offset`` is the position of the first vector, or a tensor of
        them, one for each entry of the leading batch axes.

    Reference: Vaswani et al. (2017), arXiv 1706.03762, section 3.5.

    Example:
        >>> Sinusoidal(8)(torch.randn(2, 5, 8), offset=100).shape
        torch.Size([2, 5, 8])
    """

    repr_settings = ("embed_dim", "base")

    def __init__(self, embed_dim: int, base: float | int = 10000.0, *, interleaved: bool = True) -> None:
        super().__init__()
        if embed_dim < 2 or embed_dim % 2:
            raise UsageError(
                f"Sinusoidal: embed_dim must be even, one sine and one cosine for each frequency, got {embed_dim}"
            )
        self.embed_dim, self.base, self.interleaved = embed_dim, base, interleaved

    def forward(
        self, x: Float[Tensor, "*batch length {self.embed_dim}"], offset: Offset = 0
    ) -> Float[Tensor, "*batch length {self.embed_dim}"]:
        offset = _broadcast_offset(x, self.embed_dim, offset)
        wide = torch.promote_types(x.dtype, torch.float32)
        return (x + self.encoding(x.shape[-2], offset, dtype=wide, device=x.device)).to(x.dtype)

    def encoding(
        self, length: int, offset: Offset = 0, *, dtype: Dtype = None, device: Device = None
    ) -> Float[Tensor, "*leading length {self.embed_dim}"]:
        """The vectors of the positions offset .. offset + length - 1.

        Example:
            >>> Sinusoidal(8).encoding(5).shape
            torch.Size([5, 8])
        """
        angles = self._angles(_make_positions(length, offset, device))
        pairs = torch.stack((angles.sin(), angles.cos()), -1 if self.interleaved else -2)
        return pairs.flatten(-2).to(dtype or torch.get_default_dtype())

    def shift_matrix(
        self, delta: float | int, *, dtype: Dtype = None, device: Device = None
    ) -> Float[Tensor, "{self.embed_dim} {self.embed_dim}"]:
        """The linear map that shifts every encoding by delta, whatever the position: a rotation for each frequency.

            p[i + delta] = M p[i],    M = diag([[cos, sin], [-sin, cos]] of delta / base^(2j / d))

        Example:
            >>> Sinusoidal(8).shift_matrix(3).shape
            torch.Size([8, 8])
        """
        if not self.interleaved:
            raise UsageError("Sinusoidal.shift_matrix: needs interleaved=True, where each frequency has a 2 x 2 block")
        angles = self._angles(torch.tensor(delta, device=device))
        off_diagonal = torch.stack((angles.sin(), torch.zeros_like(angles)), -1).flatten()[:-1]
        matrix = angles.cos().repeat_interleave(2).diag() + off_diagonal.diag(1) - off_diagonal.diag(-1)
        return matrix.to(dtype or torch.get_default_dtype())

    def _angles(self, positions: Tensor) -> Tensor:
        # Not a buffer: module.half() would round it. In float64, since at position 10^6 the float32 angle has an
        # error of 0.03; Apple's GPUs have no float64.
        exact = torch.float32 if positions.device.type == "mps" else torch.float64
        exponents = torch.arange(0, self.embed_dim, 2, device=positions.device).to(exact) / self.embed_dim
        return positions.to(exact).unsqueeze(-1) * self.base**-exponents


class Learned(ResettableModule):
    """Adds a learned vector to each position.

        p[i] = row i of a table

    Args:
        max_positions: the number of positions; others are an error
        embed_dim: the size of a vector
        device: the device of the table
        dtype: the dtype of the table

    Shape: x (*batch, length, embed_dim) -> the same. ``offset`` is the position of the first vector, or a tensor of
        them, one for each entry of the leading batch axes.

    Reference: Gehring et al. (2017), arXiv 1705.03122, section 3.1.

    Example:
        >>> Learned(10, 8)(torch.randn(2, 5, 8), offset=5).shape
        torch.Size([2, 5, 8])
    """

    repr_settings = ("max_positions", "embed_dim")

    def __init__(self, max_positions: int, embed_dim: int, *, device: Device = None, dtype: Dtype = None) -> None:
        super().__init__()
        self.max_positions, self.embed_dim = max_positions, embed_dim
        self.table = nn.Parameter(torch.empty(max_positions, embed_dim, device=device, dtype=dtype))
        self._init_parameters()

    def _init_parameters(self) -> None:
        nn.init.normal_(self.table, std=0.02)

    def forward(
        self, x: Float[Tensor, "*batch length {self.embed_dim}"], offset: Offset = 0
    ) -> Float[Tensor, "*batch length {self.embed_dim}"]:
        offset, length = _broadcast_offset(x, self.embed_dim, offset), x.shape[-2]
        self.check_positions(offset, length)
        if isinstance(offset, int):
            rows = self.table[offset : offset + length]
        else:
            rows = nn.functional.embedding(_make_positions(length, offset, x.device), self.table)
        return (x + rows).to(x.dtype)

    def check_positions(self, offset: int | Tensor, length: int) -> None:
        """Raise UsageError for positions that the table does not have.

        Args:
            offset: the first position
            length: the number of positions
        """
        if isinstance(offset, Tensor) and (torch.compiler.is_compiling() or not offset.numel()):
            return  # a compiled graph cannot branch on values; there the lookup itself raises
        first, last = (offset, offset) if isinstance(offset, int) else (int(offset.min()), int(offset.max()))
        if length and (first < 0 or last + length > self.max_positions):
            raise UsageError(
                f"Learned: positions must be in 0..{self.max_positions - 1}, got {first}..{last + length - 1}"
            )


def binary_code(length: int, bits: int | None = None) -> Int[Tensor, "length bits"]:
    """The positions as binary numbers, lowest bit first: like the sines, from high to low frequency.

        code[i, j] = floor(i / 2^j) mod 2

    Args:
        length: the number of positions
        bits: the number of bits; as many as all positions need by default, with fewer the numbers repeat

    Shape: -> (length, bits)

    Returns: the bits of each position, 0 or 1

    Example:
        >>> binary_code(6).shape
        torch.Size([6, 3])
    """
    bits = max(1, (length - 1).bit_length()) if bits is None else bits
    return torch.arange(length).unsqueeze(-1) >> torch.arange(bits) & 1


def _make_positions(length: int, offset: int | Tensor, device: Device) -> Tensor:
    if isinstance(offset, int):
        return torch.arange(length, device=device) + offset
    offset = offset.to(device or offset.device)
    return offset.unsqueeze(-1) + torch.arange(length, device=offset.device)


def _broadcast_offset(x: Tensor, embed_dim: int, offset: Offset) -> int | Tensor:
    """The offset with an axis of size 1 for each batch axis that it does not have; raises if a shape does not fit."""
    if x.ndim < 2 or x.shape[-1] != embed_dim:
        raise ShapeError(
            f"x must be (*batch, length, embed_dim) with embed_dim {embed_dim}, but its shape is {tuple(x.shape)}"
        )
    if isinstance(offset, int):
        return offset
    batch = x.shape[:-2]
    if offset.shape != batch[: offset.ndim]:
        raise ShapeError(
            f"offset must be an integer or a tensor that begins like the batch axes {tuple(batch)} of x, "
            f"but its shape is {tuple(offset.shape)}"
        )
    return offset.reshape(offset.shape + (1,) * (len(batch) - offset.ndim)) if offset.ndim else offset
