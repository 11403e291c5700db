"""Encoder-decoder models as two ONNX graphs: the encoder, and one step of the decoder.

Outputs `memory.*` of the encoder belong to a source, outputs `state.*` to a translation; both are inputs of the
decoder step, whose outputs `new.*` are the next state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import LocalM, LocalP
from regard.errors import ExportError
from regard.export import onnx_graph
from regard.export.folder import check_exportable, position_table
from regard.export.onnx_graph import FLOAT32, INT32, OnnxGraph
from regard.models import RNNSeq2Seq, Transformer

__all__ = ["build_graphs"]

# Gates of ONNX's cells by their index in PyTorch's.
GATE_ORDER = {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}


def build_graphs(model: RNNSeq2Seq | Transformer, num_positions: int) -> tuple[OnnxGraph, OnnxGraph]:
    """The graphs of the encoder and of a decoder step.

    Args:
        model: the model; ExportError if it has parts that the graphs do not support
        num_positions: size of a Transformer's position table

    Returns:
        the encoder, from `source` and `lengths` to the memory and the initial state, and the decoder step, from
        `tokens`, `position`, the memory and the state to `logits`, `weights` and the new state
    """
    encoder, decoder = OnnxGraph("encoder"), OnnxGraph("decoder_step")
    source = encoder.input("source", ("batch", "src_len"), np.int64)
    lengths = encoder.input("lengths", ("batch",), np.int64)
    tokens = decoder.input("tokens", ("batch",), np.int64)
    if isinstance(model, Transformer):
        check_exportable(model, "ONNX")
        _add_transformer_encoder(encoder, model, source, lengths, num_positions)
        _add_transformer_step(decoder, model, tokens, num_positions)
    else:
        if model.attention is not None:
            onnx_graph.check_attention(model.attention)
        _add_rnn_encoder(encoder, model, source, lengths)
        _add_rnn_step(decoder, model, tokens)
    return encoder, decoder


# ---- RNNSeq2Seq


def _add_rnn_encoder(graph: OnnxGraph, model: RNNSeq2Seq, source: str, lengths: str) -> None:
    states, final = _encode_rnn(graph, model, source, lengths)
    states_dim, num_states = model.bridge.in_features, model.first_cell.num_states * len(model.cells)
    if model.attention is None:
        graph.output("memory.last", final, ("batch", states_dim))
    else:
        graph.output("memory.states", states, ("batch", "src_len", states_dim))
        graph.output("memory.padding_bias", onnx_graph.padding_bias(graph, source, lengths), ("batch", "src_len"))
        score: Any = model.attention.score
        if (keys := onnx_graph.project_keys(graph, score, states)) is not None:
            graph.output("memory.keys", keys, ("batch", "src_len", score.hidden_dim))
        if isinstance(model.attention, LocalM | LocalP):
            graph.output("memory.length", graph("Unsqueeze", graph("Cast", lengths, to=FLOAT32), [1]), ("batch", 1))
    cells = graph("Reshape", graph("Tanh", graph.linear(final, model.bridge)), [0, num_states, model.hidden_dim])
    graph.output("state.cells", cells, ("batch", num_states, model.hidden_dim))
    if model.input_feeding:
        dim = model.readout_proj.out_features
        zeros = graph("ConstantOfShape", graph.shape(graph.size(source, 0), dim))
        graph.output("state.input_feed", zeros, ("batch", dim))


def _encode_rnn(graph: OnnxGraph, model: RNNSeq2Seq, source: str, lengths: str) -> tuple[str, str]:
    """All states (batch, src_len, dim) and the final ones (batch, dim), by ONNX's own recurrent layers."""
    layers, num_directions = model.encoder.layers, model.encoder.num_directions
    op = type(layers).__name__
    attributes: dict[str, Any] = {"direction": "bidirectional" if num_directions == 2 else "forward"}
    if op == "GRU":
        attributes["linear_before_reset"] = 1
    lengths = graph("Cast", lengths, to=INT32)
    x = graph("Transpose", graph("Gather", model.src_embed.weight, source), perm=(1, 0, 2))
    final = ""
    for layer in range(layers.num_layers):
        weights = _rnn_weights(layers, layer, GATE_ORDER[op], num_directions)
        states, final = graph.multi_output(op, 2, x, *weights, lengths, hidden_size=layers.hidden_size, **attributes)
        x = graph("Reshape", graph("Transpose", states, perm=(0, 2, 1, 3)), [0, 0, -1])
    final = graph("Reshape", graph("Transpose", final, perm=(1, 0, 2)), [0, -1])
    return graph("Transpose", x, perm=(1, 0, 2)), final


