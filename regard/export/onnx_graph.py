"""Construction of ONNX graphs, and the attention of recurrent models as nodes of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard import attention as a
from regard._imports import require_extra
from regard.errors import ExportError

__all__ = [
    "FLOAT32", "INT32", "SOURCE_AXIS", "OnnxAttention", "OnnxGraph", "check_attention", "check_mask", "padding_bias",
    "project_keys",
]  # fmt: skip

OPSET, IR_VERSION = 17, 8  # the oldest opset with LayerNormalization, so that old runtimes can read the files
FLOAT32, INT32, INT64, BOOL = 1, 6, 7, 9  # data types of ONNX's Cast
SOURCE_AXIS = "encoder_sequence_length"  # as in the graphs that optimum writes
MASKED_SCORE = -1e30  # finite, because -inf minus -inf is NaN
SCORES = (a.Constant, a.Dot, a.ScaledDot, a.Bilinear, a.Energy, a.Additive, a.Concat)
ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid"}

Shape = Sequence[int | str]
Operand = str | Tensor | list[int] | int | float


class OnnxGraph:
    """An ONNX graph under construction: ``graph("Add", a, b)`` adds a node and returns the name of its output.

    An operand is the name of a value or a constant: a tensor, a list of integers (axes, a shape) or a number. A tensor
    that several nodes take is stored once.

    Args:
        name: the name in the file

    Example:
        >>> graph = OnnxGraph("double")
        >>> graph.output("y", graph("Mul", graph.input("x", ("batch",)), 2.0), ("batch",))
        >>> [node.op_type for node in graph.nodes]
        ['Mul', 'Identity']
    """

    def __init__(self, name: str):
        self.name, self.onnx = name, require_extra("onnx", extra="export")
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.constants: list[Any] = []
        self._stored: dict[Any, tuple[str, Tensor]] = {}  # holds the tensors, so that no address is reused

    def __call__(self, op: str, *operands: Operand, **attributes: Any) -> str:
        return self.multi_output(op, 1, *operands, **attributes)[0]

    def multi_output(self, op: str, count: int, *operands: Operand, **attributes: Any) -> list[str]:
        """Add a node with `count` outputs and return their names; `name` is that of the node."""
        names = [f"{op}_{len(self.nodes)}_{index}" for index in range(count)]
        inputs = [operand if isinstance(operand, str) else self._constant(operand) for operand in operands]
        self.nodes.append(self.onnx.helper.make_node(op, inputs, names, **attributes))
        return names

    def input(self, name: str, shape: Shape, dtype: type[Any] = np.float32) -> str:
        """Add an input of the graph and return its name."""
        self.inputs.append(self._value_info(name, shape, dtype))
        return name

    def output(self, name: str, value: str, shape: Shape) -> None:
        """Make a value an output of the graph."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))
        self.outputs.append(self._value_info(name, shape, np.float32))

    def linear(self, x: str, *layers: nn.Linear) -> str:
        """Layers that take the same input, as one product: x [W_1; W_2]^T + [b_1; b_2]."""
        product = self("MatMul", x, torch.cat([layer.weight for layer in layers]).T)
        biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
        return self("Add", product, torch.cat(biases)) if biases else product

    def size(self, x: str, axis: int) -> str:
        """The length of an axis, as a list of one number."""
        return self("Shape", x, start=axis, end=axis + 1)

    def shape(self, *sizes: int | str) -> str:
        """A shape from numbers and results of `size`."""
        return self("Concat", *(size if isinstance(size, str) else [size] for size in sizes), axis=0)

    def position_range(self, x: str) -> str:
        """0, 1, 2, ... along the second axis."""
        return self("Range", 0, self("Squeeze", self.size(x, 1)), 1)

    def save(self, path: Path) -> None:
        """Check the graph and write it to a file."""
        onnx, helper = self.onnx, self.onnx.helper
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.constants)
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="regard")
        if model.ByteSize() < 2**31:  # the checker takes no larger ones
            onnx.checker.check_model(model)
        onnx.save_model(model, str(path))

    def _constant(self, value: Tensor | list[int] | int | float) -> str:
        tensor = torch.as_tensor(value).detach()
        key = tensor.data_ptr(), tensor.shape, tensor.stride()
        if key not in self._stored:
            stored = tensor.float() if tensor.is_floating_point() else tensor
            name = f"constant_{len(self.constants)}"
            self.constants.append(self.onnx.numpy_helper.from_array(stored.cpu().contiguous().numpy(), name))
            self._stored[key] = name, tensor
        return self._stored[key][0]

    def _value_info(self, name: str, shape: Shape, dtype: type[Any]) -> Any:
        element_type = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.onnx.helper.make_tensor_value_info(name, element_type, list(shape))


