"""A recurrent model as two ONNX graphs: one reads the source, one writes the next word."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import LocalM, LocalP
from regard.models import Recurrent
from regard.recipes.exporting import _onnx_looking as looking
from regard.recipes.exporting._graph import Graph, hidden_behind

# ONNX has the gates of a cell in another order than PyTorch: here are theirs by our numbers.
GATES = {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}


def check(model: Recurrent) -> None:
    """Refuse what the graphs below do not say."""
    if model.attention is not None:
        looking.check(model.attention)


def reader(model: Recurrent) -> Graph:
    """source, lengths -> the states to look at, and where the decoder starts from."""
    graph = Graph("read")
    source, lengths = (
        graph.input("source", ("rows", "source"), np.int64),
        graph.input("lengths", ("rows",), np.int64),
    )
    states, last = _encoded(graph, model, source, lengths)
    wide = model.start.in_features
    if model.attention is None:
        graph.output("memory.last", last, ("rows", wide))
    else:
        graph.output("memory.states", states, ("rows", "source", wide))
        graph.output("memory.hidden", hidden_behind(graph, source, lengths), ("rows", "source"))
        if (keys := looking.projected(graph, model.attention.score, states)) is not None:
            graph.output("memory.keys", keys[0], ("rows", "source", keys[1]))
        if isinstance(model.attention, LocalM | LocalP):
            length = graph("Unsqueeze", graph("Cast", lengths, to=1), graph.whole(1))
            graph.output("memory.length", length, ("rows", 1))
    start = graph("Tanh", graph.linear(last, model.start))
    cells = _cells(model)
    graph.output(
        "state.cells", graph("Reshape", start, graph.whole(0, cells, model.dim)), ("rows", cells, model.dim)
    )
    if model.input_feeding:
        size = model.join.out_features
        graph.output(
            "state.fed", graph("ConstantOfShape", graph.shape(graph.size(source, 0), size)), ("rows", size)
        )
    return graph


def _encoded(graph: Graph, model: Recurrent, source: str, lengths: str) -> tuple[str, str]:
    """All states (rows, source, dim), and the last ones of each direction; the runtime's own layers know lengths."""
    layers = model.encoder.layers
    op = type(layers).__name__
    more: dict[str, Any] = {"linear_before_reset": 1} if op == "GRU" else {}
    lengths = graph("Cast", lengths, to=6)
    x = graph("Transpose", graph("Gather", graph.weight(model.read.weight), source), perm=(1, 0, 2))
    last = ""
    for number in range(layers.num_layers):
        weights = [graph.made(part) for part in _layer(layers, number, GATES[op], model.encoder.ways)]
        direction = "bidirectional" if model.encoder.ways == 2 else "forward"
        states, last = graph.several(
            op, 2, x, *weights, lengths, hidden_size=layers.hidden_size, direction=direction, **more
        )
        x = graph("Reshape", graph("Transpose", states, perm=(0, 2, 1, 3)), graph.whole(0, 0, -1))
    last = graph("Reshape", graph("Transpose", last, perm=(1, 0, 2)), graph.whole(0, -1))
    return graph("Transpose", x, perm=(1, 0, 2)), last


