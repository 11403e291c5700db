"""The playground: the attention equation and kernel regression over HTTP, computed by the library."""

from __future__ import annotations

import csv
import math
from functools import cache, reduce
from importlib.resources import files
from operator import and_
from typing import Annotated, Any, Literal

import torch
from fastapi import APIRouter, Query
from jaxtyping import Float
from pydantic import BaseModel, Field
from torch import Tensor

from regard import attention
from regard.attention.normalizers.base import input_kind
from regard.catalogue import Argument, get_mechanism
from regard.errors import InputError, RegardError, RequestError, ShapeError, UnknownNameError
from regard.serving.schemas import StrictModel, error_responses
from regard.serving.worker import Limits

__all__ = ["PlaygroundCatalogue", "build_part", "make_playground_router"]

SIZES = {"hidden_dim": 8, "max_keys": 64}  # of scores with parameters
SEED = Argument("seed", 0, 0, 99, step=1)
SEEDED = ("Bilinear", "Additive", "Concat", "Energy", "Location", "Sample")  # they draw parameters, or a key
KINDS = {
    "score": (
        *("ScaledDot", "Dot", "Cosine", "Gaussian", "Boxcar", "Epanechnikov"),
        *("Constant", "Bilinear", "Additive", "Concat", "Energy", "Location"),
    ),
    "normalizer": (
        *("softmax", "Temperature", "sparsemax", "entmax15", "Entmax", "TopK"),
        *("hardmax", "sigmoid", "SigmoidSum", "kernel_sum", "Sample"),
    ),
    "mask": ("causal", "padding", "window", "around"),
}


Number = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
Point = Annotated[list[Number], Field(min_length=1, max_length=16)]
Points = Annotated[list[Point], Field(min_length=1, fail_fast=True)]
Kernel = Literal["gaussian", "boxcar", "epanechnikov"]


class PartChoice(StrictModel):
    """A mechanism by name, with the arguments that differ from their defaults."""

    name: str
    arguments: dict[str, Number] = Field(default_factory=dict)


class AttendRequest(StrictModel):
    """The arguments of the equation; without values, the keys are the values."""

    queries: Points
    keys: Points
    values: Points | None = None
    score: PartChoice = PartChoice(name="ScaledDot")
    normalize: PartChoice | None = None
    mask: PartChoice | None = None
    hidden_keys: list[int] = Field(
        default_factory=list, fail_fast=True, description="Indices of keys that are hidden as well."
    )


class PlaygroundCatalogue(BaseModel):
    """The mechanisms that can be chosen for each argument of the equation."""

    score: list[dict[str, Any]]
    normalizer: list[dict[str, Any]]
    mask: list[dict[str, Any]]


class AttendResponse(BaseModel):
    """Each line of the equation, a row for each query; null for the score of a hidden key."""

    scores: list[list[float | None]]
    weights: list[list[float | None]]
    context: list[list[float | None]]
    code: str = Field(description="Python code that computes the same.")


class RegressionResponse(BaseModel):
    """Measurements (x, y), the curve on a grid, and the weights of the measurements at one query."""

    x: list[float]
    y: list[float]
    grid: list[float]
    curve: list[float | None]
    at: float
    weights: list[float]
    prediction: float | None
    error: float | None = Field(description="Root mean squared error of each measurement predicted from the others.")
    num_isolated: int = Field(description="Measurements without any other in the width of the kernel.")


def build_part(kind: str, choice: PartChoice, query_dim: int = 1, key_dim: int = 1) -> tuple[Any, str]:
    """A mechanism with its arguments, and its Python code.

    Args:
        kind: score, normalizer or mask
        choice: its name in the catalogue, and arguments
        query_dim, key_dim: sizes of a query and a key

    Returns:
        The mechanism, and the code that builds it.

    Example:
        >>> build_part("score", PartChoice(name="Cosine", arguments={"strength": 2.0}))[1]
        'Cosine(strength=2.0)'
    """
    name = choice.name
    UnknownNameError.check(f"{kind} of the playground", name, KINDS[kind])
    entry, sliders = get_mechanism(name), {one.name: one for one in _list_arguments(name)}
    for argument in choice.arguments:
        UnknownNameError.check(f"argument of {name}", argument[:40], sliders)
    values: dict[str, Any] = {key: one.check(choice.arguments.get(key)) for key, one in sliders.items()}
    seed = values.pop("seed", 0)
    generator = torch.Generator().manual_seed(seed)
    if name == "Sample":
        return attention.Sample(generator), f"Sample(torch.Generator().manual_seed({seed}))"
    if kind == "score":
        values = entry.select_arguments({**values, "query_dim": query_dim, "key_dim": key_dim, **SIZES})
        score = entry.build(**values)
        code = f"{name}({', '.join(f'{key}={value}' for key, value in values.items())})"
        if name in SEEDED:
            for weight in score.double().parameters():
                weight.requires_grad_(False).copy_(torch.randn(weight.shape, generator=generator))
        return score, code
    if kind == "normalizer" and not isinstance(entry.object, type):
        return entry.object, name
    return entry.object(*values.values()), f"{name}({', '.join(map(str, values.values()))})"


def _list_arguments(name: str) -> tuple[Argument, ...]:
    """The arguments that have a slider."""
    return (SEED,) if name in SEEDED else get_mechanism(name).arguments


def _describe(kind: str, name: str) -> dict[str, Any]:
    """An entry of /v1/catalogue."""
    entry, (part, _) = get_mechanism(name), build_part(kind, PartChoice(name=name), 2, 2)
    kinds = {"output_kind": part.output_kind} if kind == "score" else {}
    if kind == "normalizer":
        kinds = {"input_kind": input_kind(part)}
    return {
        "name": name,
        "summary": {"en": entry.summary, "zh": entry.summary_zh},
        "equation": entry.equation,
        **kinds,
        "arguments": [one.slider() for one in _list_arguments(name)],
    }


