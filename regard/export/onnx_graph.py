"""ONNX graphs, written node by node: few of them, and each where one sees it.

How a recurrent model looks at its source, as nodes of an ONNX graph: scores, hide, normalize, context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard._imports import require_extra
from regard.attention import (
    Additive,
    Attention,
    Bilinear,
    Concat,
    Constant,
    Dot,
    Energy,
    LocalM,
    LocalP,
    ScaledDot,
    Temperature,
    sigmoid,
    softmax,
)
from regard.errors import ExportError

OPSET, IR_VERSION = 17, 8  # the oldest that has layer normalization, so that old runtimes read it


MASKED_SCORE = -1e30  # added to a score: a finite number, since -inf minus -inf is none


Shape = Sequence[int | str]


class OnnxGraph:
    """A graph under construction: ``graph("Add", a, b)`` adds a node and gives the name of what it computes."""

    def __init__(self, name: str):
        self.name, self.helper = name, require_extra("onnx", extra="export").helper
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self._tensors: dict[int, tuple[str, Tensor]] = {}  # a tied weight is written once

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self.multi_output(op, 1, *inputs, **attributes)[0]

    def multi_output(self, op: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """A node that computes several things."""
        names = [f"{op}_{len(self.nodes)}_{place}" for place in range(count)]
        self.nodes.append(self.helper.make_node(op, list(inputs), names, **attributes))
        return names

    def input(self, name: str, shape: Shape, kind: type[Any] = np.float32) -> str:
        self.inputs.append(self._value_info(name, shape, kind))
        return name

    def output(self, name: str, value: str, shape: Shape) -> None:
        self.nodes.append(self.helper.make_node("Identity", [value], [name]))
        self.outputs.append(self._value_info(name, shape, np.float32))

    def weight(self, tensor: Tensor) -> str:
        """A tensor that belongs to the model."""
        tensor = tensor.detach()
        if tensor.data_ptr() not in self._tensors:
            name = self._add_constant(tensor.float().cpu().contiguous().numpy())
            self._tensors[tensor.data_ptr()] = (name, tensor)  # held, so that its address stays its own
        return self._tensors[tensor.data_ptr()][0]

    def constant(self, tensor: Tensor) -> str:
        """A tensor made for the graph from those of the model."""
        return self._add_constant(tensor.detach().float().cpu().contiguous().numpy())

    def int_tensor(self, *numbers: int) -> str:
        """Whole numbers: axes, shapes."""
        return self._add_constant(np.array(numbers, np.int64))

    def int_scalar(self, number: int) -> str:
        return self._add_constant(np.array(number, np.int64))

    def float_scalar(self, number: float) -> str:
        return self._add_constant(np.array(number, np.float32))

    def linear(self, x: str, *layers: nn.Linear) -> str:
        """Layers side by side as one product: x [W_1; W_2]^T + [b_1; b_2]."""
        product = self("MatMul", x, self.constant(torch.cat([layer.weight for layer in layers]).T))
        biases: list[Tensor | None] = [layer.bias for layer in layers]
        given = [bias for bias in biases if bias is not None]
        return self("Add", product, self.constant(torch.cat(given))) if given else product

    def size(self, x: str, axis: int) -> str:
        """The length of an axis, as a list of one number."""
        return self("Shape", x, start=axis, end=axis + 1)

    def shape(self, *parts: int | str) -> str:
        """A shape of whole numbers and of sizes that are known when the graph runs."""
        return self("Concat", *(p if isinstance(p, str) else self.int_tensor(p) for p in parts), axis=0)

    def position_range(self, x: str) -> str:
        """0, 1, 2, ... along the second axis."""
        return self("Range", self.int_scalar(0), self("Squeeze", self.size(x, 1)), self.int_scalar(1))

    def save(self, path: Path) -> None:
        onnx, helper = require_extra("onnx", extra="export"), self.helper
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, list(self.constants.values()))
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="regard")
        if model.ByteSize() < 2**31:  # what is larger the checker cannot take
            onnx.checker.check_model(model)
        onnx.save_model(model, str(path))

    def _add_constant(self, array: np.ndarray[Any, np.dtype[Any]]) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = require_extra("onnx", extra="export").numpy_helper.from_array(array, name)
        return name

    def _value_info(self, name: str, shape: Shape, kind: type[Any]) -> Any:
        element = self.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        return self.helper.make_tensor_value_info(name, element, list(shape))


def padding_bias(graph: OnnxGraph, source: str, lengths: str) -> str:
    """What is added to scores: 0 up to each row's length, and so little behind it that nothing is seen."""
    real = graph("Less", graph.position_range(source), graph("Unsqueeze", lengths, graph.int_tensor(1)))
    return graph("Where", real, graph.float_scalar(0.0), graph.float_scalar(MASKED_SCORE))


SCORES = (Constant, Dot, ScaledDot, Bilinear, Energy, Additive, Concat)


ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid"}


