"""Stored explanations: the weights of a prediction, requested one head at a time, with measures and faithfulness."""

from __future__ import annotations

import math
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import numpy
import torch
from fastapi import APIRouter
from fastapi.responses import Response
from jaxtyping import Float
from pydantic import BaseModel, Field, create_model
from torch import Tensor

from regard.attention import causal
from regard.errors import RequestError, UnsupportedError
from regard.serving.routes import add_post
from regard.serving.schemas import StrictModel, encode_json, error_responses, input_model, options_field
from regard.tasks.predictor import AttentionMap, Predictor
from regard.viewing import measures
from regard.viewing.pages.page import FULL_WEIGHT, quantize_uint16

if TYPE_CHECKING:
    from regard.serving.app import ServerState

__all__ = ["AttentionLayer", "ExplanationStore", "StoredExplanation", "head_measures", "make_explanation_router"]

THUMBNAIL_SIZE = 32  # cells of a side
MEAN = "mean"
Block = numpy.ndarray[Any, numpy.dtype[numpy.uint16]]
WEIGHTS: dict[int | str, dict[str, Any]] = {
    **error_responses(404),
    200: {
        "description": "Weights row by row as 16-bit integers, little-endian, 65535 for 1.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "headers": {"X-Shape": {"description": "The sizes of the axes.", "schema": {"type": "string"}}},
    },
}


class SequenceBody(BaseModel):
    """The positions of a map's queries or keys."""

    tokens: list[str]
    words: list[tuple[str, list[int]]] = Field(description="Words with their positions; empty: a position is a word.")


class MapBody(BaseModel):
    """An attention map; `queries` and `keys` are indices of `sequences`."""

    name: str
    group: str = Field(description="Maps of the same group can be averaged.")
    heads: int
    queries: int
    keys: int
    grid: tuple[int, int] | None = Field(description="Rows and columns, if the keys are cells of an image.")
    is_self: bool
    is_causal: bool


class ExplanationResponse(BaseModel):
    """An explanation, which is stored for some time under its id."""

    id: str
    prediction: dict[str, Any]
    has_faithfulness: bool = Field(description="Whether its faithfulness can be measured in reasonable time.")
    sequences: list[SequenceBody]
    maps: list[MapBody]


@dataclass(frozen=True)
class AttentionLayer:
    """A map with quantized weights: (heads, queries, keys).

    Args:
        map: the map, without its weights
        weights: integers from 0 to 65,535, (heads, queries, keys)
    """

    map: AttentionMap
    weights: Block

    @classmethod
    def from_map(cls, one: AttentionMap) -> AttentionLayer:
        """Quantize the weights of a map, and keep no others."""
        block = numpy.frombuffer(quantize_uint16(one.weights), "<u2").reshape(one.weights.shape)
        return cls(replace(one, weights=one.weights.new_zeros(0)), block)

    @property
    def group(self) -> str:
        """The group of maps that can be averaged."""
        return self.map.group or self.map.name

    def thumbnails(self) -> tuple[list[int], bytes]:
        """The size and the cells of all heads in small; a cell is the maximum of those it stands for."""
        weights = torch.from_numpy(self.weights.astype("float32"))[:, None]
        size = [min(THUMBNAIL_SIZE, side) for side in weights.shape[2:]]
        small = torch.nn.functional.adaptive_max_pool2d(weights, size)
        return size, small.numpy().astype("<u2").tobytes()