def _rnn_weights(layers: nn.RNNBase, layer: int, gates: tuple[int, ...], num_directions: int) -> list[Tensor]:
    """Weights of the input, weights of the state, and both biases in one row, stacked over directions."""

    def stack(name: str) -> Tensor:
        suffixes = ("", "_reverse")[:num_directions]
        chunks = [getattr(layers, f"{name}_l{layer}{suffix}").chunk(len(gates)) for suffix in suffixes]
        return torch.stack([torch.cat([direction[gate] for gate in gates]) for direction in chunks])

    return [stack("weight_ih"), stack("weight_hh"), torch.cat([stack("bias_ih"), stack("bias_hh")], 1)]


def _add_rnn_step(graph: OnnxGraph, model: RNNSeq2Seq, tokens: str) -> None:
    per_cell = model.first_cell.num_states
    num_states, feed_dim = per_cell * len(model.cells), model.readout_proj.out_features
    cells = graph.input("state.cells", ("batch", num_states, model.hidden_dim))
    states = [graph("Squeeze", part, [1]) for part in graph.multi_output("Split", num_states, cells, axis=1)]
    attend = _make_attention(graph, model)
    embedded = graph("Gather", model.tgt_embed.weight, tokens)
    if model.decoder_type == "bahdanau":
        context, weights = attend(states[-per_cell])
        states = _step_cells(graph, model, embedded, context, states)
        readout = graph("Concat", states[-per_cell], context, embedded, axis=1)
        pairs = graph("Reshape", graph.linear(readout, model.readout_proj), [0, -1, 2])
        hidden = graph("ReduceMax", pairs, axes=[-1], keepdims=0)
    else:
        input_feed = graph.input("state.input_feed", ("batch", feed_dim)) if model.input_feeding else None
        states = _step_cells(graph, model, embedded, input_feed, states)
        context, weights = attend(states[-per_cell])
        readout = graph("Concat", states[-per_cell], context, axis=1)
        hidden = graph("Tanh", graph.linear(readout, model.readout_proj))
        if model.input_feeding:
            graph.output("new.input_feed", hidden, ("batch", feed_dim))
    graph.output("logits", graph("Gemm", hidden, model.lm_head.weight, transB=1), ("batch", "vocab"))
    new_cells = graph("Concat", *(graph("Unsqueeze", state, [1]) for state in states), axis=1)
    graph.output("new.cells", new_cells, ("batch", num_states, model.hidden_dim))
    if weights:
        graph.output("weights", graph("Unsqueeze", weights, [1, 2]), ("batch", 1, 1, "src_len"))


def _make_attention(graph: OnnxGraph, model: RNNSeq2Seq) -> Callable[[str], tuple[str, str]]:
    """From the name of a query to those of its context and its weights; without attention, "" for the weights."""
    states_dim = model.bridge.in_features
    if model.attention is not None:
        return onnx_graph.OnnxAttention(graph, model.attention, states_dim)
    final = graph.input("memory.last", ("batch", states_dim))
    return lambda query: (final, "")


def _step_cells(graph: OnnxGraph, model: RNNSeq2Seq, x: str, context: str | None, states: list[str]) -> list[str]:
    """The states of all layers after one more step."""
    per_cell = model.first_cell.num_states
    update = _update_gru if per_cell == 1 else _update_lstm
    new_states: list[str] = []
    for layer, cell in enumerate(model.get_cells()):
        state = states[layer * per_cell : (layer + 1) * per_cell]
        gates = graph.linear(x, cell.input_proj)
        if cell.context_proj is not None and context is not None:
            gates = graph("Add", gates, graph.linear(context, cell.context_proj))
        new_states += update(graph, gates, graph.linear(state[0], cell.hidden_proj), state)
        x, context = new_states[-per_cell], None
    return new_states


def _update_gru(graph: OnnxGraph, projected_input: str, projected_hidden: str, state: list[str]) -> list[str]:
    r_x, z_x, n_x = graph.multi_output("Split", 3, projected_input, axis=-1)
    r_h, z_h, n_h = graph.multi_output("Split", 3, projected_hidden, axis=-1)
    reset, keep = (graph("Sigmoid", graph("Add", x, h)) for x, h in ((r_x, r_h), (z_x, z_h)))
    new = graph("Tanh", graph("Add", n_x, graph("Mul", reset, n_h)))
    return [graph("Add", new, graph("Mul", keep, graph("Sub", state[0], new)))]


