"""How a recurrent model looks at its source, as nodes of an ONNX graph: scores, hide, normalize, context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

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
from regard.recipes.exporting._graph import HIDDEN, Graph

SCORES = (Constant, Dot, ScaledDot, Bilinear, Energy, Additive, Concat)
ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid"}


def check(attention: Any) -> None:
    """Refuse an attention that has no nodes here."""
    if type(attention) not in (Attention, LocalM, LocalP):
        raise ExportError(
            f"{type(attention).__name__} cannot be exported to ONNX, but scope=global, local-m and local-p can;"
            " use it with PyTorch, or export it to safetensors"
        )
    if type(attention.score) not in SCORES:
        raise ExportError(
            f"the score {type(attention.score).__name__} cannot be exported to ONNX, but these can:"
            f" {', '.join(kind.__name__ for kind in SCORES)}; use it with PyTorch, or export it to safetensors"
        )
    share = attention.normalize
    if not (
        share in (None, softmax, sigmoid) or (type(share) is Temperature and isinstance(share.t, float | int))
    ):
        name = getattr(share, "__name__", type(share).__name__)
        raise ExportError(
            f"the normalizer {name} cannot be exported to ONNX, but softmax, sigmoid and Temperature can;"
            " use it with PyTorch, or export it to safetensors"
        )


def projected(graph: Graph, score: Any, states: str) -> tuple[str, int] | None:
    """The keys' half of a score, done once for each source; None where the keys are the states themselves."""
    if isinstance(score, Additive):
        return graph.linear(states, score.U), score.hidden_dim
    if isinstance(score, Concat):
        half = graph.made(score.W.weight[:, score.query_dim :].T)
        return graph("MatMul", states, half), score.hidden_dim
    return None


class Look:
    """The inputs of the writing graph that looking needs, and the nodes that a query goes through."""

    def __init__(self, graph: Graph, attention: Any, states_dim: int, key_dim: int | None):
        self.graph, self.attention = graph, attention
        self.values = graph.input("memory.states", ("rows", "source", states_dim))
        self.hidden = graph.input("memory.hidden", ("rows", "source"))
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
        scores, bell = graph("Add", self._scores(query), self.hidden), None
        if isinstance(self.attention, LocalM | LocalP):
            away = self._away(query)
            near = graph("LessOrEqual", graph("Abs", away), graph.number(self.attention.radius))
            scores = graph("Where", near, scores, graph.number(HIDDEN))
            if isinstance(self.attention, LocalP):
                sigma = self.attention.radius / 2
                bell = graph("Exp", graph("Mul", graph("Mul", away, away), graph.number(-0.5 / sigma**2)))
        weights = self._shared(scores)
        weights = weights if bell is None else graph("Mul", weights, bell)
        seen = graph("MatMul", graph("Unsqueeze", weights, graph.whole(1)), self.values)
        return graph("Squeeze", seen, graph.whole(1)), weights

    def _scores(self, query: str) -> str:
        graph, score = self.graph, self.attention.score
        if isinstance(score, Constant):
            return graph.number(0.0)
        if isinstance(score, Additive | Concat):
            return self._judged(score, query)
        if isinstance(score, Bilinear):
            sign = -1.0 if isinstance(score, Energy) else 1.0
            query = graph("MatMul", query, graph.made(sign * score.weight))
        if isinstance(score, ScaledDot):
            size = graph("Cast", graph.size(query, 1), to=1)
            query = graph("Div", query, graph("Sqrt", size))
        return graph(
            "Squeeze", graph("MatMul", self.keys, graph("Unsqueeze", query, graph.whole(2))), graph.whole(2)
        )

    def _judged(self, score: Additive | Concat, query: str) -> str:
        """v . tanh(query + keys), with further layers between for a deep one."""
        graph, activation, layers = self.graph, "Tanh", nn.ModuleList()
        if isinstance(score, Additive):
            assert score.W is not None
            query, activation = graph.linear(query, score.W), ACTIVATIONS[score.activation]
        else:
            query, layers = (
                graph("MatMul", query, graph.made(score.W.weight[:, : score.query_dim].T)),
                score.layers,
            )
        hidden = graph(activation, graph("Add", graph("Unsqueeze", query, graph.whole(1)), self.keys))
        for layer in layers:
            hidden = graph("Tanh", graph.linear(hidden, layer))  # type: ignore[arg-type]
        return graph("Squeeze", graph("MatMul", hidden, graph.made(score.v[:, None])), graph.whole(2))

    def _away(self, query: str) -> str:
        """How far each place of the source is from where the query looks."""
        graph, local = self.graph, self.attention
        if isinstance(local, LocalM):
            center = graph("Min", self.position, graph("Sub", self.length, graph.number(1.0)))
        else:
            hidden = graph("Tanh", graph.linear(query, local.W))
            wish = graph("Sigmoid", graph("MatMul", hidden, graph.made(local.v[:, None])))
            center = graph("Mul", self.length, wish)
        return graph("Sub", graph("Cast", graph.places(self.values), to=1), center)

    def _shared(self, scores: str) -> str:
        graph, share = self.graph, self.attention.normalize
        if share is sigmoid:
            return graph("Sigmoid", scores)
        if isinstance(share, Temperature):
            scores = graph("Div", scores, graph.number(float(share.t)))
        return graph("Softmax", scores, axis=-1)


Looking = Callable[[str], tuple[str, str]]