def make_playground_router(limits: Limits) -> APIRouter:
    """The routes of the playground.

    Args:
        limits: of points
    """
    router = APIRouter(prefix="/v1")

    @router.get("/catalogue", responses=error_responses())
    def catalogue() -> PlaygroundCatalogue:
        """The mechanisms of the playground, in both languages."""
        return PlaygroundCatalogue(**{kind: [_describe(kind, name) for name in names] for kind, names in KINDS.items()})

    @router.post("/attend", responses=error_responses())
    def attend(body: AttendRequest) -> AttendResponse:
        """Scores, weights and context of a few points, and Python code that computes the same."""
        return _attend(body, limits)

    @router.get("/regression", responses=error_responses())
    def regression(
        kernel: Kernel = "gaussian",
        width: Annotated[float, Query(ge=0.1, le=50)] = 2.0,
        at: Annotated[float, Query(ge=-20, le=100)] = 20.0,
    ) -> RegressionResponse:
        """Kernel regression on a motorcycle crash; null where no measurement is near enough."""
        return _regression(kernel, width, at)

    return router


def _attend(body: AttendRequest, limits: Limits) -> AttendResponse:
    for name in ("queries", "keys", "values"):
        points = getattr(body, name) or []
        if len(points) > limits.max_points:
            message = f"There are {len(points):,} {name}; at most {limits.max_points} are taken"
            raise RequestError(413, "too_many_points", message)
    query, key = _to_tensor(body.queries, "queries"), _to_tensor(body.keys, "keys")
    if body.values is not None and len(body.values) != len(body.keys):
        raise ShapeError(f"every key has one value, got {len(body.keys)} keys and {len(body.values)} values")
    value = key if body.values is None else _to_tensor(body.values, "values")
    sizes = query.shape[-1], key.shape[-1]
    mask, codes = _build_mask(body)
    arguments = {}
    for name, kind, choice in (("score", "score", body.score), ("normalize", "normalizer", body.normalize)):
        if choice is not None:
            arguments[name], code = build_part(kind, choice, *sizes)
            codes.append(f"{name}={code}")
    try:
        output = attention.attend(query, key, value, mask, **arguments)
        weights, scores = output.weights, output.scores
    except RegardError:
        raise
    except (ValueError, TypeError) as error:
        raise InputError(str(error)) from None
    return AttendResponse(
        scores=_to_lists(scores),
        weights=_to_lists(weights),
        context=_to_lists(output.context),
        code=f"attend({', '.join(['query', 'key', 'value', *codes])})",
    )


def _regression(kernel: Kernel, width: float, at: float) -> RegressionResponse:
    x, y = motorcycle_data()
    score = get_mechanism(kernel).build(width=width)
    grid = torch.arange(0.0, 60.01, 0.25, dtype=torch.float64)[:, None]
    curve = attention.attend(grid, x, y, score=score)
    query = attention.attend(torch.tensor([[at]], dtype=torch.float64), x, y, score=score)
    others = ~torch.eye(len(x), dtype=torch.bool)
    left_out = attention.attend(x, x, y, others, score=score)
    has_neighbors = left_out.weights.sum(-1) > 0
    error = (left_out.context - y)[has_neighbors].square().mean().sqrt()
    return RegressionResponse(
        x=x.squeeze(-1).tolist(),
        y=y.squeeze(-1).tolist(),
        grid=grid.squeeze(-1).tolist(),
        curve=_where_defined(curve.context, curve.weights),
        at=at,
        weights=query.weights[0].tolist(),
        prediction=_where_defined(query.context, query.weights)[0],
        error=float(error) if has_neighbors.any() else None,
        num_isolated=int((~has_neighbors).sum()),
    )


@cache
def motorcycle_data() -> tuple[Float[Tensor, "133 1"], Float[Tensor, "133 1"]]:
    """Times (ms) and accelerations of the head (g); the file has the reference."""
    with files("regard.serving").joinpath("data/mcycle.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    columns = ([[float(row[name])] for row in rows] for name in ("times", "accel"))
    x, y = (torch.tensor(column, dtype=torch.float64) for column in columns)
    return x, y


def _build_mask(body: AttendRequest) -> tuple[Any, list[str]]:
    """The mask joined with the hidden keys, and its code."""
    num_keys = len(body.keys)
    parts = [] if body.mask is None else [build_part("mask", body.mask)]
    if body.hidden_keys:
        if not all(0 <= index < num_keys for index in body.hidden_keys):
            raise InputError(f"hidden_keys has indices of keys, from 0 to {num_keys - 1}")
        visible = torch.ones(num_keys, dtype=torch.bool)
        visible[body.hidden_keys] = False
        parts.append((attention.dense(visible), "dense(visible)"))
    if not parts:
        return None, []
    masks, codes = zip(*parts, strict=True)
    return reduce(and_, masks), [" & ".join(codes)]


def _to_tensor(points: list[list[float]], name: str) -> Tensor:
    if len({len(point) for point in points}) > 1:
        raise ShapeError(f"all {name} must have the same number of features")
    return torch.tensor(points, dtype=torch.float64)


def _to_lists(numbers: Tensor) -> list[list[float | None]]:
    """Plain lists; JSON has no infinity, so the score of a hidden key is null."""
    return [[one if math.isfinite(one) else None for one in row] for row in numbers.tolist()]


def _where_defined(context: Tensor, weights: Tensor) -> list[float | None]:
    pairs = zip(context.squeeze(-1).tolist(), weights.sum(-1).tolist(), strict=True)
    return [value if total > 0 else None for value, total in pairs]