def _update_lstm(graph: OnnxGraph, projected_input: str, projected_hidden: str, state: list[str]) -> list[str]:
    i, f, g, o = graph.multi_output("Split", 4, graph("Add", projected_input, projected_hidden), axis=-1)
    i, f, o = (graph("Sigmoid", gate) for gate in (i, f, o))
    c = graph("Add", graph("Mul", f, state[1]), graph("Mul", i, graph("Tanh", g)))
    return [graph("Mul", o, graph("Tanh", c)), c]


# ---- Transformer


def _add_transformer_encoder(
    graph: OnnxGraph, model: Transformer, source: str, lengths: str, num_positions: int
) -> None:
    """The keys and values of each decoder layer's cross-attention, and empty caches of its self-attention."""
    bias = graph("Unsqueeze", onnx_graph.padding_bias(graph, source, lengths), [1, 2])
    positions = graph("Slice", position_table(model.src_embed, num_positions), [0], graph.size(source, 1), [0])
    x = graph("Add", _embed(graph, model.src_embed, source), positions)
    for layer in model.encoder.layers:
        x = _residual(graph, x, layer, layer.norm1, lambda x, mha=layer.self_attn: _self_attn(graph, mha, x, bias))
        x = _residual(graph, x, layer, layer.norm2, lambda x, net=layer.feed_forward: _feed_forward(graph, net, x))
    x = _layer_norm(graph, x, model.encoder.norm)
    for index, layer in enumerate(model.decoder.layers):
        mha: Any = layer.cross_attn
        heads = ("batch", mha.num_heads)
        key = _split_heads(graph, mha, graph.linear(x, mha.k_proj), (0, 2, 3, 1))
        graph.output(f"memory.key.{index}", key, (*heads, mha.head_dim, "src_len"))
        value = _split_heads(graph, mha, graph.linear(x, mha.v_proj), (0, 2, 1, 3))
        graph.output(f"memory.value.{index}", value, (*heads, "src_len", mha.head_dim))
        empty = graph("ConstantOfShape", graph.shape(graph.size(source, 0), mha.num_heads, 0, mha.head_dim))
        for name in ("key", "value"):
            graph.output(f"state.{name}.{index}", empty, (*heads, "past", mha.head_dim))
    graph.output("memory.padding_bias", bias, ("batch", 1, 1, "src_len"))


def _add_transformer_step(graph: OnnxGraph, model: Transformer, tokens: str, num_positions: int) -> None:
    position = graph.input("position", (), np.int64)
    bias = graph.input("memory.padding_bias", ("batch", 1, 1, "src_len"))
    embedded = _embed(graph, model.tgt_embed, tokens)
    x = graph("Add", embedded, graph("Gather", position_table(model.tgt_embed, num_positions), position))
    weights: list[str] = []

    def attend_to_memory(x: str, mha: Any) -> str:
        index = len(weights)
        key = graph.input(f"memory.key.{index}", ("batch", mha.num_heads, mha.head_dim, "src_len"))
        value = graph.input(f"memory.value.{index}", ("batch", mha.num_heads, "src_len", mha.head_dim))
        query = _split_position(graph, mha, graph.linear(x, mha.q_proj))
        context, layer_weights = _attend(graph, mha, query, key, value, bias)
        weights.append(layer_weights)
        return context

    for index, layer in enumerate(model.decoder.layers):
        x = _residual(
            graph, x, layer, layer.norm1, lambda x, i=index, mha=layer.self_attn: _cached_self_attn(graph, mha, x, i)
        )
        x = _residual(graph, x, layer, layer.norm2, lambda x, mha=layer.cross_attn: attend_to_memory(x, mha))
        x = _residual(graph, x, layer, layer.norm3, lambda x, net=layer.feed_forward: _feed_forward(graph, net, x))
    x = _layer_norm(graph, x, model.decoder.norm)
    bias_terms = [] if model.lm_head.bias is None else [model.lm_head.bias]
    graph.output("logits", graph("Gemm", x, model.lm_head.weight, *bias_terms, transB=1), ("batch", "vocab"))
    all_weights = graph("Transpose", graph("Concat", *weights, axis=2), perm=(0, 2, 1, 3))
    first: Any = model.decoder.layers[0]
    graph.output("weights", all_weights, ("batch", len(weights), first.cross_attn.num_heads, "src_len"))


def _embed(graph: OnnxGraph, embedding: Any, token_ids: str) -> str:
    return graph("Mul", graph("Gather", embedding.weight, token_ids), embedding.scale)


