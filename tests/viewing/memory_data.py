"""Data of a memory page: a sequence copied by the addressing functions, with rules in place of a controller."""

from dataclasses import fields

import torch
from torch import Tensor

from regard.attention.addressing import address, read, write
from regard.viewing.pages import HtmlPage, MemoryPageData, memory_page


def copy_with_memory(sequence: Tensor, rows: int = 12) -> MemoryPageData:
    """Write a sequence row by row, go back to the first row, and read it in the same order.

    The write head moves one row forward at every step of the input. After the input, the read head finds the first row
    by its content and moves forward as well.
    """
    length, size = sequence.shape
    memory = torch.full((rows, size), 1e-3)
    write_weights = torch.nn.functional.one_hot(torch.tensor([rows - 1]), rows).float()  # the row before the first
    read_weights = torch.full((1, rows), 1 / rows)
    one, forward, stay = torch.ones(1), torch.tensor([[0.0, 0.02, 0.98]]), torch.tensor([[0.02, 0.96, 0.02]])
    recorded: dict[str, list[Tensor]] = {field.name: [] for field in fields(MemoryPageData)}
    for step in range(2 * length):
        is_reading = step >= length
        vector = torch.zeros(size) if is_reading else sequence[step]
        key = sequence[:1]
        offsets = stay if is_reading else forward
        write_weights = address(key, one, 0 * one, offsets, 20 * one, memory, write_weights)
        strength = 0 * one if is_reading else one
        memory = write(memory, strength * write_weights, erase=torch.ones(1, size), add=vector[None])
        if is_reading:
            gate = one if step == length else 0 * one
            offsets = stay if step == length else forward
            read_weights = address(key, 60 * one, gate, offsets, 20 * one, memory, read_weights)
        values = {
            "inputs": vector,
            "outputs": read(read_weights, memory)[0] if is_reading else torch.zeros(size),
            "read_weights": read_weights,
            "write_weights": strength * write_weights,
            "memory": memory,
            "add_vectors": vector[None],
            "read_vectors": read(read_weights, memory),
            "targets": sequence[step - length] if is_reading else torch.zeros(size),
            "target_mask": torch.tensor(is_reading),
        }
        for name, tensor in values.items():
            recorded[name].append(tensor)
    return MemoryPageData(**{name: torch.stack(tensors) for name, tensors in recorded.items()})


def copy_page() -> HtmlPage:
    """A page on which six random vectors are copied."""
    torch.manual_seed(0)
    sequence = (torch.rand(6, 6) > 0.5).float()
    return memory_page(copy_with_memory(sequence), title="A memory copies a sequence")