@dataclass(frozen=True)
class StoredExplanation:
    """An explanation with quantized weights.

    Args:
        prediction: plain values
        layers: the maps
        measure: measures the faithfulness; None if that is not possible
        id: a random name, with which it is requested
    """

    prediction: dict[str, Any]
    layers: list[AttentionLayer]
    measure: Callable[[], Mapping[str, Any]] | None
    id: str = field(default_factory=lambda: secrets.token_urlsafe(9))

    def to_json(self) -> dict[str, Any]:
        """Everything but the weights."""
        sequences: list[tuple[Sequence[str], Any]] = []

        def index(tokens: Sequence[str], words: Any) -> int:
            if (tokens, words) not in sequences:
                sequences.append((tokens, words))
            return sequences.index((tokens, words))

        maps = [
            {
                "name": layer.map.name,
                "group": layer.group,
                "heads": len(layer.weights),
                "queries": index(layer.map.queries, layer.map.query_words),
                "keys": index(layer.map.keys, layer.map.key_words),
                "grid": layer.map.grid,
                "is_self": layer.map.is_self,
                "is_causal": layer.map.is_causal,
            }
            for layer in self.layers
        ]
        return {
            "id": self.id,
            "prediction": self.prediction,
            "has_faithfulness": self.measure is not None,
            "sequences": [{"tokens": list(tokens), "words": words} for tokens, words in sequences],
            "maps": maps,
        }

    def select(self, map: int | str, head: int | str) -> tuple[Block, AttentionMap, Block | None]:
        """The weights of a head, their map, and the other heads of the same map.

        Args:
            map: an index, or the name of a group for the mean of its maps
            head: an index, or "mean"
        """
        if isinstance(map, str):
            group = [layer for layer in self.layers if layer.group == map]
            if not group or head != MEAN or len({layer.weights.shape for layer in group}) > 1:
                groups = ", ".join(dict.fromkeys(layer.group for layer in self.layers))
                message = f"This explanation has no mean of {map}/{head}; groups are {groups}, with the head mean"
                raise RequestError(404, "map_not_found", message)
            return _mean([layer.weights for layer in group]), group[0].map, None
        layer = self.layer(map)
        if isinstance(head, str):
            return _mean([layer.weights]), layer.map, None
        if not 0 <= head < len(layer.weights):
            message = f"Map {map} has {len(layer.weights)} heads, counted from 0"
            raise RequestError(404, "head_not_found", message)
        return layer.weights[head], layer.map, numpy.delete(layer.weights, head, 0)

    def layer(self, index: int) -> AttentionLayer:
        """The map of this index."""
        if not 0 <= index < len(self.layers):
            message = f"This explanation has {len(self.layers)} maps, counted from 0"
            raise RequestError(404, "map_not_found", message)
        return self.layers[index]


