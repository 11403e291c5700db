"""A memory at work: a copying machine made of the addressing functions, with a rule in place of a controller."""

from dataclasses import fields

import torch
from torch import Tensor

from regard.attention.addressing import address, read, write
from regard.viewing.pages import HtmlPage, MemoryPageData, memory_page


def copying(sequence: Tensor, rows: int = 12) -> MemoryPageData:
    """Write a sequence row after row, go back to the start, and read it in the same order.

    The write head moves one row forward at every moment of the input. The read head finds the first row by its
    content when the input is over, and then moves along with it.
    """
    length, width = sequence.shape
    memory = torch.full((rows, width), 1e-3)
    written = torch.nn.functional.one_hot(torch.tensor([rows - 1]), rows).float()  # one before the first
    looked = torch.full((1, rows), 1 / rows)
    one, forward, still = torch.ones(1), torch.tensor([[0.0, 0.02, 0.98]]), torch.tensor([[0.02, 0.96, 0.02]])
    told: dict[str, list[Tensor]] = {field.name: [] for field in fields(MemoryPageData)}
    for moment in range(2 * length):
        reading = moment >= length
        coming = torch.zeros(width) if reading else sequence[moment]
        key = sequence[:1]
        written = address(key, one, 0 * one, still if reading else forward, 20 * one, memory, written)
        strength = 0 * one if reading else one
        memory = write(memory, strength * written, erase=torch.ones(1, width), add=coming[None])
        if reading:
            gate = one if moment == length else 0 * one
            move = still if moment == length else forward
            looked = address(key, 60 * one, gate, move, 20 * one, memory, looked)
        going = read(looked, memory)[0] if reading else torch.zeros(width)
        now = {
            "inputs": coming,
            "outputs": going,
            "reads": looked,
            "writes": strength * written,
            "memory": memory,
            "adds": coming[None],
            "returned": read(looked, memory),
            "wanted": sequence[moment - length] if reading else torch.zeros(width),
            "asked": torch.tensor(reading),
        }
        for name, tensor in now.items():
            told[name].append(tensor)
    return MemoryPageData(**{name: torch.stack(tensors) for name, tensors in told.items()})


def copied() -> HtmlPage:
    """A page on which six vectors by chance are copied."""
    torch.manual_seed(0)
    return memory_page(copying((torch.rand(6, 6) > 0.5).float()), title="A memory copies a sequence")
