"""/v1/catalogue, /v1/attend and /v1/regression: the equation itself, computed by the library."""

from __future__ import annotations

import csv
import math
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import torch
from fastapi import APIRouter, Query
from jaxtyping import Float
from pydantic import BaseModel, Field
from torch import Tensor

from regard import attention
from regard.attention import attend as equation
from regard.errors import InputError, RegardError, RequestError, ShapeError
from regard.serving._bodies import Strict
from regard.serving._errors import refusals
from regard.serving._parts import KINDS, made
from regard.serving._served import Here

Number = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
Point = Annotated[list[Number], Field(min_length=1, max_length=16)]
Points = Annotated[list[Point], Field(min_length=1)]
Kernel = Literal["gaussian", "boxcar", "epanechnikov"]
KERNELS = {"gaussian": attention.Gaussian, "boxcar": attention.Boxcar, "epanechnikov": attention.Epanechnikov}

router = APIRouter(prefix="/v1")


class Choice(Strict):
    """A part by name, with its numbers; those that are not given are as in the catalogue."""

    name: str
    settings: dict[str, Number] = Field(default_factory=dict)


class Question(Strict):
    """The letters of the equation; without values, the keys are what is seen."""

    queries: Points
    keys: Points
    values: Points | None = None
    score: Choice = Choice(name="ScaledDot")
    normalize: Choice | None = None
    mask: Choice | None = None
    hidden: list[int] = Field(default_factory=list)


class Offer(BaseModel):
    """The parts that can be chosen for each letter of the equation."""

    score: list[dict[str, Any]]
    normalizer: list[dict[str, Any]]
    mask: list[dict[str, Any]]


class Answer(BaseModel):
    """Each line of the equation in numbers, a row for each query; null for the score of a hidden key."""

    scores: list[list[float | None]]
    weights: list[list[float | None]]
    context: list[list[float | None]]
    code: str = Field(description="The Python that computes the same.")


class Curve(BaseModel):
    """Measurements (x, y), the curve over a grid, and the weights of the measurements at one moment."""

    x: list[float]
    y: list[float]
    grid: list[float]
    curve: list[float | None]
    at: float
    weights: list[float]
    prediction: float | None
    error: float | None = Field(description="Of each measurement predicted from the others.")
    alone: int = Field(description="Measurements that have no other near enough.")


@router.get("/catalogue", responses=refusals())
def catalogue() -> Offer:
    """What the playground offers for each letter of the equation, in both languages."""
    return Offer(**{kind: [part.to_json() for part in parts] for kind, parts in KINDS.items()})


@router.post("/attend", responses=refusals())
def attend(here: Here, body: Question) -> Answer:
    """Scores, weights and context of a few points, and the Python that computes the same."""
    for name in ("queries", "keys", "values"):
        points = getattr(body, name) or []
        if len(points) > here.limits.points:
            raise RequestError(
                413, "too_many_points", f"There are {len(points):,} {name}; at most {here.limits.points} are taken."
            )
    query, key = _tensor(body.queries, "queries"), _tensor(body.keys, "keys")
    if body.values is not None and len(body.values) != len(body.keys):
        raise ShapeError(f"every key has one value, got {len(body.keys)} keys and {len(body.values)} values")
    value = key if body.values is None else _tensor(body.values, "values")
    sizes = query.shape[-1], key.shape[-1]
    score, said = made("score", body.score.name, body.score.settings, *sizes)
    options, words = {"score": score}, [f"score={said}"]
    if body.normalize is not None:
        options["normalize"], said = made("normalizer", body.normalize.name, body.normalize.settings, *sizes)
        words.append(f"normalize={said}")
    mask, masked = _mask(body, len(body.keys))
    try:
        seen = equation(query, key, value, mask, **options)
        weights, scores = seen.weights, seen.scores
    except RegardError:
        raise
    except (ValueError, TypeError) as error:
        raise InputError(str(error)) from None
    return Answer(
        scores=_listed(scores),
        weights=_listed(weights),
        context=_listed(seen.context),
        code=f"attend({', '.join(['query', 'key', 'value', *masked, *words])})",
    )


@router.get("/regression", responses=refusals())
def regression(
    kernel: Kernel = "gaussian",
    width: Annotated[float, Query(ge=0.1, le=50)] = 2.0,
    at: Annotated[float, Query(ge=-20, le=100)] = 20.0,
) -> Curve:
    """Kernel regression over a motorcycle crash: the curve, and the weights at one moment.

    Where no measurement is near enough, there is no curve: null.
    """
    x, y = crash()
    score = KERNELS[kernel](width=width)
    grid = torch.arange(0.0, 60.01, 0.25, dtype=torch.float64)[:, None]
    curve = equation(grid, x, y, score=score)
    here = equation(torch.tensor([[at]], dtype=torch.float64), x, y, score=score)
    others = ~torch.eye(len(x), dtype=torch.bool)
    left_out = equation(x, x, y, others, score=score)
    seen = left_out.weights.sum(-1) > 0
    error = (left_out.context - y)[seen].square().mean().sqrt()
    return Curve(
        x=x.squeeze(-1).tolist(),
        y=y.squeeze(-1).tolist(),
        grid=grid.squeeze(-1).tolist(),
        curve=_where_seen(curve.context, curve.weights),
        at=at,
        weights=here.weights[0].tolist(),
        prediction=_where_seen(here.context, here.weights)[0],
        error=None if not seen.any() else float(error),
        alone=int((~seen).sum()),
    )


@cache
def crash() -> tuple[Float[Tensor, "133 1"], Float[Tensor, "133 1"]]:
    """Times (ms) and accelerations of the head (g); the file says where they come from."""
    with files("regard.serving").joinpath("data/mcycle.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    columns = ([[float(row[name])] for row in rows] for name in ("times", "accel"))
    x, y = (torch.tensor(column, dtype=torch.float64) for column in columns)
    return x, y


def _mask(body: Question, keys: int) -> tuple[Any, list[str]]:
    """The mask that was chosen, joined with what was hidden by hand; and how it reads."""
    mask, words = None, []
    if body.mask is not None:
        mask, said = made("mask", body.mask.name, body.mask.settings, 1, 1)
        words.append(said)
    if body.hidden:
        if not all(0 <= place < keys for place in body.hidden):
            raise RequestError(422, "no_key", f"hidden names keys by their places, from 0 to {keys - 1}.")
        visible = torch.ones(keys, dtype=torch.bool)
        visible[body.hidden] = False
        by_hand = attention.dense(visible)
        mask = by_hand if mask is None else mask & by_hand
        words.append("dense(visible)")
    return mask, [" & ".join(words)] if words else []


def _tensor(points: list[list[float]], name: str) -> Tensor:
    if len({len(point) for point in points}) > 1:
        raise ShapeError(f"All {name} must have the same number of features")
    return torch.tensor(points, dtype=torch.float64)


def _listed(numbers: Tensor) -> list[list[float | None]]:
    """Plain lists; JSON has no infinity, so null stands for the score of a hidden key."""
    return [[one if math.isfinite(one) else None for one in row] for row in numbers.tolist()]


def _where_seen(context: Tensor, weights: Tensor) -> list[float | None]:
    pairs = zip(context.squeeze(-1).tolist(), weights.sum(-1).tolist(), strict=True)
    return [value if share > 0 else None for value, share in pairs]
