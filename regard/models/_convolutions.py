"""A small convolutional network that turns an image into a grid of vectors to look at."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from regard.errors import ShapeError, UsageError

STRIDE = 8  # pixels of an image that make one cell, along each axis
TURNS = (1, 2, 4, 8)  # halves of a turn
PLACE = 4 * len(TURNS)  # numbers that say where a cell is


class Convolutions(nn.Module):
    """From pixels to a grid, one vector for each 8 by 8 pixels.

        image -> 4 convolutions with norms, rectifiers, pools -> 1 that knows where a cell is -> [cell; where it is]

    What a cell says knows what surrounds it (39 pixels along each axis) and where it is: its row and column are waves
    (`where`), given to the last layer and kept as the last numbers of the vector, so that an order in space can be
    told from the vectors alone.

    >>> Convolutions(channels=1, dim=32)(torch.rand(2, 1, 64, 48)).shape
    torch.Size([2, 48, 32])
    """

    def __init__(self, channels: int = 3, dim: int = 128, width: int = 24):
        super().__init__()
        if dim <= PLACE:
            raise UsageError(f"dim={dim} is too small: {PLACE} numbers of a cell say where it is")
        self.channels, self.dim = channels, dim
        sizes = (channels, width, 2 * width, dim, dim)
        kernels, strides, self.pools = (5, 3, 3, 3), (2, 1, 1, 1), (1, 2, 2, 1)
        self.layers = nn.ModuleList(
            nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, bias=False)
            for before, after, kernel, stride in zip(sizes, sizes[1:], kernels, strides, strict=False)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(size) for size in sizes[1:])
        self.last = nn.Conv2d(dim + PLACE, dim - PLACE, 1)
        for layer in (*self.layers, self.last):
            nn.init.kaiming_normal_(layer.get_parameter("weight"), nonlinearity="relu")

    def forward(self, images: Float[Tensor, "rows channels height width"]) -> Float[Tensor, "rows cells dim"]:
        if images.shape[1] != self.channels or min(images.shape[2:]) < STRIDE:
            raise ShapeError(
                f"this network takes images (rows, {self.channels}, height, width) of {STRIDE} pixels or more, got"
                f" {tuple(images.shape)}"
            )
        seen = images.contiguous(memory_format=torch.channels_last) - 0.5
        for layer, norm, pool in zip(self.layers, self.norms, self.pools, strict=True):
            seen = torch.relu(norm(layer(seen)))
            # the largest of four, not every other one: a digit looks the same wherever it stands in a cell
            seen = max_pool2d(seen, pool) if pool > 1 else seen
        places = where(*seen.shape[2:]).to(seen).expand(len(seen), -1, -1, -1)
        said = torch.relu(self.last(torch.cat((seen, places), 1)))
        return torch.cat((said, places), 1).flatten(2).mT


def where(down: int, across: int) -> Float[Tensor, "place down across"]:
    """The row and the column of each cell of a grid, as sine and cosine of half, one, two and four turns.

    >>> where(4, 6).shape
    torch.Size([16, 4, 6])
    """
    y, x = ((torch.arange(count) + 0.5) / count for count in (down, across))
    angles = [
        turns * math.pi * part
        for part in (y[:, None].expand(down, across), x.expand(down, across))
        for turns in TURNS
    ]
    return torch.stack([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)])
