"""How fast the Neural Turing Machine is: beside the paper's equations as they read, and by batch, rows and steps.

    python -m benchmarks.machines [--out benchmarks/results/ntm-speed.md]

Copy of 10 vectors (21 steps), one thread, forward and backward; "inference" is forward alone, without gradients. "As it
reads" is the same machine with a linear layer for each thing that a head is told and each equation in its own line, at
batch 1.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.timing import Effort, exponent, interleaved
from regard.models import NeuralTuringMachine

EFFORT = Effort(rounds=9, least=0.3, budget=20.0)
STEPS = 21


class Head(nn.Module):
    """What the paper says a head is told, one layer each (section 3.3)."""

    def __init__(self, dim: int, width: int):
        super().__init__()
        self.key, self.strength, self.gate = nn.Linear(dim, width), nn.Linear(dim, 1), nn.Linear(dim, 1)
        self.offsets, self.sharpness = nn.Linear(dim, 3), nn.Linear(dim, 1)

    def forward(self, hidden: Tensor, memory: Tensor, previous: Tensor) -> Tensor:
        key, strength = self.key(hidden).tanh(), F.softplus(self.strength(hidden))
        alike = F.cosine_similarity(memory, key.unsqueeze(1), dim=-1)  # eq. 6
        found = F.softmax(strength * alike, dim=-1)  # eq. 5
        gate = torch.sigmoid(self.gate(hidden))
        blend = gate * found + (1 - gate) * previous  # eq. 7
        shares = F.softmax(self.offsets(hidden), dim=-1)
        moved = [torch.roll(blend, at - 1, dims=-1) * shares[:, at : at + 1] for at in range(3)]
        spread = moved[0] + moved[1] + moved[2]  # eq. 8
        power = spread ** (1 + F.softplus(self.sharpness(hidden)))
        return power / (power.sum(-1, keepdim=True) + 1e-16)  # eq. 9


class AsItReads(nn.Module):
    """One read head, one write head, an LSTM."""

    def __init__(self, inputs: int, outputs: int, rows: int = 128, width: int = 20, dim: int = 100):
        super().__init__()
        self.rows, self.width, self.dim = rows, width, dim
        self.cell = nn.LSTMCell(inputs + width, dim)
        self.reader, self.writer = Head(dim, width), Head(dim, width)
        self.erase, self.add = nn.Linear(dim, width), nn.Linear(dim, width)
        self.output = nn.Linear(dim + width, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        batch = len(inputs)
        memory = inputs.new_full((batch, self.rows, self.width), 1e-6)
        read = inputs.new_zeros(batch, self.width)
        reading = writing = F.one_hot(torch.zeros(batch, dtype=torch.long), self.rows).float()
        hidden = cell = inputs.new_zeros(batch, self.dim)
        outputs = []
        for now in inputs.unbind(1):
            hidden, cell = self.cell(torch.cat([now, read], -1), (hidden, cell))
            writing = self.writer(hidden, memory, writing)
            erase, add = torch.sigmoid(self.erase(hidden)), torch.tanh(self.add(hidden))
            memory = memory * (1 - writing.unsqueeze(-1) * erase.unsqueeze(1))  # eq. 3
            memory = memory + writing.unsqueeze(-1) * add.unsqueeze(1)  # eq. 4
            reading = self.reader(hidden, memory, reading)
            read = (reading.unsqueeze(1) @ memory).squeeze(1)  # eq. 2
            outputs.append(self.output(torch.cat([hidden, read], -1)))
        return torch.stack(outputs, 1)


def trained_on(model: nn.Module, batch: int, steps: int = STEPS) -> Callable[[], object]:
    """One forward and backward pass."""
    inputs, parameters = torch.randint(2, (batch, steps, 9)).float(), list(model.parameters())

    def once() -> object:
        made = model(inputs)
        return torch.autograd.grad((made[0] if isinstance(made, tuple) else made).sum(), parameters)

    return once


def asked(model: nn.Module, batch: int) -> Callable[[], object]:
    """One forward pass without gradients."""
    inputs = torch.randint(2, (batch, STEPS, 9)).float()
    return torch.no_grad()(lambda: model(inputs))


def machine(rows: int = 128, fused: bool = False) -> NeuralTuringMachine:
    model = NeuralTuringMachine(9, 8, memory_rows=rows)
    if fused:
        model.compile_step()
    return model


def table() -> str:
    """All comparisons, each in turns in one process."""
    plain, ours, fused, many, plain_asked, ours_asked = interleaved(
        [
            trained_on(AsItReads(9, 8), 1),
            trained_on(machine(), 1),
            trained_on(machine(fused=True), 1),
            trained_on(machine(), 32),
            asked(AsItReads(9, 8), 1),
            asked(machine(), 1),
        ],
        EFFORT,
    )
    lines = ["| what | milliseconds | against | times |", "|---|---|---|---|"]

    def line(what: str, took: list[float], against: str, ratio: list[float]) -> None:
        lines.append(
            f"| {what} | {1e3 * statistics.median(took):.1f} | {against} | {statistics.median(ratio):.2f} |"
        )

    line("as it reads, batch 1", plain, "itself", [1.0])
    line("regard, batch 1", ours, "as it reads, time", [a / b for a, b in zip(plain, ours, strict=True)])
    line(
        "regard, compile=on, batch 1",
        fused,
        "as it reads, time",
        [a / b for a, b in zip(plain, fused, strict=True)],
    )
    line(
        "regard, batch 32",
        many,
        "batch 1, sequences a second",
        [32 * a / b for a, b in zip(ours, many, strict=True)],
    )
    line("as it reads, inference, batch 1", plain_asked, "itself", [1.0])
    line(
        "regard, inference, batch 1",
        ours_asked,
        "as it reads, time",
        [a / b for a, b in zip(plain_asked, ours_asked, strict=True)],
    )
    lines += ["", "| growth | from | to | exponent |", "|---|---|---|---|"]
    for what, sizes, make in (
        ("memory rows, batch 32", (512, 1024, 2048, 4096), lambda n: trained_on(machine(n), 32, 5)),
        ("steps, batch 1", (20, 40, 80, 160), lambda n: trained_on(machine(), 1, n)),
    ):
        costs = [statistics.median(took) for took in interleaved([make(size) for size in sizes], EFFORT)]
        lines.append(
            f"| {what} | {sizes[0]}: {1e3 * costs[0]:.1f} ms | {sizes[-1]}: {1e3 * costs[-1]:.1f} ms |"
            f" {exponent(sizes, costs):.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    torch.set_num_threads(1)
    found = table()
    print(found)
    if out is not None:
        head = f"# Speed of the Neural Turing Machine\n\n{__doc__.split('    python')[0].strip()}\n\n"
        out.write_text(f"{head}    python -m benchmarks.machines --out {out}\n\n{found}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
