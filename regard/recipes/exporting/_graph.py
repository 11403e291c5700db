"""ONNX graphs, written node by node: few of them, and each where one sees it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard._imports import require_extra

OPSET, IR = 17, 8  # the oldest that has layer normalization, so that old runtimes read it
HIDDEN = -1e30  # added to a score: a finite number, since -inf minus -inf is none

Shape = Sequence[int | str]


class Graph:
    """A graph under construction: ``graph("Add", a, b)`` adds a node and gives the name of what it computes."""

    def __init__(self, name: str):
        self.name, self.helper = name, require_extra("onnx", extra="export").helper
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self._tensors: dict[int, tuple[str, Tensor]] = {}  # a tied weight is written once

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self.several(op, 1, *inputs, **attributes)[0]

    def several(self, op: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """A node that computes several things."""
        names = [f"{op}_{len(self.nodes)}_{place}" for place in range(count)]
        self.nodes.append(self.helper.make_node(op, list(inputs), names, **attributes))
        return names

    def input(self, name: str, shape: Shape, kind: type[Any] = np.float32) -> str:
        self.inputs.append(self._value(name, shape, kind))
        return name

    def output(self, name: str, value: str, shape: Shape) -> None:
        self.nodes.append(self.helper.make_node("Identity", [value], [name]))
        self.outputs.append(self._value(name, shape, np.float32))

    def weight(self, tensor: Tensor) -> str:
        """A tensor that belongs to the model."""
        tensor = tensor.detach()
        if tensor.data_ptr() not in self._tensors:
            name = self._keep(tensor.float().cpu().contiguous().numpy())
            self._tensors[tensor.data_ptr()] = (name, tensor)  # held, so that its address stays its own
        return self._tensors[tensor.data_ptr()][0]

    def made(self, tensor: Tensor) -> str:
        """A tensor made for the graph from those of the model."""
        return self._keep(tensor.detach().float().cpu().contiguous().numpy())

    def whole(self, *numbers: int) -> str:
        """Whole numbers: axes, shapes."""
        return self._keep(np.array(numbers, np.int64))

    def scalar(self, number: int) -> str:
        return self._keep(np.array(number, np.int64))

    def number(self, number: float) -> str:
        return self._keep(np.array(number, np.float32))

    def linear(self, x: str, *layers: nn.Linear) -> str:
        """Layers side by side as one product: x [W_1; W_2]^T + [b_1; b_2]."""
        product = self("MatMul", x, self.made(torch.cat([layer.weight for layer in layers]).T))
        biases: list[Tensor | None] = [layer.bias for layer in layers]
        given = [bias for bias in biases if bias is not None]
        return self("Add", product, self.made(torch.cat(given))) if given else product

    def size(self, x: str, axis: int) -> str:
        """The length of an axis, as a list of one number."""
        return self("Shape", x, start=axis, end=axis + 1)

    def shape(self, *parts: int | str) -> str:
        """A shape of whole numbers and of sizes that are known when the graph runs."""
        return self("Concat", *(p if isinstance(p, str) else self.whole(p) for p in parts), axis=0)

    def places(self, x: str) -> str:
        """0, 1, 2, ... along the second axis."""
        return self("Range", self.scalar(0), self("Squeeze", self.size(x, 1)), self.scalar(1))

    def save(self, path: Path) -> None:
        onnx, helper = require_extra("onnx", extra="export"), self.helper
        graph = helper.make_graph(
            self.nodes, self.name, self.inputs, self.outputs, list(self.constants.values())
        )
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=IR, producer_name="regard")
        if model.ByteSize() < 2**31:  # what is larger the checker cannot take
            onnx.checker.check_model(model)
        onnx.save_model(model, str(path))

    def _keep(self, array: np.ndarray[Any, np.dtype[Any]]) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = require_extra("onnx", extra="export").numpy_helper.from_array(array, name)
        return name

    def _value(self, name: str, shape: Shape, kind: type[Any]) -> Any:
        element = self.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        return self.helper.make_tensor_value_info(name, element, list(shape))


def hidden_behind(graph: Graph, source: str, lengths: str) -> str:
    """What is added to scores: 0 up to each row's length, and so little behind it that nothing is seen."""
    real = graph("Less", graph.places(source), graph("Unsqueeze", lengths, graph.whole(1)))
    return graph("Where", real, graph.number(0.0), graph.number(HIDDEN))
