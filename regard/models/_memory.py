"""What a Transformer's steps look back at: the keys and values of the source, of all layers in one tensor."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.models._packed import Packed

VECTOR = 16  # keys; PyTorch's fused attention takes half the time for whole vectors of them


def whole(keys: int) -> int:
    """So many keys in whole vectors, the last of which nobody sees.

    >>> whole(16), whole(17)
    (16, 32)
    """
    return -(-keys // VECTOR) * VECTOR


class Read:
    """Keys and values as they were read, and a mask: -inf where a sentence has no more words."""

    def __init__(
        self, packed: Packed, memory: Float[Tensor, "rows source dim"], lengths: Int[Tensor, " rows"]
    ):
        sentences, self.source, dim = memory.shape
        upto = whole(self.source)
        memory = F.pad(memory, (0, 0, 0, upto - self.source))
        both = packed.read(memory.flatten(0, 1)).view(sentences, upto, -1, 2 * dim)
        real = torch.arange(upto, device=lengths.device) < lengths[:, None]
        mask = memory.new_zeros(sentences, 1, 1, upto).masked_fill_(~real[:, None, None], -math.inf)
        self.packed = packed
        self.asked: list[Tensor] = []  # the queries of each layer in the last step
        self._keep(both.transpose(1, 2).contiguous(), mask)

    def _keep(self, both: Float[Tensor, "sentences layers source joined"], mask: Tensor) -> None:
        self.both, self.mask = both, mask
        parts = [both[:, number].split(self.packed.dim, -1) for number in range(both.shape[1])]
        self.layers = [(self.packed.split(key), self.packed.split(value)) for key, value in parts]

    def select(self, sentences: Int[Tensor, " new"]) -> None:
        self._keep(self.both.index_select(0, sentences), self.mask.index_select(0, sentences))

    def close(self, left: int, holes: Tensor, movers: Tensor) -> None:
        """See `closed`."""
        self._keep(*(closed(part, left, holes, movers) for part in (self.both, self.mask)))

    def look(self, asking: Float[Tensor, "rows dim"], number: int, width: int) -> Float[Tensor, "rows dim"]:
        """What a layer sees; the `width` rows of a sentence ask together."""
        layer, dim = self.packed.layers[number], self.packed.dim
        query = self.packed.split(layer.back(asking).view(-1, width, dim))
        self.asked.append(query)
        seen = F.scaled_dot_product_attention(query, *self.layers[number], self.mask)
        return layer.back_out(seen.transpose(1, 2).reshape(-1, dim))

    def weights(self) -> Float[Tensor, "sentences width source"]:
        """Where the last words looked, on average over layers and heads."""
        seen = []
        for query, (key, _) in zip(self.asked, self.layers, strict=True):
            scores = query @ key.mT / math.sqrt(query.shape[-1]) + self.mask
            seen.append(scores[..., : self.source].softmax(-1).mean(1))
        return torch.stack(seen).mean(0)


def closed(part: Tensor, left: int, holes: Tensor, movers: Tensor) -> Tensor:
    """Those that stay are moved to the front, into the places of those that left; nobody else moves."""
    part.index_copy_(0, holes, part.index_select(0, movers))
    return part[:left]