class ExplanationStore:
    """The last explanations; those that were not requested for the longest time are dropped first.

    Args:
        max_count: explanations
        max_bytes: their bytes
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._stored: OrderedDict[str, StoredExplanation] = OrderedDict()
        self._max_count, self._max_bytes = max_count, max_bytes
        self._lock = Lock()

    def add(self, explanation: StoredExplanation) -> None:
        """Store an explanation."""
        with self._lock:
            self._stored[explanation.id] = explanation
            while len(self._stored) > 1 and (len(self._stored) > self._max_count or self._num_bytes > self._max_bytes):
                self._stored.popitem(last=False)

    def get(self, id: str) -> StoredExplanation:
        """The explanation of this id."""
        with self._lock:
            if id not in self._stored:
                message = "This explanation is no longer stored; request it again"
                raise RequestError(404, "explanation_not_found", message)
            self._stored.move_to_end(id)
            return self._stored[id]

    @property
    def _num_bytes(self) -> int:
        return sum(layer.weights.nbytes for one in self._stored.values() for layer in one.layers)


def _mean(blocks: list[Block]) -> Block:
    """The mean of all heads of maps of the same shape."""
    total = sum(weights.sum(0, dtype=numpy.uint32) for weights in blocks)
    return (total / sum(map(len, blocks))).round().astype(numpy.uint16)


def head_measures(block: Block, map: AttentionMap, others: Block | None) -> dict[str, float | None]:
    """Measures of the weights of a head: their means over the queries.

    Args:
        block: (queries, keys), quantized
        map: of the head
        others: the other heads of the map
    """
    weights, mask = _weights(block), causal() if map.is_causal else None
    names = ["entropy", "keys_for_mass", "sparsity", "diagonality"]
    names += ["distance"] if map.is_self else []
    values = {name: getattr(measures, name)(weights, mask) for name in names}
    values["entropy"] /= math.log(2)  # in bits
    means = {name: _number(one.nanmean()) for name, one in values.items()}
    if others is not None and len(others):
        similarities = [
            measures.head_similarity(torch.stack([weights, _weights(other)]), mask)[0, 1] for other in others
        ]
        means["head_similarity"] = _number(torch.stack(similarities).nanmean())
    return means


def _weights(block: Block) -> Float[Tensor, "queries keys"]:
    return torch.from_numpy(block.astype("float32")) / FULL_WEIGHT


def _number(value: Tensor) -> float | None:
    return None if value.isnan() else round(float(value), 4)


def make_explanation_router(state: ServerState, predictor: Predictor[Any, Any, Any]) -> APIRouter:
    """The routes under /v1/explanations.

    Args:
        state: of the application
        predictor: the model in use
    """
    router = APIRouter(prefix="/v1/explanations")
    fields = {"input": (input_model(predictor.inputs), ...), "options": options_field(predictor.explain_options)}
    request = create_model("ExplainRequest", __base__=StrictModel, **fields)

    def work(input: Any, options: Any) -> tuple[StoredExplanation, bytes]:
        explanation = predictor.explain(input, options)
        layers = [AttentionLayer.from_map(one) for one in explanation.maps]
        stored = StoredExplanation(explanation.prediction.to_json(), layers, explanation.faithfulness_measure())
        return stored, encode_json(stored.to_json())

    async def explain(body: Any) -> Response:
        """A prediction with its attention maps, which are stored; their weights have addresses of their own."""
        options = state.make_options(predictor.explain_options, body.options)
        (input,) = await state.decode_inputs([body.input])
        stored, content = await state.worker.submit(work, input, options)
        state.explanations.add(stored)
        return Response(content, media_type="application/json")

    add_post(router, "", explain, request, response_model=ExplanationResponse)

    @router.get("/{id}/faithfulness", responses=error_responses(404, 504))
    async def faithfulness(id: str) -> dict[str, Any]:
        """How much the prediction depends on the weights: what changes if they are permuted, or keys removed."""
        stored = state.explanations.get(id)
        if stored.measure is None:
            raise UnsupportedError("the faithfulness of this explanation cannot be measured: too long, or no network")
        return dict(await state.worker.submit(stored.measure))

    @router.get("/{id}/maps/{map}", response_class=Response, responses=WEIGHTS)
    def thumbnails(id: str, map: int) -> Response:
        """All heads of a map in small, one after the other; X-Shape has heads, queries and keys."""
        layer = state.explanations.get(id).layer(map)
        size, content = layer.thumbnails()
        return _weights_response(content, [len(layer.weights), *size])

    @router.get("/{id}/maps/{map}/heads/{head}", response_class=Response, responses=WEIGHTS)
    def weights(id: str, map: str, head: int | Literal["mean"]) -> Response:
        """The weights of a head, or `mean`; the name of a group instead of a map is the mean of its maps."""
        block, _, _ = state.explanations.get(id).select(_index_or_name(map), head)
        return _weights_response(block.astype("<u2").tobytes(), block.shape)

    @router.get("/{id}/maps/{map}/heads/{head}/measures", responses=error_responses(404))
    def read_measures(id: str, map: str, head: int | Literal["mean"]) -> dict[str, float | None]:
        """Entropy (bits), sparsity and other measures of the weights of a head, means over the queries."""
        return head_measures(*state.explanations.get(id).select(_index_or_name(map), head))

    return router


def _index_or_name(map: str) -> int | str:
    return int(map) if re.fullmatch(r"-?[0-9]{1,9}", map) else map


def _weights_response(content: bytes, shape: Sequence[int]) -> Response:
    headers = {"X-Shape": ",".join(map(str, shape)), "Cache-Control": "private, max-age=3600"}
    return Response(content, media_type="application/octet-stream", headers=headers)