def check_mask(graph: OnnxGraph, mask: str) -> str:
    """The attention mask itself; the node `attention_mask_has_its_padding_on_the_right` fails for any other.

    ONNX has no assertion, but an index outside of a tensor is an error in every runtime that checks it.

    Args:
        graph: the encoder's graph
        mask: name of the attention mask (batch, encoder_sequence_length), 1 at tokens and 0 at padding

    Returns:
        the name of the same mask
    """
    lengths = graph("ReduceSum", mask, [1], keepdims=0)
    is_token = graph("Less", graph.position_range(mask), graph("Unsqueeze", lengths, [1]))
    is_wrong = graph("Cast", graph("Not", graph("Equal", is_token, graph("Cast", mask, to=BOOL))), to=INT64)
    index = graph("ReduceMax", is_wrong, keepdims=0)  # 1 if the mask is no sequence of ones, followed by zeros
    zero = graph("Gather", [0], index, name="attention_mask_has_its_padding_on_the_right")
    return graph("Add", mask, zero)


def padding_bias(graph: OnnxGraph, mask: str) -> str:
    """The bias of scores that masks padding: 0 at tokens, `MASKED_SCORE` elsewhere.

    Args:
        graph: the graph
        mask: name of the attention mask (batch, encoder_sequence_length)

    Returns:
        the name of the bias (batch, encoder_sequence_length)
    """
    return graph("Where", graph("Cast", mask, to=BOOL), 0.0, MASKED_SCORE)


def check_attention(attention: Any) -> None:
    """Raise ExportError for an attention that `OnnxAttention` does not support.

    Args:
        attention: the attention of a recurrent model
    """
    if type(attention) not in (a.Attention, a.LocalM, a.LocalP):
        raise _unsupported_error(type(attention).__name__, "attention_scope=global, local-m and local-p can")
    if type(attention.score) not in SCORES:
        names = ", ".join(score.__name__ for score in SCORES)
        raise _unsupported_error(f"the score {type(attention.score).__name__}", f"these can: {names}")
    normalize = attention.normalize
    is_temperature = type(normalize) is a.Temperature and isinstance(normalize.temperature, float | int)
    if normalize not in (None, a.softmax, a.sigmoid) and not is_temperature:
        name = getattr(normalize, "__name__", type(normalize).__name__)
        raise _unsupported_error(f"the normalizer {name}", "softmax, sigmoid and Temperature can")


def _unsupported_error(part: str, others: str) -> ExportError:
    remedy = "use it with PyTorch, or export it to safetensors"
    return ExportError(f"{part} cannot be exported to ONNX, but {others}; {remedy}")


def project_keys(graph: OnnxGraph, score: Any, states: str) -> str | None:
    """The part of a score that depends on the keys only, computed once for each source.

    Args:
        graph: the encoder's graph
        score: the score
        states: name of the encoder states (batch, src_len, dim)

    Returns:
        the name of the projected keys (batch, src_len, hidden_dim), or None if the keys are the states themselves
    """
    if isinstance(score, a.Additive):
        return graph.linear(states, score.key_proj)
    if isinstance(score, a.Concat):
        return graph("MatMul", states, score.in_proj.weight[:, score.query_dim :].T)
    return None


