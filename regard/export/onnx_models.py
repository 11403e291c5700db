"""A recurrent model as two ONNX graphs: one reads the source, one writes the next word.

A Transformer as two ONNX graphs: one reads the source, one writes the next word.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import LocalM, LocalP, MultiHead
from regard.export import onnx_graph as looking
from regard.export.folder import position_table
from regard.export.onnx_graph import OnnxGraph, padding_bias
from regard.models import RNNSeq2Seq, Transformer

# ONNX has the gates of a cell in another order than PyTorch: here are theirs by our numbers.
GATE_ORDER = {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}


def check_rnn(model: RNNSeq2Seq) -> None:
    """Refuse what the graphs below do not say."""
    if model.attention is not None:
        looking.check_attention(model.attention)


def rnn_encoder_graph(model: RNNSeq2Seq) -> OnnxGraph:
    """source, lengths -> the states to look at, and where the decoder starts from."""
    graph = OnnxGraph("read")
    source, lengths = (graph.input("source", ("rows", "source"), np.int64), graph.input("lengths", ("rows",), np.int64))
    states, last = _encode(graph, model, source, lengths)
    wide = model.bridge.in_features
    if model.attention is None:
        graph.output("memory.last", last, ("rows", wide))
    else:
        graph.output("memory.states", states, ("rows", "source", wide))
        graph.output("memory.hidden", padding_bias(graph, source, lengths), ("rows", "source"))
        if (keys := looking.project_keys(graph, model.attention.score, states)) is not None:
            graph.output("memory.keys", keys[0], ("rows", "source", keys[1]))
        if isinstance(model.attention, LocalM | LocalP):
            length = graph("Unsqueeze", graph("Cast", lengths, to=1), graph.int_tensor(1))
            graph.output("memory.length", length, ("rows", 1))
    start = graph("Tanh", graph.linear(last, model.bridge))
    cells = _num_states(model)
    graph.output(
        "state.cells",
        graph("Reshape", start, graph.int_tensor(0, cells, model.hidden_dim)),
        ("rows", cells, model.hidden_dim),
    )
    if model.input_feeding:
        size = model.readout_proj.out_features
        graph.output("state.fed", graph("ConstantOfShape", graph.shape(graph.size(source, 0), size)), ("rows", size))
    return graph


def _encode(graph: OnnxGraph, model: RNNSeq2Seq, source: str, lengths: str) -> tuple[str, str]:
    """All states (rows, source, dim), and the last ones of each direction; the runtime's own layers know lengths."""
    layers = model.encoder.layers
    op = type(layers).__name__
    more: dict[str, Any] = {"linear_before_reset": 1} if op == "GRU" else {}
    lengths = graph("Cast", lengths, to=6)
    x = graph("Transpose", graph("Gather", graph.weight(model.src_embed.weight), source), perm=(1, 0, 2))
    last = ""
    for number in range(layers.num_layers):
        weights = [
            graph.constant(part)
            for part in _layer_weights(layers, number, GATE_ORDER[op], model.encoder.num_directions)
        ]
        direction = "bidirectional" if model.encoder.num_directions == 2 else "forward"
        states, last = graph.multi_output(
            op, 2, x, *weights, lengths, hidden_size=layers.hidden_size, direction=direction, **more
        )
        x = graph("Reshape", graph("Transpose", states, perm=(0, 2, 1, 3)), graph.int_tensor(0, 0, -1))
    last = graph("Reshape", graph("Transpose", last, perm=(1, 0, 2)), graph.int_tensor(0, -1))
    return graph("Transpose", x, perm=(1, 0, 2)), last