def _layer(layers: nn.RNNBase, number: int, order: tuple[int, ...], ways: int) -> tuple[Tensor, ...]:
    """Weights of the input, of the state, and both biases in one row, a direction each."""

    def sorted_gates(name: str, way: int) -> Tensor:
        parts = getattr(layers, f"{name}_l{number}{'_reverse' if way else ''}").chunk(len(order))
        return torch.cat([parts[place] for place in order])

    inputs, states, first, second = (
        torch.stack([sorted_gates(name, way) for way in range(ways)])
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    return inputs, states, torch.cat([first, second], 1)


def writer(model: Recurrent) -> Graph:
    """The word before and the state -> the scores of the next word, where it looked, the new state."""
    graph = Graph("write")
    tokens = graph.input("tokens", ("rows",), np.int64)
    count, wide = _cells(model), model.start.in_features
    cells = graph.input("state.cells", ("rows", count, model.dim))
    states = (
        [graph("Squeeze", part, graph.whole(1)) for part in graph.several("Split", count, cells, axis=1)]
        if count > 1
        else [graph("Squeeze", cells, graph.whole(1))]
    )
    look = _look(graph, model, wide)
    embedded = graph("Gather", graph.weight(model.write.weight), tokens)
    each = model.first.memories
    if model.order == "bahdanau":
        context, weights = look(states[-each])
        states = _turned(graph, model, embedded, context, states)
        pairs = graph.linear(graph("Concat", states[-each], context, embedded, axis=1), model.join)
        apart = graph("Reshape", pairs, graph.whole(0, -1, 2))
        said = graph("ReduceMax", apart, axes=[-1], keepdims=0)
    else:
        size = model.join.out_features
        fed = graph.input("state.fed", ("rows", size)) if model.input_feeding else None
        states = _turned(graph, model, embedded, fed, states)
        context, weights = look(states[-each])
        said = graph("Tanh", graph.linear(graph("Concat", states[-each], context, axis=1), model.join))
        if model.input_feeding:
            graph.output("new.fed", said, ("rows", size))
    graph.output(
        "logits", graph("Gemm", said, graph.weight(model.output.weight), transB=1), ("rows", "words")
    )
    new = [graph("Unsqueeze", state, graph.whole(1)) for state in states]
    graph.output("new.cells", graph("Concat", *new, axis=1), ("rows", count, model.dim))
    if weights:
        graph.output("weights", graph("Unsqueeze", weights, graph.whole(1, 2)), ("rows", 1, 1, "source"))
    return graph


def _look(graph: Graph, model: Recurrent, wide: int) -> looking.Looking:
    if model.attention is None:
        last = graph.input("memory.last", ("rows", wide))
        return lambda query: (last, "")
    key_dim = getattr(model.attention.score, "hidden_dim", None)
    return looking.Look(graph, model.attention, wide, key_dim)


def _turned(graph: Graph, model: Recurrent, early: str, late: str | None, states: list[str]) -> list[str]:
    """The states of all layers after one more step."""
    each, turned = model.first.memories, []
    for place, cell in enumerate((model.first, *model.above)):
        state = states[place * each : (place + 1) * each]
        given = graph.linear(early, cell.early)
        if cell.late is not None and late is not None:
            given = graph("Add", given, graph.linear(late, cell.late))
        past = graph.linear(state[0], cell.past)
        turned += (_gru if each == 1 else _lstm)(graph, given, past, state)
        early, late = turned[-each], None
    return turned


def _gru(graph: Graph, given: str, past: str, state: list[str]) -> list[str]:
    r_x, z_x, n_x = graph.several("Split", 3, given, axis=-1)
    r_h, z_h, n_h = graph.several("Split", 3, past, axis=-1)
    reset, keep = (graph("Sigmoid", graph("Add", x, h)) for x, h in ((r_x, r_h), (z_x, z_h)))
    new = graph("Tanh", graph("Add", n_x, graph("Mul", reset, n_h)))
    return [graph("Add", new, graph("Mul", keep, graph("Sub", state[0], new)))]


def _lstm(graph: Graph, given: str, past: str, state: list[str]) -> list[str]:
    i, f, g, o = graph.several("Split", 4, graph("Add", given, past), axis=-1)
    i, f, o = (graph("Sigmoid", gate) for gate in (i, f, o))
    c = graph("Add", graph("Mul", f, state[1]), graph("Mul", i, graph("Tanh", g)))
    return [graph("Mul", o, graph("Tanh", c)), c]


def _cells(model: Recurrent) -> int:
    """How many vectors the decoder remembers: one a layer, or two."""
    return model.first.memories * (1 + len(model.above))