class OnnxAttention:
    """The attention of a recurrent model over the inputs `encoder_*` of a decoder graph.

    Args:
        graph: the decoder's graph, which gets the inputs
        attention: an Attention, LocalM or LocalP that `check_attention` accepts
        states_dim: size of an encoder state

    Shape: query (batch, hidden_dim) -> context (batch, states_dim), weights (batch, src_len)
    """

    def __init__(self, graph: OnnxGraph, attention: Any, states_dim: int):
        self.graph, self.attention = graph, attention
        self.values = graph.input("encoder_hidden_states", ("batch", SOURCE_AXIS, states_dim))
        mask = graph.input("encoder_attention_mask", ("batch", SOURCE_AXIS), np.int64)
        self.padding_bias = padding_bias(graph, mask)
        self.keys = self.values
        if isinstance(attention.score, a.Additive | a.Concat):
            self.keys = graph.input("encoder_keys", ("batch", SOURCE_AXIS, attention.score.hidden_dim))
        if isinstance(attention, a.LocalM | a.LocalP):
            self.length = graph("Cast", graph("ReduceSum", mask, [1]), to=FLOAT32)
        if isinstance(attention, a.LocalM):
            self.position = graph.input("past_length", ("batch", 1))
            graph.output("present_length", graph("Add", self.position, 1.0), ("batch", 1))

    def __call__(self, query: str) -> tuple[str, str]:
        """The context of a query and its weights."""
        graph, attention = self.graph, self.attention
        scores = graph("Add", self._compute_scores(query), self.padding_bias)
        distance = ""
        if isinstance(attention, a.LocalM | a.LocalP):
            distance = self._distance_from_center(query)
            is_near = graph("LessOrEqual", graph("Abs", distance), float(attention.radius))
            scores = graph("Where", is_near, scores, MASKED_SCORE)
        weights = self._normalize(scores)
        if isinstance(attention, a.LocalP):
            sigma = attention.radius / 2
            window = graph("Exp", graph("Mul", graph("Mul", distance, distance), -0.5 / sigma**2))
            weights = graph("Mul", weights, window)
        context = graph("MatMul", graph("Unsqueeze", weights, [1]), self.values)
        return graph("Squeeze", context, [1]), weights

    def _compute_scores(self, query: str) -> Operand:
        graph, score = self.graph, self.attention.score
        if isinstance(score, a.Constant):
            return 0.0
        if isinstance(score, a.Additive | a.Concat):
            return self._additive_scores(score, query)
        if isinstance(score, a.Bilinear):
            sign = -1.0 if isinstance(score, a.Energy) else 1.0
            query = graph("MatMul", query, sign * score.weight)
        if isinstance(score, a.ScaledDot):
            query = graph("Div", query, graph("Sqrt", graph("Cast", graph.size(query, 1), to=FLOAT32)))
        return graph("Squeeze", graph("MatMul", self.keys, graph("Unsqueeze", query, [2])), [2])

    def _additive_scores(self, score: a.Additive | a.Concat, query: str) -> str:
        """v . tanh(query + keys), with further layers in between if a Concat has them."""
        graph, activation, layers = self.graph, "Tanh", nn.ModuleList()
        if isinstance(score, a.Additive):
            assert score.query_proj is not None
            query, activation = graph.linear(query, score.query_proj), ACTIVATIONS[score.activation]
        else:
            query, layers = graph("MatMul", query, score.in_proj.weight[:, : score.query_dim].T), score.layers
        hidden = graph(activation, graph("Add", graph("Unsqueeze", query, [1]), self.keys))
        for layer in layers:
            hidden = graph("Tanh", graph.linear(hidden, layer))  # type: ignore[arg-type]
        return graph("Squeeze", graph("MatMul", hidden, score.energy[:, None]), [2])

    def _distance_from_center(self, query: str) -> str:
        """The distance of each source position from the center of the window."""
        graph, local = self.graph, self.attention
        if isinstance(local, a.LocalM):
            center = graph("Min", self.position, graph("Sub", self.length, 1.0))
        else:
            hidden = graph("Tanh", graph.linear(query, local.query_proj))
            share = graph("Sigmoid", graph("MatMul", hidden, local.energy[:, None]))
            center = graph("Mul", self.length, share)
        return graph("Sub", graph("Cast", graph.position_range(self.values), to=FLOAT32), center)

    def _normalize(self, scores: str) -> str:
        normalize = self.attention.normalize
        if normalize is a.sigmoid:
            return self.graph("Sigmoid", scores)
        if isinstance(normalize, a.Temperature):
            scores = self.graph("Div", scores, float(normalize.temperature))
        return self.graph("Softmax", scores, axis=-1)