def _layer_weights(layers: nn.RNNBase, number: int, order: tuple[int, ...], num_directions: int) -> tuple[Tensor, ...]:
    """Weights of the input, of the state, and both biases in one row, a direction each."""

    def sorted_gates(name: str, way: int) -> Tensor:
        parts = getattr(layers, f"{name}_l{number}{'_reverse' if way else ''}").chunk(len(order))
        return torch.cat([parts[place] for place in order])

    inputs, states, first, second = (
        torch.stack([sorted_gates(name, way) for way in range(num_directions)])
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    return inputs, states, torch.cat([first, second], 1)


def rnn_decoder_step_graph(model: RNNSeq2Seq) -> OnnxGraph:
    """The word before and the state -> the scores of the next word, where it looked, the new state."""
    graph = OnnxGraph("write")
    tokens = graph.input("tokens", ("rows",), np.int64)
    count, wide = _num_states(model), model.bridge.in_features
    cells = graph.input("state.cells", ("rows", count, model.hidden_dim))
    states = (
        [graph("Squeeze", part, graph.int_tensor(1)) for part in graph.multi_output("Split", count, cells, axis=1)]
        if count > 1
        else [graph("Squeeze", cells, graph.int_tensor(1))]
    )
    look = _make_attention(graph, model, wide)
    embedded = graph("Gather", graph.weight(model.tgt_embed.weight), tokens)
    each = model.first_cell.num_states
    if model.order == "bahdanau":
        context, weights = look(states[-each])
        states = _step_cells(graph, model, embedded, context, states)
        pairs = graph.linear(graph("Concat", states[-each], context, embedded, axis=1), model.readout_proj)
        apart = graph("Reshape", pairs, graph.int_tensor(0, -1, 2))
        said = graph("ReduceMax", apart, axes=[-1], keepdims=0)
    else:
        size = model.readout_proj.out_features
        fed = graph.input("state.fed", ("rows", size)) if model.input_feeding else None
        states = _step_cells(graph, model, embedded, fed, states)
        context, weights = look(states[-each])
        said = graph("Tanh", graph.linear(graph("Concat", states[-each], context, axis=1), model.readout_proj))
        if model.input_feeding:
            graph.output("new.fed", said, ("rows", size))
    graph.output("logits", graph("Gemm", said, graph.weight(model.lm_head.weight), transB=1), ("rows", "words"))
    new = [graph("Unsqueeze", state, graph.int_tensor(1)) for state in states]
    graph.output("new.cells", graph("Concat", *new, axis=1), ("rows", count, model.hidden_dim))
    if weights:
        graph.output("weights", graph("Unsqueeze", weights, graph.int_tensor(1, 2)), ("rows", 1, 1, "source"))
    return graph


def _make_attention(graph: OnnxGraph, model: RNNSeq2Seq, states_dim: int) -> looking.AttentionFn:
    if model.attention is None:
        last = graph.input("memory.last", ("rows", states_dim))
        return lambda query: (last, "")
    key_dim = getattr(model.attention.score, "hidden_dim", None)
    return looking.OnnxAttention(graph, model.attention, states_dim, key_dim)


def _step_cells(
    graph: OnnxGraph, model: RNNSeq2Seq, embedded: str, context: str | None, states: list[str]
) -> list[str]:
    """The states of all layers after one more step."""
    each, turned = model.first_cell.num_states, []
    for place, cell in enumerate(model.get_cells()):
        state = states[place * each : (place + 1) * each]
        given = graph.linear(embedded, cell.input_proj)
        if cell.context_proj is not None and context is not None:
            given = graph("Add", given, graph.linear(context, cell.context_proj))
        past = graph.linear(state[0], cell.hidden_proj)
        turned += (_gru_cell if each == 1 else _lstm_cell)(graph, given, past, state)
        embedded, context = turned[-each], None
    return turned


def _gru_cell(graph: OnnxGraph, projected_input: str, projected_hidden: str, state: list[str]) -> list[str]:
    r_x, z_x, n_x = graph.multi_output("Split", 3, projected_input, axis=-1)
    r_h, z_h, n_h = graph.multi_output("Split", 3, projected_hidden, axis=-1)
    reset, keep = (graph("Sigmoid", graph("Add", x, h)) for x, h in ((r_x, r_h), (z_x, z_h)))
    new = graph("Tanh", graph("Add", n_x, graph("Mul", reset, n_h)))
    return [graph("Add", new, graph("Mul", keep, graph("Sub", state[0], new)))]


def _lstm_cell(graph: OnnxGraph, projected_input: str, projected_hidden: str, state: list[str]) -> list[str]:
    i, f, g, o = graph.multi_output("Split", 4, graph("Add", projected_input, projected_hidden), axis=-1)
    i, f, o = (graph("Sigmoid", gate) for gate in (i, f, o))
    c = graph("Add", graph("Mul", f, state[1]), graph("Mul", i, graph("Tanh", g)))
    return [graph("Mul", o, graph("Tanh", c)), c]


def _num_states(model: RNNSeq2Seq) -> int:
    """How many vectors the decoder remembers: one a layer, or two."""
    return model.first_cell.num_states * len(model.cells)


def transformer_encoder_graph(model: Transformer, num_positions: int) -> OnnxGraph:
    """source, lengths -> the keys and values that each layer of the decoder looks back at, and an empty past."""
    graph = OnnxGraph("read")
    source, lengths = (graph.input("source", ("rows", "source"), np.int64), graph.input("lengths", ("rows",), np.int64))
    bias = graph("Unsqueeze", padding_bias(graph, source, lengths), graph.int_tensor(1, 2))
    table = graph.constant(position_table(model.src_embed, num_positions))
    places = graph("Slice", table, graph.int_tensor(0), graph.size(source, 1), graph.int_tensor(0))
    x = graph("Add", _embed(graph, model.src_embed, source), places)
    for layer in model.encoder.layers:
        x = _residual(
            graph, x, layer, layer.norm1, lambda x, layer=layer: _self_attention(graph, layer.self_attn, x, bias)
        )
        x = _residual(graph, x, layer, layer.norm2, lambda x, layer=layer: _feed_forward(graph, layer.feed_forward, x))
    x = _layer_norm(graph, x, model.encoder.norm)
    for number, layer in enumerate(model.decoder.layers):
        heads = _require_multi_head(layer.cross_attn)
        shape = ("rows", heads.num_heads, heads.head_dim, "source")
        graph.output(
            f"memory.key.{number}", _split_heads(graph, heads, graph.linear(x, heads.k_proj), (0, 2, 3, 1)), shape
        )
        value = _split_heads(graph, heads, graph.linear(x, heads.v_proj), (0, 2, 1, 3))
        graph.output(f"memory.value.{number}", value, ("rows", heads.num_heads, "source", heads.head_dim))
        none = graph("ConstantOfShape", graph.shape(graph.size(source, 0), heads.num_heads, 0, heads.head_dim))
        for name in ("key", "value"):
            graph.output(f"state.{name}.{number}", none, ("rows", heads.num_heads, "past", heads.head_dim))
    graph.output("memory.hidden", bias, ("rows", 1, 1, "source"))
    return graph


def transformer_decoder_step_graph(model: Transformer, num_positions: int) -> OnnxGraph:
    """The word before, its position and the past -> the scores of the next word, where it looked, the new past."""
    graph = OnnxGraph("write")
    tokens, position = graph.input("tokens", ("rows",), np.int64), graph.input("position", (), np.int64)
    bias = graph.input("memory.hidden", ("rows", 1, 1, "source"))
    place = graph("Gather", graph.constant(position_table(model.tgt_embed, num_positions)), position)
    x = graph("Add", _embed(graph, model.tgt_embed, tokens), place)
    looks: list[str] = []
    for number, layer in enumerate(model.decoder.layers):
        x = _residual(
            graph, x, layer, layer.norm1, lambda x, n=number, h=layer.self_attn: _cached_self_attention(graph, h, x, n)
        )
        x = _residual(
            graph,
            x,
            layer,
            layer.norm2,
            lambda x, n=number, h=layer.cross_attn: _cross_attention(graph, h, x, n, bias, looks),
        )
        x = _residual(graph, x, layer, layer.norm3, lambda x, layer=layer: _feed_forward(graph, layer.feed_forward, x))
    x = _layer_norm(graph, x, model.decoder.norm)
    words = graph.weight(model.lm_head.weight)
    graph.output("logits", graph("Gemm", x, words, transB=1), ("rows", "words"))
    seen = graph("Concat", *looks, axis=2)
    heads = _require_multi_head(model.decoder.layers[0].cross_attn).num_heads
    weights = graph("Transpose", seen, perm=(0, 2, 1, 3))
    graph.output("weights", weights, ("rows", len(looks), heads, "source"))
    return graph


def _embed(graph: OnnxGraph, embedding: Any, token_ids: str) -> str:
    return graph("Mul", graph("Gather", graph.weight(embedding.weight), token_ids), graph.float_scalar(embedding.scale))


def _residual(graph: OnnxGraph, x: str, layer: Any, norm: Any, sublayer: Any) -> str:
    """norm(x + sublayer(x)), or x + sublayer(norm(x))."""
    if layer.norm_first:
        return graph("Add", x, sublayer(_layer_norm(graph, x, norm)))
    return _layer_norm(graph, graph("Add", x, sublayer(x)), norm)


def _layer_norm(graph: OnnxGraph, x: str, norm: Any) -> str:
    if isinstance(norm, nn.Identity):
        return x
    scale, shift = graph.weight(norm.weight), graph.weight(norm.bias)
    return graph("LayerNormalization", x, scale, shift, axis=-1, epsilon=norm.eps)


def _feed_forward(graph: OnnxGraph, network: Any, x: str) -> str:
    return graph.linear(graph("Relu", graph.linear(x, network.linear1)), network.linear2)


def _self_attention(graph: OnnxGraph, heads: Any, x: str, bias: str) -> str:
    """All positions of the source look at all of them."""
    joined = graph.linear(x, heads.q_proj, heads.k_proj, heads.v_proj)
    query, key, value = graph.multi_output("Split", 3, joined, axis=-1)
    query, value = (_split_heads(graph, heads, part, (0, 2, 1, 3)) for part in (query, value))
    context, _ = _attend(graph, heads, query, _split_heads(graph, heads, key, (0, 2, 3, 1)), value, bias)
    joined = graph("Reshape", graph("Transpose", context, perm=(0, 2, 1, 3)), graph.int_tensor(0, 0, heads.embed_dim))
    return graph.linear(joined, heads.out_proj)


def _cached_self_attention(graph: OnnxGraph, heads: Any, x: str, number: int) -> str:
    """One word looks at those before it and at itself, and joins the past."""
    shape = ("rows", heads.num_heads, "past", heads.head_dim)
    joined = graph.linear(x, heads.q_proj, heads.k_proj, heads.v_proj)
    query, key, value = (
        _split_one_position(graph, heads, part) for part in graph.multi_output("Split", 3, joined, axis=-1)
    )
    both = []
    for name, new in (("key", key), ("value", value)):
        before = graph.input(f"state.{name}.{number}", shape)
        both.append(graph("Concat", before, new, axis=2))
        graph.output(f"new.{name}.{number}", both[-1], shape)
    key, value = graph("Transpose", both[0], perm=(0, 1, 3, 2)), both[1]
    context, _ = _attend(graph, heads, query, key, value)
    return graph.linear(graph("Reshape", context, graph.int_tensor(0, heads.embed_dim)), heads.out_proj)


def _cross_attention(graph: OnnxGraph, heads: Any, x: str, number: int, bias: str, all_weights: list[str]) -> str:
    """One word looks at the source."""
    key = graph.input(f"memory.key.{number}", ("rows", heads.num_heads, heads.head_dim, "source"))
    value = graph.input(f"memory.value.{number}", ("rows", heads.num_heads, "source", heads.head_dim))
    query = _split_one_position(graph, heads, graph.linear(x, heads.q_proj))
    context, weights = _attend(graph, heads, query, key, value, bias)
    all_weights.append(weights)
    return graph.linear(graph("Reshape", context, graph.int_tensor(0, heads.embed_dim)), heads.out_proj)


def _attend(graph: OnnxGraph, heads: Any, query: str, key: str, value: str, bias: str | None = None) -> tuple[str, str]:
    """The equation: scores, hide, normalize, context; keys are turned already."""
    scores = graph("MatMul", graph("Mul", query, graph.float_scalar(heads.head_dim**-0.5)), key)
    weights = graph("Softmax", scores if bias is None else graph("Add", scores, bias), axis=-1)
    return graph("MatMul", weights, value), weights


def _split_heads(graph: OnnxGraph, heads: Any, x: str, order: tuple[int, ...]) -> str:
    """From (rows, source, dim) to heads, axes in this order."""
    apart = graph("Reshape", x, graph.int_tensor(0, 0, heads.num_heads, heads.head_dim))
    return graph("Transpose", apart, perm=order)


def _split_one_position(graph: OnnxGraph, heads: Any, x: str) -> str:
    """From (rows, dim) to heads of one position."""
    return graph("Reshape", x, graph.int_tensor(0, heads.num_heads, 1, heads.head_dim))


def _require_multi_head(part: Any) -> MultiHead:
    assert isinstance(part, MultiHead)
    return part
