"""A memory and its heads over time, as in a Neural Turing Machine."""

from __future__ import annotations

from dataclasses import dataclass, fields

from jaxtyping import Bool, Float
from torch import Tensor

from regard.errors import ShapeError, UsageError
from regard.viewing.players._player import Player

AXES = {"inputs": 2, "outputs": 2, "reads": 3, "writes": 3, "memory": 3, "adds": 3}
AXES |= {"returned": 3, "wanted": 2, "asked": 1}


@dataclass(frozen=True)
class Tape:
    """What a machine with a memory did at every moment.

    `memory` is what stood there after the moment's writing; `adds` is what each head added, `returned` what each head
    read. `wanted` is what should have gone out, and `asked` the moments at which something should.
    """

    inputs: Float[Tensor, "moments inputs"]
    outputs: Float[Tensor, "moments outputs"]
    reads: Float[Tensor, "moments read_heads rows"]
    writes: Float[Tensor, "moments write_heads rows"]
    memory: Float[Tensor, "moments rows columns"]
    adds: Float[Tensor, "moments write_heads columns"] | None = None
    returned: Float[Tensor, "moments read_heads columns"] | None = None
    wanted: Float[Tensor, "moments outputs"] | None = None
    asked: Bool[Tensor, " moments"] | None = None

    def __post_init__(self) -> None:
        if not len(self.inputs):
            raise UsageError("Tape: there is nothing to play, no moment in the inputs.")
        for name, tensor in self.tensors().items():
            if tensor.dim() != AXES[name] or len(tensor) != len(self.inputs) or not tensor.numel():
                axes = f"{AXES[name]} axes" if AXES[name] > 1 else "1 axis"
                raise ShapeError(
                    f"Tape: {name} must have {axes}, the first of {len(self.inputs)} moments,"
                    f" but its shape is {tuple(tensor.shape)}."
                )
        moments, rows, columns = self.memory.shape
        for name, of, size in (
            ("reads", "reads", rows),
            ("writes", "writes", rows),
            ("adds", "writes", columns),
            ("returned", "reads", columns),
        ):
            heads = self.tensors()[of].shape[1]
            own = self.tensors().get(name)
            if own is not None and own.shape[1:] != (heads, size):
                raise ShapeError(
                    f"Tape: {name} must be {(moments, heads, size)} to go with a memory of {(rows, columns)},"
                    f" but its shape is {tuple(own.shape)}."
                )
        if self.wanted is not None and self.wanted.shape != self.outputs.shape:
            raise ShapeError(
                f"Tape: wanted must be {tuple(self.outputs.shape)} as the outputs are, not {tuple(self.wanted.shape)}."
            )

    def tensors(self) -> dict[str, Tensor]:
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: tensor for name, tensor in named.items() if tensor is not None}


def tape(
    recorded: Tape,
    *,
    title: str = "A memory and its heads",
    heads: tuple[int, int] = (0, 0),
    language: str | None = None,
) -> Player:
    """A page that goes through the moments of a memory: inputs, where they are written, what stands there, reads.

    `heads` are the read head and the write head that it opens on.

    >>> told = Tape(torch.rand(5, 3), torch.rand(5, 3), torch.rand(5, 1, 8), torch.rand(5, 1, 8), torch.rand(5, 8, 4))
    >>> tape(told)
    Player(... characters of HTML)
    """
    moments, rows, columns = recorded.memory.shape
    tensors = recorded.tensors()
    counts = {"reads": recorded.reads.shape[1], "writes": recorded.writes.shape[1]}
    first = dict(zip(counts, heads, strict=True))
    for name, head in first.items():
        if not 0 <= head < counts[name]:
            raise UsageError(f"tape: there is no head {head} among the {counts[name]} of {name}.")
    data = {
        "title": title,
        "moments": moments,
        "rows": rows,
        "columns": columns,
        "heads": counts,
        "open": first,
        "inputs": recorded.inputs.shape[1],
        "outputs": recorded.outputs.shape[1],
        "named": list(tensors),
    }
    blocks = {
        name: one.detach().cpu().float().contiguous().numpy().astype("<f4").tobytes()
        for name, one in tensors.items()
    }
    return Player.of(title, ["tape.js"], data, blocks, language)