def check_attention(attention: Any) -> None:
    """Refuse an attention that has no nodes here."""
    if type(attention) not in (Attention, LocalM, LocalP):
        raise ExportError(
            f"{type(attention).__name__} cannot be exported to ONNX, but attention_scope=global, local-m and"
            " local-p can; use it with PyTorch, or export it to safetensors"
        )
    if type(attention.score) not in SCORES:
        raise ExportError(
            f"the score {type(attention.score).__name__} cannot be exported to ONNX, but these can:"
            f" {', '.join(kind.__name__ for kind in SCORES)}; use it with PyTorch, or export it to safetensors"
        )
    share = attention.normalize
    if not (
        share in (None, softmax, sigmoid) or (type(share) is Temperature and isinstance(share.temperature, float | int))
    ):
        name = getattr(share, "__name__", type(share).__name__)
        raise ExportError(
            f"the normalizer {name} cannot be exported to ONNX, but softmax, sigmoid and Temperature can;"
            " use it with PyTorch, or export it to safetensors"
        )


def project_keys(graph: OnnxGraph, score: Any, states: str) -> tuple[str, int] | None:
    """The keys' half of a score, done once for each source; None where the keys are the states themselves."""
    if isinstance(score, Additive):
        return graph.linear(states, score.key_proj), score.hidden_dim
    if isinstance(score, Concat):
        half = graph.constant(score.in_proj.weight[:, score.query_dim :].T)
        return graph("MatMul", states, half), score.hidden_dim
    return None


class OnnxAttention:
    """The inputs of the writing graph that looking needs, and the nodes that a query goes through."""

    def __init__(self, graph: OnnxGraph, attention: Any, states_dim: int, key_dim: int | None):
        self.graph, self.attention = graph, attention
        self.values = graph.input("memory.states", ("rows", "source", states_dim))
        self.mask_bias = graph.input("memory.hidden", ("rows", "source"))
        self.keys = self.values
        if key_dim is not None:
            self.keys = graph.input("memory.keys", ("rows", "source", key_dim))
        if isinstance(attention, LocalM | LocalP):
            self.length = graph.input("memory.length", ("rows", 1))
        if isinstance(attention, LocalM):
            self.position = graph("Cast", graph.input("position", (), np.int64), to=1)

    def __call__(self, query: str) -> tuple[str, str]:
        """The context of a query (rows, dim), and its weights."""
        graph = self.graph
        scores, bell = graph("Add", self._compute_scores(query), self.mask_bias), None
        if isinstance(self.attention, LocalM | LocalP):
            away = self._distance_from_center(query)
            near = graph("LessOrEqual", graph("Abs", away), graph.float_scalar(self.attention.radius))
            scores = graph("Where", near, scores, graph.float_scalar(MASKED_SCORE))
            if isinstance(self.attention, LocalP):
                sigma = self.attention.radius / 2
                bell = graph("Exp", graph("Mul", graph("Mul", away, away), graph.float_scalar(-0.5 / sigma**2)))
        weights = self._normalize(scores)
        weights = weights if bell is None else graph("Mul", weights, bell)
        seen = graph("MatMul", graph("Unsqueeze", weights, graph.int_tensor(1)), self.values)
        return graph("Squeeze", seen, graph.int_tensor(1)), weights

    def _compute_scores(self, query: str) -> str:
        graph, score = self.graph, self.attention.score
        if isinstance(score, Constant):
            return graph.float_scalar(0.0)
        if isinstance(score, Additive | Concat):
            return self._additive_scores(score, query)
        if isinstance(score, Bilinear):
            sign = -1.0 if isinstance(score, Energy) else 1.0
            query = graph("MatMul", query, graph.constant(sign * score.weight))
        if isinstance(score, ScaledDot):
            size = graph("Cast", graph.size(query, 1), to=1)
            query = graph("Div", query, graph("Sqrt", size))
        return graph(
            "Squeeze", graph("MatMul", self.keys, graph("Unsqueeze", query, graph.int_tensor(2))), graph.int_tensor(2)
        )

    def _additive_scores(self, score: Additive | Concat, query: str) -> str:
        """v . tanh(query + keys), with further layers between for a deep one."""
        graph, activation, layers = self.graph, "Tanh", nn.ModuleList()
        if isinstance(score, Additive):
            assert score.query_proj is not None
            query, activation = graph.linear(query, score.query_proj), ACTIVATIONS[score.activation]
        else:
            query, layers = (
                graph("MatMul", query, graph.constant(score.in_proj.weight[:, : score.query_dim].T)),
                score.layers,
            )
        hidden = graph(activation, graph("Add", graph("Unsqueeze", query, graph.int_tensor(1)), self.keys))
        for layer in layers:
            hidden = graph("Tanh", graph.linear(hidden, layer))  # type: ignore[arg-type]
        return graph("Squeeze", graph("MatMul", hidden, graph.constant(score.energy[:, None])), graph.int_tensor(2))

    def _distance_from_center(self, query: str) -> str:
        """How far each place of the source is from where the query looks."""
        graph, local = self.graph, self.attention
        if isinstance(local, LocalM):
            center = graph("Min", self.position, graph("Sub", self.length, graph.float_scalar(1.0)))
        else:
            hidden = graph("Tanh", graph.linear(query, local.query_proj))
            wish = graph("Sigmoid", graph("MatMul", hidden, graph.constant(local.energy[:, None])))
            center = graph("Mul", self.length, wish)
        return graph("Sub", graph("Cast", graph.position_range(self.values), to=1), center)

    def _normalize(self, scores: str) -> str:
        graph, share = self.graph, self.attention.normalize
        if share is sigmoid:
            return graph("Sigmoid", scores)
        if isinstance(share, Temperature):
            scores = graph("Div", scores, graph.float_scalar(float(share.temperature)))
        return graph("Softmax", scores, axis=-1)


AttentionFn = Callable[[str], tuple[str, str]]
