"""Speed of the Neural Turing Machine compared with a direct transcription of the paper, and by batch, rows and steps.

    python -m benchmarks.machines [--out benchmarks/results/ntm-speed.md]

Copy of 10 vectors (21 steps), one thread, forward and backward; "inference" is forward only, without gradients. The
"transcription" is the same model with a linear layer per head parameter and one line per equation, at batch size 1.
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
NUM_STEPS = 21


class Head(nn.Module):
    """The parameters of a head, one linear layer each (section 3.3)."""

    def __init__(self, dim: int, width: int):
        super().__init__()
        self.key, self.strength, self.gate = nn.Linear(dim, width), nn.Linear(dim, 1), nn.Linear(dim, 1)
        self.offsets, self.sharpness = nn.Linear(dim, 3), nn.Linear(dim, 1)

    def forward(self, hidden: Tensor, memory: Tensor, previous: Tensor) -> Tensor:
        key, strength = self.key(hidden).tanh(), F.softplus(self.strength(hidden))
        similarity = F.cosine_similarity(memory, key.unsqueeze(1), dim=-1)  # eq. 6
        content = F.softmax(strength * similarity, dim=-1)  # eq. 5
        gate = torch.sigmoid(self.gate(hidden))
        blend = gate * content + (1 - gate) * previous  # eq. 7
        offsets = F.softmax(self.offsets(hidden), dim=-1)
        rolled = [torch.roll(blend, index - 1, dims=-1) * offsets[:, index : index + 1] for index in range(3)]
        shifted = rolled[0] + rolled[1] + rolled[2]  # eq. 8
        power = shifted ** (1 + F.softplus(self.sharpness(hidden)))
        return power / (power.sum(-1, keepdim=True) + 1e-16)  # eq. 9


class Transcription(nn.Module):
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
        for x in inputs.unbind(1):
            hidden, cell = self.cell(torch.cat([x, read], -1), (hidden, cell))
            writing = self.writer(hidden, memory, writing)
            erase, add = torch.sigmoid(self.erase(hidden)), torch.tanh(self.add(hidden))
            memory = memory * (1 - writing.unsqueeze(-1) * erase.unsqueeze(1))  # eq. 3
            memory = memory + writing.unsqueeze(-1) * add.unsqueeze(1)  # eq. 4
            reading = self.reader(hidden, memory, reading)
            read = (reading.unsqueeze(1) @ memory).squeeze(1)  # eq. 2
            outputs.append(self.output(torch.cat([hidden, read], -1)))
        return torch.stack(outputs, 1)


def training_pass(model: nn.Module, batch: int, steps: int = NUM_STEPS) -> Callable[[], object]:
    """One forward and backward pass."""
    inputs, parameters = torch.randint(2, (batch, steps, 9)).float(), list(model.parameters())

    def run() -> object:
        output = model(inputs)
        return torch.autograd.grad((output[0] if isinstance(output, tuple) else output).sum(), parameters)

    return run


def inference_pass(model: nn.Module, batch: int) -> Callable[[], object]:
    """One forward pass without gradients."""
    inputs = torch.randint(2, (batch, NUM_STEPS, 9)).float()
    return torch.no_grad()(lambda: model(inputs))


def build(memory_rows: int = 128, compile_step: bool = False) -> NeuralTuringMachine:
    model = NeuralTuringMachine(9, 8, memory_rows=memory_rows)
    if compile_step:
        model.compile_step()
    return model


def table() -> str:
    """All comparisons, measured alternately in one process."""
    plain, ours, compiled, many, plain_inference, ours_inference = interleaved(
        [
            training_pass(Transcription(9, 8), 1),
            training_pass(build(), 1),
            training_pass(build(compile_step=True), 1),
            training_pass(build(), 32),
            inference_pass(Transcription(9, 8), 1),
            inference_pass(build(), 1),
        ],
        EFFORT,
    )
    lines = ["| model | milliseconds | compared with | ratio |", "|---|---|---|---|"]

    def line(name: str, seconds: list[float], reference: str, ratio: list[float]) -> None:
        lines.append(
            f"| {name} | {1e3 * statistics.median(seconds):.1f} | {reference} | {statistics.median(ratio):.2f} |"
        )

    line("transcription, batch 1", plain, "itself", [1.0])
    line("regard, batch 1", ours, "transcription, time", [a / b for a, b in zip(plain, ours, strict=True)])
    line(
        "regard, compile=on, batch 1",
        compiled,
        "transcription, time",
        [a / b for a, b in zip(plain, compiled, strict=True)],
    )
    line(
        "regard, batch 32", many, "batch 1, sequences per second", [32 * a / b for a, b in zip(ours, many, strict=True)]
    )
    line("transcription, inference, batch 1", plain_inference, "itself", [1.0])
    line(
        "regard, inference, batch 1",
        ours_inference,
        "transcription, time",
        [a / b for a, b in zip(plain_inference, ours_inference, strict=True)],
    )
    lines += ["", "| growth | from | to | exponent |", "|---|---|---|---|"]
    for name, sizes, make in (
        ("memory rows, batch 32", (512, 1024, 2048, 4096), lambda n: training_pass(build(n), 32, 5)),
        ("steps, batch 1", (20, 40, 80, 160), lambda n: training_pass(build(), 1, n)),
    ):
        costs = [statistics.median(seconds) for seconds in interleaved([make(size) for size in sizes], EFFORT)]
        lines.append(
            f"| {name} | {sizes[0]}: {1e3 * costs[0]:.1f} ms | {sizes[-1]}: {1e3 * costs[-1]:.1f} ms |"
            f" {exponent(sizes, costs):.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    torch.set_num_threads(1)
    text = table()
    print(text)
    if out is not None:
        head = f"# Speed of the Neural Turing Machine\n\n{__doc__.split('    python')[0].strip()}\n\n"
        out.write_text(f"{head}    python -m benchmarks.machines --out {out}\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
