"""How good those are who look at scenes: how often they are right, and how often they looked at what matters."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.data._question_words import KINDS, ONE
from regard.data.questions import Asked
from regard.data.quiz import QuestionBatch
from regard.data.scenes import Painted
from regard.recipes.captions._judged import within
from regard.recipes.sights.glancer import Glancer
from regard.recipes.sights.respondent import Respondent


def judged_glances(glancer: Glancer, painted: Painted) -> dict[str, Any]:
    """Images put into the right class, all and of each class, and looks within the digit's box, in a hundred."""
    images, labels = painted.images[:, None], painted.labels[:, 0]
    said = glancer.scores(images).argmax(-1)
    found = {"images": len(painted), **rate(said == labels)}
    classes = {
        name: rate((said == labels)[labels == place])["accuracy"]
        for place, name in enumerate(glancer.labels)
        if bool((labels == place).any())
    }
    if glancer.attends:
        weights = glancer.weights(images)
        asked = said if weights.shape[1] > 1 else torch.zeros_like(said)  # the look of what was said
        look = weights[torch.arange(len(said)), asked][:, None, None]
        found["inside"] = percent(looked_at(look, painted, torch.ones_like(painted.large)[:, None]).flatten())
    return {**found, "classes": classes}


def judged_answers(respondent: Respondent, asked: Asked) -> dict[str, Any]:
    """Questions answered rightly, all and of each kind, and looks within the boxes that matter, in a hundred.

    Of each kind, `inside` is that of each look; of all, it is how often any look of a question about one digit fell
    on that digit.
    """
    given = QuestionBatch.of(asked).given
    right = respondent.scores(*given).argmax(-1) == asked.answers
    inside = None
    if respondent.attends:
        inside = looked_at(respondent.weights(*given), asked.painted, asked.matter)
    known = asked.matter.any(-1)
    kinds: dict[str, dict[str, Any]] = {}
    for number, kind in enumerate(KINDS):
        here = asked.kinds == number
        if bool(here.any()):
            kinds[kind] = {"questions": int(here.sum()), **rate(right[here])}
        if inside is not None and bool((here & known).any()):
            kinds[kind]["inside"] = [percent(look) for look in inside[here & known].unbind(-1)]
    found = {"scenes": len(asked), "questions": right.numel(), **rate(right)}
    one = known & torch.isin(asked.kinds, torch.tensor([KINDS.index(kind) for kind in ONE]))
    if inside is not None and bool(one.any()):
        found["inside"] = percent(inside[one].any(-1))
    return {**found, "kinds": kinds}


def looked_at(
    weights: Float[Tensor, "rows asked looks cells"],
    painted: Painted,
    matter: Bool[Tensor, "rows asked digits"],
) -> Bool[Tensor, "rows asked looks"]:
    """Whether the most attended cell of each look lies in the box, grown by a cell, of a digit that matters."""
    side, size = math.isqrt(weights.shape[-1]), painted.images.shape[-1]
    cells: Int[Tensor, "rows looks"] = weights.argmax(-1).flatten(1)
    found = [
        within(cells, box[:, None].expand(-1, cells.shape[1], -1), size, side)
        for box in painted.boxes.unbind(1)
    ]
    inside = torch.stack(found, -1).unflatten(1, weights.shape[1:3])
    return (inside & matter[:, :, None]).any(-1)


def rate(right: Bool[Tensor, "*some"]) -> dict[str, float]:
    """How many are right in a hundred, and the standard error of that.

    >>> rate(torch.tensor([True, True, True, False]))
    {'accuracy': 75.0, 'error': 21.650635094610966}
    """
    share = float(right.double().mean())
    return {"accuracy": 100 * share, "error": 100 * math.sqrt(share * (1 - share) / right.numel())}


def percent(found: Bool[Tensor, " some"]) -> float:
    return 100 * float(found.double().mean())
