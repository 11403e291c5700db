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
from regard.data.batch import filled
from regard.decoding import Decoding, Hypothesis, decode
from regard.errors import ExportCorruptError, UnsupportedError
from regard.models import Recurrent, Transformer
from regard.recipes.exporting import _onnx_recurrent, _onnx_transformer
from regard.recipes.exporting._fits import check, check_limit, positions_for
from regard.recipes.translation.engine import Engine
from regard.recipes.translation.translator import Translator, grouped

READ, WRITE = "read.onnx", "write.onnx"
AT_ONCE = 6_000  # tokens on all beams of a batch


def write(translator: Translator, folder: Path, quantize: str | None) -> None:
    """Put the model into a folder as two graphs, their products in eight bits if `quantize` says so."""
    model, positions = translator.model, positions_for(translator.max_length)
    if isinstance(model, Transformer):
        check(model, "ONNX")
        graphs = _onnx_transformer.reader(model, positions), _onnx_transformer.writer(model, positions)
    else:
        assert isinstance(model, Recurrent)
        _onnx_recurrent.check(model)
        graphs = _onnx_recurrent.reader(model), _onnx_recurrent.writer(model)
    for graph, name in zip(graphs, (READ, WRITE), strict=True):
        graph.save(folder / name)
        if quantize is not None:
            _in_eight_bits(folder / name)


def _in_eight_bits(path: Path) -> None:
    """Weights of matrix products as whole numbers, a scale for each column; the rest is quantized as it comes.

    Seven bits are used of the eight: processors without the newer instructions add pairs of products in sixteen
    bits, where two large ones would not fit.
    """
    quantization = require_extra("onnxruntime.quantization", extra="export")
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # it advises to prepare a graph that has nothing left to prepare
    try:
        quantization.quantize_dynamic(
            _untied(path),
            path,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            reduce_range=True,
            weight_type=quantization.QuantType.QInt8,
        )
    finally:
        logging.disable(level)


def _untied(path: Path) -> Any:
    """The graph with a matrix of its own for the scores of words: eight bits are not for looking words up."""
    model = require_extra("onnx", extra="export").load_model(str(path))
    constants = {one.name: one for one in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Gemm":
            own = model.graph.initializer.add()
            own.CopyFrom(constants[node.input[1]])
            own.name = node.input[1] = f"{own.name}_words"
    return model


class Onnx(Engine):
    """An exported model in ONNX Runtime; the search is ours, so that every way of decoding works as it does here."""

    name = "onnx"

    def __init__(self, folder: Path, max_length: int):
        self.read, self.write = (_session(folder / name) for name in (READ, WRITE))
        told, asked = _names(self.read.get_outputs()), _names(self.write.get_inputs())
        said = _names(self.write.get_outputs())
        again = {f"state.{name.removeprefix('new.')}" for name in said if name.startswith("new.")}
        states = {name for name in told if name.startswith("state.")}
        taken = _names(self.read.get_inputs()) <= {"source", "lengths"}
        if not (taken and "logits" in said and asked - {"tokens", "position"} <= told and states <= again):
            raise ExportCorruptError(
                f"{folder}: {READ} and {WRITE} do not belong together; export the model again"
            )
        self.attends = "weights" in said
        self.positions = positions_for(max_length)

    def search(
        self, sources: Sequence[list[int]], options: Decoding, generator: torch.Generator | None = None
    ) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = [[] for _ in sources]
        width = options.beam if options.method == "beam" else options.best
        lengths = [len(source) for source in sources]
        for rows in grouped(range(len(sources)), lengths, max(1, AT_ONCE // width)):
            batch = filled([list(sources[row]) for row in rows])
            for row, several in zip(rows, decode(self, *batch, options, generator=generator), strict=True):
                found[row] = several
        return found

    def begin(self, source: Int[Tensor, "rows source"], source_lengths: Int[Tensor, " rows"], /) -> OnnxSteps:
        return OnnxSteps(self, source, source_lengths)

    def looks(
        self,
        source: Int[Tensor, "rows source"],
        source_lengths: Int[Tensor, " rows"],
        target: Int[Tensor, "rows target"],
    ) -> list[Float[Tensor, "rows heads target-1 source"]]:
        """Word by word along the target: where each looked in the source, a layer each."""
        if not self.attends:
            return []
        steps = self.begin(source, source_lengths)
        seen = []
        for words in target[:, :-1].unbind(1):
            steps.step(words)
            seen.append(steps.seen)
        return list(torch.stack(seen, 3).unbind(1))


class OnnxSteps:
    """Translations being written by ONNX Runtime, one word of each row at a time.

    What the reading graph gives stays: `memory` belongs to a source, `state` to what is written of it.
    """

    def __init__(self, engine: Onnx, source: Tensor, lengths: Tensor):
        names = [value.name for value in engine.read.get_outputs()]
        given = {"source": source.numpy(), "lengths": lengths.numpy()}
        found = dict(zip(names, engine.read.run(names, given), strict=True))
        self.memory = {name: value for name, value in found.items() if name.startswith("memory.")}
        self.state = {name: value for name, value in found.items() if name.startswith("state.")}
        self.engine, self.position = engine, 0
        self.rows = torch.arange(len(lengths))  # which source each row translates
        self.wanted = [value.name for value in engine.write.get_outputs()]
        self.asked = {value.name for value in engine.write.get_inputs()}
        self.seen = torch.empty(0)

    def step(self, words: Int[Tensor, " rows"], /) -> Float[Tensor, "rows words"]:
        check_limit(self.position + 1, self.engine.positions)
        given: dict[str, Any] = {"tokens": words.numpy(), "position": np.array(self.position)}
        given = {name: value for name, value in given.items() if name in self.asked}
        answers = self.engine.write.run(self.wanted, {**given, **self.memory, **self.state})
        found = dict(zip(self.wanted, answers, strict=True))
        self.state = {f"state.{name[4:]}": found[name] for name in found if name.startswith("new.")}
        if self.engine.attends:
            self.seen = torch.from_numpy(found["weights"])
        self.position += 1
        return torch.from_numpy(found["logits"])

    def weights(self) -> Float[Tensor, "rows source"]:
        """Where the last word looked, on average over layers and heads."""
        if not self.engine.attends:
            raise UnsupportedError("a model without attention has no weights")
        return self.seen.mean((1, 2))

    def select(self, rows: Int[Tensor, " new"], /) -> None:
        """Go on with these rows; one may be taken several times."""
        self.state = _taken(self.state, rows)
        before, self.rows = self.rows, self.rows[rows]
        if not torch.equal(before, self.rows):  # a beam mostly moves within its sentence: the source stays
            self.memory = _taken(self.memory, rows)


def _taken(tensors: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    return {name: torch.from_numpy(value).index_select(0, rows).numpy() for name, value in tensors.items()}


def _names(values: Sequence[Any]) -> set[str]:
    return {value.name for value in values}


def _session(path: Path) -> Any:
    runtime = require_extra("onnxruntime", extra="export")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors only
    try:  # as bytes, so that a graph cannot name other files to be read
        return runtime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # it has many kinds, and all of them mean this
        raise ExportCorruptError(
            f"{path} is no graph that ONNX Runtime can run; export the model again"
        ) from error
