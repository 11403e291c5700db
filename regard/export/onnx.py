"""A model for ONNX Runtime: two graphs, which our own search drives step by step."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard._imports import require_extra
from regard.data.tokenizer import pad_rows
from regard.decoding import DecodingConfig, Hypothesis, decode
from regard.errors import ExportCorruptError, UnsupportedError
from regard.export import onnx_models
from regard.export.folder import check_export_length, check_exportable, num_export_positions
from regard.models import RNNSeq2Seq, Transformer
from regard.tasks.translation.inference import InferenceEngine, group_by_length
from regard.tasks.translation.predictor import Translator

ENCODER_FILE, DECODER_FILE = "encoder.onnx", "decoder.onnx"


MAX_BATCH_TOKENS = 6_000  # tokens on all beams of a batch


def write_model(translator: Translator, folder: Path, quantize: str | None) -> None:
    """Put the model into a folder as two graphs, their products in eight bits if `quantize` says so."""
    model, positions = translator.model, num_export_positions(translator.max_length)
    if isinstance(model, Transformer):
        check_exportable(model, "ONNX")
        graphs = (
            onnx_models.transformer_encoder_graph(model, positions),
            onnx_models.transformer_decoder_step_graph(model, positions),
        )
    else:
        assert isinstance(model, RNNSeq2Seq)
        onnx_models.check_rnn(model)
        graphs = onnx_models.rnn_encoder_graph(model), onnx_models.rnn_decoder_step_graph(model)
    for graph, name in zip(graphs, (ENCODER_FILE, DECODER_FILE), strict=True):
        graph.save(folder / name)
        if quantize is not None:
            _quantize(folder / name)


def _quantize(path: Path) -> None:
    """Weights of matrix products as whole numbers, a scale for each column; the rest is quantized as it comes.

    Seven bits are used of the eight: processors without the newer instructions add pairs of products in sixteen
    bits, where two large ones would not fit.
    """
    quantization = require_extra("onnxruntime.quantization", extra="export")
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # it advises to prepare a graph that has nothing left to prepare
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
    """The graph with a matrix of its own for the scores of words: eight bits are not for looking words up."""
    model = require_extra("onnx", extra="export").load_model(str(path))
    constants = {one.name: one for one in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Gemm":
            own = model.graph.initializer.add()
            own.CopyFrom(constants[node.input[1]])
            own.name = node.input[1] = f"{own.name}_words"
    return model


class OnnxEngine(InferenceEngine):
    """An exported model in ONNX Runtime; the search is ours, so that every way of decoding works as it does here."""

    name = "onnx"
    takes_steps = True

    def __init__(self, folder: Path, max_length: int):
        self.encoder, self.decoder = (_open_session(folder / name) for name in (ENCODER_FILE, DECODER_FILE))
        told, asked = _value_names(self.encoder.get_outputs()), _value_names(self.decoder.get_inputs())
        said = _value_names(self.decoder.get_outputs())
        again = {f"state.{name.removeprefix('new.')}" for name in said if name.startswith("new.")}
        states = {name for name in told if name.startswith("state.")}
        taken = _value_names(self.encoder.get_inputs()) <= {"source", "lengths"}
        if not (taken and "logits" in said and asked - {"tokens", "position"} <= told and states <= again):
            raise ExportCorruptError(
                f"{folder}: {ENCODER_FILE} and {DECODER_FILE} do not belong together; export the model again"
            )
        self.has_attention = "weights" in said
        self.num_positions = num_export_positions(max_length)

    def search(
        self, sources: Sequence[list[int]], options: DecodingConfig, generator: torch.Generator | None = None
    ) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = [[] for _ in sources]
        width = options.beam_size if options.method == "beam" else options.num_best
        lengths = [len(source) for source in sources]
        for rows in group_by_length(range(len(sources)), lengths, max(1, MAX_BATCH_TOKENS // width)):
            batch = pad_rows([list(sources[row]) for row in rows])
            for row, several in zip(rows, decode(self, *batch, options, generator=generator), strict=True):
                found[row] = several
        return found

    def start_decoding(
        self, source: Int[Tensor, "rows source"], source_lengths: Int[Tensor, " rows"], /
    ) -> OnnxDecoderState:
        return OnnxDecoderState(self, source, source_lengths)

    def attention_weights(
        self,
        source: Int[Tensor, "rows source"],
        source_lengths: Int[Tensor, " rows"],
        target: Int[Tensor, "rows target"],
    ) -> list[Float[Tensor, "rows heads target-1 source"]]:
        """Word by word along the target: where each looked in the source, a layer each."""
        if not self.has_attention:
            return []
        steps = self.start_decoding(source, source_lengths)
        seen = []
        for words in target[:, :-1].unbind(1):
            steps.step(words)
            seen.append(steps.last_weights)
        return list(torch.stack(seen, 3).unbind(1))


class OnnxDecoderState:
    """Translations being written by ONNX Runtime, one word of each row at a time.

    What the reading graph gives stays: `memory` belongs to a source, `state` to what is written of it.
    """

    def __init__(self, engine: OnnxEngine, source: Tensor, lengths: Tensor):
        names = [value.name for value in engine.encoder.get_outputs()]
        given = {"source": source.numpy(), "lengths": lengths.numpy()}
        found = dict(zip(names, engine.encoder.run(names, given), strict=True))
        self.memory = {name: value for name, value in found.items() if name.startswith("memory.")}
        self.state = {name: value for name, value in found.items() if name.startswith("state.")}
        self.engine, self.position = engine, 0
        self.source_rows = torch.arange(len(lengths))  # which source each row translates
        self.output_names = [value.name for value in engine.decoder.get_outputs()]
        self.input_names = {value.name for value in engine.decoder.get_inputs()}
        self.last_weights = torch.empty(0)

    def step(self, words: Int[Tensor, " rows"], /) -> Float[Tensor, "rows words"]:
        check_export_length(self.position + 1, self.engine.num_positions)
        given: dict[str, Any] = {"tokens": words.numpy(), "position": np.array(self.position)}
        given = {name: value for name, value in given.items() if name in self.input_names}
        answers = self.engine.decoder.run(self.output_names, {**given, **self.memory, **self.state})
        found = dict(zip(self.output_names, answers, strict=True))
        self.state = {f"state.{name[4:]}": found[name] for name in found if name.startswith("new.")}
        if self.engine.has_attention:
            self.last_weights = torch.from_numpy(found["weights"])
        self.position += 1
        return torch.from_numpy(found["logits"])

    def weights(self) -> Float[Tensor, "rows source"]:
        """Where the last word looked, on average over layers and heads."""
        if not self.engine.has_attention:
            raise UnsupportedError("a model without attention has no weights")
        return self.last_weights.mean((1, 2))

    def reorder(self, rows: Int[Tensor, " new"], /) -> None:
        """Go on with these rows; one may be taken several times."""
        self.state = _select_rows(self.state, rows)
        before, self.source_rows = self.source_rows, self.source_rows[rows]
        if not torch.equal(before, self.source_rows):  # a beam mostly moves within its sentence: the source stays
            self.memory = _select_rows(self.memory, rows)


def _select_rows(tensors: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    return {name: torch.from_numpy(value).index_select(0, rows).numpy() for name, value in tensors.items()}


def _value_names(values: Sequence[Any]) -> set[str]:
    return {value.name for value in values}


def _open_session(path: Path) -> Any:
    runtime = require_extra("onnxruntime", extra="export")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors only
    try:  # as bytes, so that a graph cannot name other files to be read
        return runtime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # it has many kinds, and all of them mean this
        raise ExportCorruptError(f"{path} is no graph that ONNX Runtime can run; export the model again") from error
