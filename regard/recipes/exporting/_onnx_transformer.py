"""A Transformer as two ONNX graphs: one reads the source, one writes the next word."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from regard.attention import MultiHead
from regard.models import Transformer
from regard.recipes.exporting._graph import Graph, hidden_behind


def reader(model: Transformer, positions: int) -> Graph:
    """source, lengths -> the keys and values that each layer of the decoder looks back at, and an empty past."""
    graph = Graph("read")
    source, lengths = (
        graph.input("source", ("rows", "source"), np.int64),
        graph.input("lengths", ("rows",), np.int64),
    )
    bias = graph("Unsqueeze", hidden_behind(graph, source, lengths), graph.whole(1, 2))
    table = graph.made(model.read.positions.encoding(positions))
    places = graph("Slice", table, graph.whole(0), graph.size(source, 1), graph.whole(0))
    x = graph("Add", _embedded(graph, model.read, source), places)
    for layer in model.encoder.layers:
        x = _added(graph, x, layer.add_look, lambda x, layer=layer: _self(graph, layer.look, x, bias))
        x = _added(graph, x, layer.add_think, lambda x, layer=layer: _network(graph, layer.think, x))
    x = _norm(graph, x, model.encoder.norm)
    for number, layer in enumerate(model.decoder.layers):
        heads = _as_heads(layer.look_back)
        shape = ("rows", heads.heads, heads.head_dim, "source")
        graph.output(
            f"memory.key.{number}", _split(graph, heads, graph.linear(x, heads.key), (0, 2, 3, 1)), shape
        )
        value = _split(graph, heads, graph.linear(x, heads.value), (0, 2, 1, 3))
        graph.output(f"memory.value.{number}", value, ("rows", heads.heads, "source", heads.head_dim))
        none = graph("ConstantOfShape", graph.shape(graph.size(source, 0), heads.heads, 0, heads.head_dim))
        for name in ("key", "value"):
            graph.output(f"state.{name}.{number}", none, ("rows", heads.heads, "past", heads.head_dim))
    graph.output("memory.hidden", bias, ("rows", 1, 1, "source"))
    return graph


def writer(model: Transformer, positions: int) -> Graph:
    """The word before, its position and the past -> the scores of the next word, where it looked, the new past."""
    graph = Graph("write")
    tokens, position = graph.input("tokens", ("rows",), np.int64), graph.input("position", (), np.int64)
    bias = graph.input("memory.hidden", ("rows", 1, 1, "source"))
    place = graph("Gather", graph.made(model.write.positions.encoding(positions)), position)
    x = graph("Add", _embedded(graph, model.write, tokens), place)
    looks: list[str] = []
    for number, layer in enumerate(model.decoder.layers):
        x = _added(graph, x, layer.add_look, lambda x, n=number, h=layer.look: _past(graph, h, x, n))
        x = _added(
            graph,
            x,
            layer.add_back,
            lambda x, n=number, h=layer.look_back: _back(graph, h, x, n, bias, looks),
        )
        x = _added(graph, x, layer.add_think, lambda x, layer=layer: _network(graph, layer.think, x))
    x = _norm(graph, x, model.decoder.norm)
    words = graph.weight(model.output.weight)
    graph.output("logits", graph("Gemm", x, words, transB=1), ("rows", "words"))
    seen = graph("Concat", *looks, axis=2)
    heads = _as_heads(model.decoder.layers[0].look_back).heads
    weights = graph("Transpose", seen, perm=(0, 2, 1, 3))
    graph.output("weights", weights, ("rows", len(looks), heads, "source"))
    return graph


def _embedded(graph: Graph, embedding: Any, words: str) -> str:
    return graph(
        "Mul", graph("Gather", graph.weight(embedding.words.weight), words), graph.number(embedding.scale)
    )


def _added(graph: Graph, x: str, around: Any, sublayer: Any) -> str:
    """norm(x + sublayer(x)), or x + sublayer(norm(x))."""
    if around.first:
        return graph("Add", x, sublayer(_norm(graph, x, around.norm)))
    return _norm(graph, graph("Add", x, sublayer(x)), around.norm)


def _norm(graph: Graph, x: str, norm: Any) -> str:
    if isinstance(norm, nn.Identity):
        return x
    scale, shift = graph.weight(norm.weight), graph.weight(norm.bias)
    return graph("LayerNormalization", x, scale, shift, axis=-1, epsilon=norm.eps)


def _network(graph: Graph, network: Any, x: str) -> str:
    return graph.linear(graph("Relu", graph.linear(x, network[0])), network[2])


def _self(graph: Graph, heads: Any, x: str, bias: str) -> str:
    """All positions of the source look at all of them."""
    joined = graph.linear(x, heads.query, heads.key, heads.value)
    query, key, value = graph.several("Split", 3, joined, axis=-1)
    query, value = (_split(graph, heads, part, (0, 2, 1, 3)) for part in (query, value))
    context, _ = _attended(graph, heads, query, _split(graph, heads, key, (0, 2, 3, 1)), value, bias)
    joined = graph("Reshape", graph("Transpose", context, perm=(0, 2, 1, 3)), graph.whole(0, 0, heads.dim))
    return graph.linear(joined, heads.output)


def _past(graph: Graph, heads: Any, x: str, number: int) -> str:
    """One word looks at those before it and at itself, and joins the past."""
    shape = ("rows", heads.heads, "past", heads.head_dim)
    joined = graph.linear(x, heads.query, heads.key, heads.value)
    query, key, value = (_one(graph, heads, part) for part in graph.several("Split", 3, joined, axis=-1))
    both = []
    for name, new in (("key", key), ("value", value)):
        before = graph.input(f"state.{name}.{number}", shape)
        both.append(graph("Concat", before, new, axis=2))
        graph.output(f"new.{name}.{number}", both[-1], shape)
    key, value = graph("Transpose", both[0], perm=(0, 1, 3, 2)), both[1]
    context, _ = _attended(graph, heads, query, key, value)
    return graph.linear(graph("Reshape", context, graph.whole(0, heads.dim)), heads.output)


def _back(graph: Graph, heads: Any, x: str, number: int, bias: str, looks: list[str]) -> str:
    """One word looks at the source."""
    key = graph.input(f"memory.key.{number}", ("rows", heads.heads, heads.head_dim, "source"))
    value = graph.input(f"memory.value.{number}", ("rows", heads.heads, "source", heads.head_dim))
    query = _one(graph, heads, graph.linear(x, heads.query))
    context, weights = _attended(graph, heads, query, key, value, bias)
    looks.append(weights)
    return graph.linear(graph("Reshape", context, graph.whole(0, heads.dim)), heads.output)


def _attended(
    graph: Graph, heads: Any, query: str, key: str, value: str, bias: str | None = None
) -> tuple[str, str]:
    """The equation: scores, hide, normalize, context; keys are turned already."""
    scores = graph("MatMul", graph("Mul", query, graph.number(heads.head_dim**-0.5)), key)
    weights = graph("Softmax", scores if bias is None else graph("Add", scores, bias), axis=-1)
    return graph("MatMul", weights, value), weights


def _split(graph: Graph, heads: Any, joined: str, order: tuple[int, ...]) -> str:
    """From (rows, source, dim) to heads, axes in this order."""
    apart = graph("Reshape", joined, graph.whole(0, 0, heads.heads, heads.head_dim))
    return graph("Transpose", apart, perm=order)


def _one(graph: Graph, heads: Any, joined: str) -> str:
    """From (rows, dim) to heads of one position."""
    return graph("Reshape", joined, graph.whole(0, heads.heads, 1, heads.head_dim))


def _as_heads(part: Any) -> MultiHead:
    assert isinstance(part, MultiHead)
    return part