def _residual(graph: OnnxGraph, x: str, layer: Any, norm: Any, sublayer: Any) -> str:
    """norm(x + sublayer(x)), or x + sublayer(norm(x)) with `norm_first`."""
    if layer.norm_first:
        return graph("Add", x, sublayer(_layer_norm(graph, x, norm)))
    return _layer_norm(graph, graph("Add", x, sublayer(x)), norm)


def _layer_norm(graph: OnnxGraph, x: str, norm: Any) -> str:
    if isinstance(norm, nn.Identity):
        return x
    return graph("LayerNormalization", x, norm.weight, norm.bias, axis=-1, epsilon=norm.eps)


def _feed_forward(graph: OnnxGraph, network: Any, x: str) -> str:
    return graph.linear(_activate(graph, network.activation, graph.linear(x, network.linear1)), network.linear2)


def _activate(graph: OnnxGraph, name: str, x: str) -> str:
    """An activation of `FeedForward`; GELU is no operator of this version of ONNX."""
    match name:
        case "relu":
            return graph("Relu", x)
        case "silu":
            return graph("Mul", x, graph("Sigmoid", x))
        case "gelu":
            inner = graph("Erf", graph("Mul", x, 0.5**0.5))
        case "gelu_tanh":
            cube = graph("Mul", graph("Mul", x, graph("Mul", x, x)), 0.044715)
            inner = graph("Tanh", graph("Mul", graph("Add", x, cube), (2 / math.pi) ** 0.5))
        case _:
            raise ExportError(f"ONNX graphs of regard have no activation {name!r}; export the model to safetensors")
    return graph("Mul", graph("Mul", x, 0.5), graph("Add", inner, 1.0))


def _project_qkv(graph: OnnxGraph, mha: Any, x: str) -> list[str]:
    return graph.multi_output("Split", 3, graph.linear(x, mha.q_proj, mha.k_proj, mha.v_proj), axis=-1)


def _self_attn(graph: OnnxGraph, mha: Any, x: str, bias: str) -> str:
    """Self-attention over the source (batch, src_len, dim)."""
    query, key, value = (
        _split_heads(graph, mha, part, order)
        for part, order in zip(_project_qkv(graph, mha, x), ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True)
    )
    scores = graph("MatMul", graph("Mul", query, mha.head_dim**-0.5), key)
    context = graph("MatMul", graph("Softmax", graph("Add", scores, bias), axis=-1), value)
    merged = graph("Reshape", graph("Transpose", context, perm=(0, 2, 1, 3)), [0, 0, mha.embed_dim])
    return graph.linear(merged, mha.out_proj)


def _cached_self_attn(graph: OnnxGraph, mha: Any, x: str, layer: int) -> str:
    """Self-attention of one position (batch, dim), whose key and value are appended to the cache."""
    shape = ("batch", mha.num_heads, "past", mha.head_dim)
    query, *new = (_split_position(graph, mha, part) for part in _project_qkv(graph, mha, x))
    cache = []
    for name, part in zip(("key", "value"), new, strict=True):
        cache.append(graph("Concat", graph.input(f"state.{name}.{layer}", shape), part, axis=2))
        graph.output(f"new.{name}.{layer}", cache[-1], shape)
    return _attend(graph, mha, query, graph("Transpose", cache[0], perm=(0, 1, 3, 2)), cache[1])[0]


def _attend(graph: OnnxGraph, mha: Any, query: str, key: str, value: str, bias: str | None = None) -> tuple[str, str]:
    """Output and weights of one query (batch, heads, 1, head_dim); keys are (batch, heads, head_dim, keys)."""
    scores = graph("MatMul", graph("Mul", query, mha.head_dim**-0.5), key)
    weights = graph("Softmax", scores if bias is None else graph("Add", scores, bias), axis=-1)
    context = graph("Reshape", graph("MatMul", weights, value), [0, mha.embed_dim])
    return graph.linear(context, mha.out_proj), weights


def _split_heads(graph: OnnxGraph, mha: Any, x: str, order: tuple[int, ...]) -> str:
    """From (batch, src_len, dim) to heads, with the axes in this order."""
    return graph("Transpose", graph("Reshape", x, [0, 0, mha.num_heads, mha.head_dim]), perm=order)


def _split_position(graph: OnnxGraph, mha: Any, x: str) -> str:
    """From (batch, dim) to (batch, heads, 1, head_dim)."""
    return graph("Reshape", x, [0, mha.num_heads, 1, mha.head_dim])
