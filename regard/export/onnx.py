"""ONNX Runtime: an exported model as two graphs, and the engine that searches with them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard._imports import require_extra
from regard.data.tokenizer import pad_rows
from regard.decoding import DecodingConfig, Hypothesis, decode
from regard.errors import ExportCorruptError, UnsupportedError
from regard.export.folder import check_export_length, num_export_positions
from regard.export.onnx_models import build_graphs
from regard.files import read_file
from regard.tasks.translation.inference import InferenceEngine
from regard.tasks.translation.predictor import Translator
from regard.tasks.translation.scorer import group_by_length

__all__ = ["DECODER_FILE", "ENCODER_FILE", "OnnxDecoderState", "OnnxEngine", "next_input", "write_model"]

ENCODER_FILE, DECODER_FILE = "encoder.onnx", "decoder.onnx"
MAX_BATCH_TOKENS = 6_000  # source tokens of a batch, counted once for each hypothesis of the beam


def write_model(translator: Translator, folder: Path, quantize: str | None) -> None:
    """Write the model into a folder as two ONNX graphs.

    Args:
        translator: with a network as its model
        folder: an existing folder
        quantize: "int8" for matrix products in eight bits, or None
    """
    graphs = build_graphs(translator.torch_model, num_export_positions(translator.max_length))
    for graph, name in zip(graphs, (ENCODER_FILE, DECODER_FILE), strict=True):
        graph.save(folder / name)
        if quantize is not None:
            _quantize(folder / name)


def _quantize(path: Path) -> None:
    """Store the weights of matrix products as integers with one scale per column.

    Activations are quantized at run time. The integers have seven bits: processors without VNNI instructions add
    pairs of products in sixteen bits, which two products of eight bits would overflow.
    """
    quantization = require_extra("onnxruntime.quantization", extra="export")
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # the advice to preprocess the graph, which needs no preprocessing
    try:
        quantization.quantize_dynamic(
            _untie_output(path),
            path,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            reduce_range=True,
            weight_type=quantization.QuantType.QInt8,
        )
    finally:
        logging.disable(level)


def _untie_output(path: Path) -> Any:
    """The graph, in which the output projection has a weight of its own; embeddings are not quantized."""
    model = require_extra("onnx", extra="export").load_model(str(path))
    constants = {constant.name: constant for constant in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Gemm":
            weight = model.graph.initializer.add()
            weight.CopyFrom(constants[node.input[1]])
            weight.name = node.input[1] = f"{weight.name}_output"
    return model


def next_input(output: str) -> str:
    """The input of the next decoder step that an output of either graph is.

    Args:
        output: its name

    Example:
        >>> next_input("present.0.decoder.key"), next_input("present_states"), next_input("last_hidden_state")
        ('past_key_values.0.decoder.key', 'past_states', 'encoder_hidden_states')
    """
    name = "encoder_hidden_states" if output == "last_hidden_state" else output
    return name.replace("present.", "past_key_values.", 1).replace("present_", "past_", 1)


class OnnxEngine(InferenceEngine):
    """An exported model in ONNX Runtime. The search is that of regard, with all its options.

    Args:
        folder: contains the two graphs
        max_length: of the model, in source tokens
    """

    name = "onnx"
    takes_steps = True

    def __init__(self, folder: Path, max_length: int):
        self.encoder, self.decoder = (_open_session(folder / name) for name in (ENCODER_FILE, DECODER_FILE))
        self.decoder_inputs = {value.name for value in self.decoder.get_inputs()}
        self.decoder_outputs = [value.name for value in self.decoder.get_outputs()]
        inputs_of_outputs = {value.name: next_input(value.name) for value in self.encoder.get_outputs()}
        self.encoder_outputs = [name for name, after in inputs_of_outputs.items() if after in self.decoder_inputs]
        self.state_names = {next_input(name) for name in self.decoder_outputs if name.startswith("present")}
        states = {name for name in inputs_of_outputs.values() if name.startswith("past") and ".encoder." not in name}
        if not (
            {value.name for value in self.encoder.get_inputs()} == {"input_ids", "attention_mask"}
            and "logits" in self.decoder_outputs
            and self.decoder_inputs - {"input_ids", "encoder_attention_mask"} <= set(inputs_of_outputs.values())
            and states == self.state_names <= self.decoder_inputs
        ):
            raise ExportCorruptError(
                f"{folder}: {ENCODER_FILE} and {DECODER_FILE} do not belong together, or are those of an earlier regard"
                ", whose inputs had other names; export the model again"
            )
        self.takes_mask = "encoder_attention_mask" in self.decoder_inputs
        self.has_attention = "cross_attentions" in self.decoder_outputs
        self.num_positions = num_export_positions(max_length)

    def search(
        self, sources: Sequence[list[int]], options: DecodingConfig, generator: torch.Generator | None = None
    ) -> list[list[Hypothesis]]:
        hypotheses: dict[int, list[Hypothesis]] = {}
        width = options.beam_size if options.method == "beam" else options.num_best
        lengths = [len(source) for source in sources]
        for rows in group_by_length(range(len(sources)), lengths, max(1, MAX_BATCH_TOKENS // width)):
            batch = pad_rows([list(sources[row]) for row in rows])
            hypotheses.update(zip(rows, decode(self, *batch, options, generator=generator), strict=True))
        return [hypotheses[row] for row in range(len(sources))]

    def start_decoding(
        self, source: Int[Tensor, "batch src_len"], source_lengths: Int[Tensor, " batch"], /
    ) -> OnnxDecoderState:
        return OnnxDecoderState(self, source, source_lengths)

    def attention_weights(
        self,
        source: Int[Tensor, "batch src_len"],
        source_lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch tgt_len"],
    ) -> list[Float[Tensor, "batch heads tgt_len-1 src_len"]]:
        """The weights of each layer for given translations, computed step by step."""
        if not self.has_attention:
            return []
        state, weights = self.start_decoding(source, source_lengths), []
        for tokens in target[:, :-1].unbind(1):
            state.step(tokens)
            weights.append(state.last_weights)
        return list(torch.stack(weights, 3).unbind(1))


class OnnxDecoderState:
    """State of a decoder in ONNX Runtime that takes one token of each row per step.

    Args:
        engine: the engine
        source: tokens (batch, src_len)
        lengths: their numbers (batch,)
    """

    def __init__(self, engine: OnnxEngine, source: Tensor, lengths: Tensor):
        self.engine, self.position = engine, 0
        mask = (torch.arange(source.shape[1]) < lengths[:, None]).long().numpy()
        arrays = engine.encoder.run(engine.encoder_outputs, {"input_ids": source.numpy(), "attention_mask": mask})
        inputs = dict(zip(map(next_input, engine.encoder_outputs), arrays, strict=True))
        self.state = {name: inputs.pop(name) for name in engine.state_names}
        self.memory = inputs | ({"encoder_attention_mask": mask} if engine.takes_mask else {})
        self.source_rows = torch.arange(len(lengths))  # which source each row translates
        self.last_weights = torch.empty(0)

    def step(self, tokens: Int[Tensor, " rows"], /) -> Float[Tensor, "rows vocab"]:
        """Logits of the next token of each row, given the token before it."""
        engine = self.engine
        check_export_length(self.position + 1, engine.num_positions)
        inputs = {"input_ids": tokens.numpy()[:, None], **self.memory, **self.state}
        outputs = dict(zip(engine.decoder_outputs, engine.decoder.run(engine.decoder_outputs, inputs), strict=True))
        self.state = {next_input(name): array for name, array in outputs.items() if name.startswith("present")}
        if engine.has_attention:
            self.last_weights = torch.from_numpy(outputs["cross_attentions"])
        self.position += 1
        return torch.from_numpy(outputs["logits"]).squeeze(1)

    def weights(self) -> Float[Tensor, "rows src_len"]:
        """Attention weights of the last step, averaged over layers and heads."""
        if not self.engine.has_attention:
            raise UnsupportedError("a model without attention has no weights")
        return self.last_weights.mean((1, 2))

    def reorder(self, rows: Int[Tensor, " new_rows"], /) -> None:
        """Continue with these rows; a row may be repeated or left out."""
        self.state = _select_rows(self.state, rows)
        before, self.source_rows = self.source_rows, self.source_rows[rows]
        if not torch.equal(before, self.source_rows):  # hypotheses of a beam usually stay within their sentence
            self.memory = _select_rows(self.memory, rows)


def _select_rows(arrays: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    return {name: torch.from_numpy(array).index_select(0, rows).numpy() for name, array in arrays.items()}


def _open_session(path: Path) -> Any:
    runtime = require_extra("onnxruntime", extra="export")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors only
    try:  # as bytes, so that a graph cannot name other files to be read
        content = read_file(path)
        model = require_extra("onnx", extra="export").load_model_from_string(content)
        attributes = (attribute for node in model.graph.node for attribute in node.attribute)
        if model.functions or any(attribute.HasField("g") or attribute.graphs for attribute in attributes):
            raise ValueError("it has inner graphs, such as loops, which need not end")
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime raises exceptions of many types
        raise ExportCorruptError(f"{path} is no graph that ONNX Runtime can run; export the model again") from error
