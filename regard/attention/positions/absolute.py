"""Where a vector stands, told by adding something to it.

    x'[i] = x[i] + p[offset + i]

Attention itself does not see order: permuted keys give the same context. So the order goes into the vectors.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ShapeError, UsageError

__all__ = ["Learned", "Sinusoidal", "binary_code"]

Offset = int | Int[Tensor, "*leading"]


class Sinusoidal(nn.Module):
    """Adds to each position the hands of many clocks, from fast to slow.

        p[i, 2j] = sin(i / base^(2j / dim)),    p[i, 2j+1] = cos(i / base^(2j / dim))

    There is no longest sequence and nothing to learn. A tensor of offsets gives each leading batch entry its
    own. Vaswani et al. (2017), arXiv 1706.03762, section 3.5.

    >>> Sinusoidal(dim=8)(torch.randn(2, 5, 8), offset=100).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, dim: int, base: float | int = 10000.0) -> None:
        super().__init__()
        if dim < 2 or dim % 2:
            raise UsageError(f"Sinusoidal: dim must be even, as every sine has its cosine, but it is {dim}.")
        self.dim, self.base = dim, base

    def forward(
        self, x: Float[Tensor, "*batch length {self.dim}"], offset: Offset = 0
    ) -> Float[Tensor, "*batch length {self.dim}"]:
        offset = _beside(x, self.dim, offset)
        wide = torch.promote_types(x.dtype, torch.float32)
        return (x + self.encoding(x.shape[-2], offset, dtype=wide, device=x.device)).to(x.dtype)

    def encoding(
        self,
        length: int,
        offset: Offset = 0,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "*leading length {self.dim}"]:
        """The vectors of the positions offset .. offset + length - 1.

        >>> Sinusoidal(dim=8).encoding(5).shape
        torch.Size([5, 8])
        """
        angles = self._angles(_positions(length, offset, device))
        pairs = torch.stack((angles.sin(), angles.cos()), -1)
        return pairs.flatten(-2).to(dtype or torch.get_default_dtype())

    def shift_matrix(
        self,
        delta: float | int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "{self.dim} {self.dim}"]:
        """The linear map that moves every encoding on by delta, whatever the position: each clock turns.

            p[i + delta] = M p[i],    M = diag([[cos, sin], [-sin, cos]] of delta / base^(2j / dim))

        >>> Sinusoidal(dim=8).shift_matrix(3).shape
        torch.Size([8, 8])
        """
        angles = self._angles(torch.tensor(delta, device=device))
        beside = torch.stack((angles.sin(), torch.zeros_like(angles)), -1).flatten()[:-1]
        matrix = angles.cos().repeat_interleave(2).diag() + beside.diag(1) - beside.diag(-1)
        return matrix.to(dtype or torch.get_default_dtype())

    def _angles(self, positions: Tensor) -> Tensor:
        # No buffer: module.half() would round it. And float64, since at position 10^6 the angle in float32 is
        # off by 0.03; Apple's GPUs have no float64.
        exact = torch.float32 if positions.device.type == "mps" else torch.float64
        exponents = torch.arange(0, self.dim, 2, device=positions.device).to(exact) / self.dim
        return positions.to(exact).unsqueeze(-1) * self.base**-exponents

    def extra_repr(self) -> str:
        return f"dim={self.dim}, base={self.base}"


class Learned(nn.Module):
    """Adds to each position a vector of its own, found by training.

        p[i] = row i of a table

    Positions beyond the table are refused. Gehring et al. (2017), arXiv 1705.03122, section 3.1.

    >>> Learned(max_positions=10, dim=8)(torch.randn(2, 5, 8), offset=5).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, max_positions: int, dim: int) -> None:
        super().__init__()
        self.max_positions, self.dim = max_positions, dim
        self.table = nn.Parameter(torch.empty(max_positions, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table, std=0.02)

    def forward(
        self, x: Float[Tensor, "*batch length {self.dim}"], offset: Offset = 0
    ) -> Float[Tensor, "*batch length {self.dim}"]:
        offset, length = _beside(x, self.dim, offset), x.shape[-2]
        self._refuse_beyond(offset, length)
        if isinstance(offset, int):
            rows = self.table[offset : offset + length]
        else:
            rows = nn.functional.embedding(_positions(length, offset, x.device), self.table)
        return (x + rows).to(x.dtype)

    def _refuse_beyond(self, offset: int | Tensor, length: int) -> None:
        if isinstance(offset, Tensor) and (torch.compiler.is_compiling() or not offset.numel()):
            return  # a compiled graph cannot branch on values; there the lookup itself refuses them
        first, last = (offset, offset) if isinstance(offset, int) else (int(offset.min()), int(offset.max()))
        if length and (first < 0 or last + length > self.max_positions):
            raise UsageError(
                f"Learned: positions must be in 0..{self.max_positions - 1}, "
                f"but these are {first}..{last + length - 1}."
            )

    def extra_repr(self) -> str:
        return f"max_positions={self.max_positions}, dim={self.dim}"


def binary_code(length: int, bits: int | None = None) -> Int[Tensor, "length bits"]:
    """The positions as a computer counts them, lowest bit first: like the sines, from fast to slow.

        code[i, j] = floor(i / 2^j) mod 2

    Without `bits`, there are just enough to tell all positions apart; with fewer, the count starts again.

    >>> binary_code(6).shape
    torch.Size([6, 3])
    """
    bits = max(1, (length - 1).bit_length()) if bits is None else bits
    return torch.arange(length).unsqueeze(-1) >> torch.arange(bits) & 1


def _positions(length: int, offset: int | Tensor, device: torch.device | str | None) -> Tensor:
    if isinstance(offset, int):
        return torch.arange(length, device=device) + offset
    offset = offset.to(device or offset.device)
    return offset.unsqueeze(-1) + torch.arange(length, device=offset.device)


def _beside(x: Tensor, dim: int, offset: Offset) -> int | Tensor:
    """Checks x, and gives offsets of the first batch axes an axis of 1 for each of the others."""
    if x.ndim < 2 or x.shape[-1] != dim:
        raise ShapeError(
            f"x must be (*batch, length, dim) with dim {dim}, but its shape is {tuple(x.shape)}."
        )
    if isinstance(offset, int):
        return offset
    batch = x.shape[:-2]
    if offset.shape != batch[: offset.ndim]:
        raise ShapeError(
            f"offset must be an integer or a tensor that begins like the batch axes {tuple(batch)} of x, "
            f"but its shape is {tuple(offset.shape)}."
        )
    return offset.reshape(offset.shape + (1,) * (len(batch) - offset.ndim)) if offset.ndim else offset
