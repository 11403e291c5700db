"""A trace of the memory of a Neural Turing Machine, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.data.parallel import pluralize
from regard.errors import UnknownNameError
from regard.tasks.predictor import Explanation

if TYPE_CHECKING:
    from regard.viewing.figures import Figure
    from regard.viewing.pages import HtmlPage

__all__ = ["MemoryTrace"]

MIN_SHOWN_WEIGHT = 0.01  # in the terminal; less is everywhere


@dataclass(frozen=True)
class MemoryTrace(Explanation):
    """Everything that a Neural Turing Machine did with one sequence, step by step: the figures of the paper.

    Args:
        prediction: how many bits are wrong; the score is the log-probability of the target bits
        maps: the weights of the write heads and of the read heads over the memory rows, (heads, steps, rows)
        name: of the algorithm
        inputs, outputs, targets: the sequence; outputs after the sigmoid
        read_vectors, add_vectors: what each read head read and each write head added
        memory: the memory after each step
        optimal_outputs: the targets; for ngrams the optimal prediction
        target_mask: steps at which an output is expected
        num_wrong_bits, num_target_bits: wrong bits among the expected ones
        head: the number of the head to draw; None: the sharpest
    """

    name: str
    inputs: Float[Tensor, "steps input_dim"]
    outputs: Float[Tensor, "steps output_dim"]
    targets: Float[Tensor, "steps output_dim"]
    read_vectors: Float[Tensor, "steps read_heads width"]
    add_vectors: Float[Tensor, "steps write_heads width"]
    memory: Float[Tensor, "steps rows width"]
    optimal_outputs: Float[Tensor, "steps output_dim"]
    target_mask: Bool[Tensor, " steps"]
    num_wrong_bits: int
    num_target_bits: int
    head: int | None = None

    @property
    def write_weights(self) -> Float[Tensor, "steps write_heads rows"]:
        """The weights of each write head over the memory rows."""
        return self.maps[0].weights.transpose(0, 1)

    @property
    def read_weights(self) -> Float[Tensor, "steps read_heads rows"]:
        """The weights of each read head over the memory rows."""
        return self.maps[1].weights.transpose(0, 1)

    @property
    def masked_outputs(self) -> Float[Tensor, "steps output_dim"]:
        """The expected outputs; 0 at the other steps."""
        return self.outputs.where(self.target_mask[:, None], 0.0)

    def used_rows(self, min_weight: float = 0.05) -> Tensor:
        """The rows with a weight above `min_weight`, in the order of the memory ring after its widest gap.

        Where no head is sharp, the rows with more than half of the largest weight; all rows if none stands out.
        """
        largest = torch.cat((self.read_weights, self.write_weights), 1).amax((0, 1))
        is_used = largest > min(min_weight, float(largest.max()) / 2)
        rows = is_used.nonzero().squeeze(1) if is_used.any() else torch.arange(len(is_used))
        gaps = (rows.roll(-1) - rows) % len(is_used)
        first = len(rows) - int(gaps.flip(0).argmax())  # after the last of the widest gaps
        return rows.roll(-first)

    @property
    def sharpest_heads(self) -> tuple[int, int]:
        """The read head and the write head whose weights are closest to a single row."""
        reader, writer = (int(weights.amax(-1).mean(0).argmax()) for weights in (self.read_weights, self.write_weights))
        return reader, writer

    def select_heads(self, head: int | None) -> tuple[int, int]:
        """The read head and the write head of this number; the sharpest where there is none of that number."""
        reader, writer = self.sharpest_heads
        if head is None:
            return reader, writer
        num_readers, num_writers = self.read_weights.shape[1], self.write_weights.shape[1]
        if not 0 <= head < max(num_readers, num_writers):
            heads = f"{pluralize(num_readers, 'read head')} and {pluralize(num_writers, 'write head')}"
            raise UnknownNameError(f"no head {head}: this model has {heads}, counted from 0")
        return head if head < num_readers else reader, head if head < num_writers else writer

    @property
    def title(self) -> str:
        """The algorithm, the rows in use, and the heads that are drawn, where there are others."""
        reader, writer = self.select_heads(self.head)
        maps = {f"write head {writer}": self.maps[0], f"read head {reader}": self.maps[1]}
        heads = "".join(f", {name}" for name, one in maps.items() if len(one.weights) > 1)
        return f"{self.name}: the {len(self.used_rows())} rows in use{heads}"

    def to_text(self, *, color: bool | None = None, width: int | None = None, language: str = "en") -> str:
        """The weights of a write head and a read head over time, with the vectors above them."""
        from regard.viewing import MemoryData, terminal

        timeline = self._select_timeline()
        for name in ("write_weights", "read_weights", "outputs", "targets"):  # without the traces that are everywhere
            values = timeline[name]
            timeline[name] = values.where(values > min(MIN_SHOWN_WEIGHT, float(values.max()) / 2), 0.0)
        figure = terminal.memory_timeline(MemoryData(**timeline), color=color, width=width)
        return f"{self.title}; {self.prediction.text}\n\n{figure}"

    def to_figure(self) -> Figure:
        """The same as a figure, as in the paper."""
        from regard.viewing import MemoryData, figures

        return figures.memory_timeline(MemoryData(**self._select_timeline()), title=self.title)

    def to_page(self, *, language: str | None = None) -> HtmlPage:
        """An HTML page that plays the steps, with every head and row."""
        from regard.viewing import pages

        heads = ("read_weights", "write_weights", "add_vectors", "read_vectors")
        values = {name: getattr(self, name) for name in ("inputs", "outputs", "memory", "target_mask", *heads)}
        data = pages.MemoryPageData(**values, targets=self.optimal_outputs)
        return pages.memory_page(data, title=self.name, heads=self.select_heads(self.head), language=language)

    def to_json(self) -> dict[str, Any]:
        """The timeline as plain lists and numbers, with the numbers of the steps that have a target."""
        reader, writer = self.select_heads(self.head)
        timeline = self._select_timeline()
        return {
            **self.prediction.to_json(),
            "num_wrong_bits": self.num_wrong_bits,
            "num_target_bits": self.num_target_bits,
            "read_head": reader,
            "write_head": writer,
            "rows": timeline.pop("row_labels"),
            "target_steps": timeline.pop("target_mask").nonzero().flatten().tolist(),
            **{name: tensor.tolist() for name, tensor in timeline.items()},
        }

    def _select_timeline(self) -> dict[str, Any]:
        """The rows in use, one head that writes and one that reads, and the vectors that go with them."""
        reader, writer = self.select_heads(self.head)
        rows = self.used_rows()
        return {
            "write_weights": self.write_weights[:, writer, rows],
            "read_weights": self.read_weights[:, reader, rows],
            "row_labels": rows.tolist(),
            "inputs": self.inputs,
            "outputs": self.outputs,
            "targets": self.optimal_outputs,
            "target_mask": self.target_mask,
            "add_vectors": self.add_vectors[:, writer],
            "read_vectors": self.read_vectors[:, reader],
        }
