"""How good captions are: of scenes, what was named rightly and looked at; of photographs, BLEU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import normalize

from regard.data import BOS, EOS
from regard.data.batch import filled
from regard.data.captions import Captioned
from regard.data.scenes import EACH
from regard.data.words import apart
from regard.decoding import Decoding, Hypothesis
from regard.errors import DataError
from regard.recipes._images import AT_ONCE
from regard.recipes.captions.captioner import Captioner

ORDERS = (1, 2, 3, 4)  # of BLEU


def judged(captioner: Captioner, captioned: Captioned, options: Decoding | None = None) -> dict[str, Any]:
    """All that can be said of a model on these pictures, as plain numbers."""
    if not len(captioned):
        raise DataError("there is nothing to evaluate: no pictures were given")
    best: list[Hypothesis] = []
    for rows in torch.arange(len(captioned)).split(AT_ONCE):
        best += captioner.search(captioned.pictures.some(rows), options)
    said = [captioner.text(one) for one in best]
    if captioned.boxes is None:
        return {"pictures": len(said), **bleu(said, captioned.captions, captioner.settings.lowercase)}
    found = {"pictures": len(said), **named_rightly(said, [captions[0] for captions in captioned.captions])}
    if captioner.attends:
        found["inside"] = looked_inside(captioner, captioned, best)
    return found


def named_rightly(said: Sequence[str], true: Sequence[str]) -> dict[str, float]:
    """Of scenes: captions without any mistake, and digits named rightly at their place, in a hundred.

    >>> named_rightly(["small 1 above , small 2 above"], ["small 1 above , large 3 above"])
    {'captions': 0.0, 'digits': 50.0}
    """
    digits = right = 0
    for told, truth in zip(said, true, strict=True):
        names, wanted = told.split()[1::EACH], truth.split()[1::EACH]
        digits += len(wanted)
        right += sum(name == digit for name, digit in zip(names, wanted, strict=False))
    exact = sum(told == truth for told, truth in zip(said, true, strict=True))
    return {"captions": 100 * exact / len(true), "digits": 100 * right / digits}


def looked_inside(captioner: Captioner, captioned: Captioned, best: Sequence[Hypothesis]) -> float:
    """How often the most attended cell lies in the box of the digit that is named, grown by one cell, in a hundred."""
    boxes, inside = captioned.boxes, []
    assert boxes is not None
    for rows in torch.arange(len(best)).split(AT_ONCE):
        pictures = captioned.pictures.some(rows)
        written, _ = filled([[BOS, *best[row].ids, EOS] for row in rows.tolist()])
        weights = captioner.weights(pictures, written)
        side, cells = captioner.grid(weights.shape[-1])[0], weights.argmax(-1)
        pad = max(0, EACH * boxes.shape[1] - 1 - cells.shape[1])  # a caption that ended too soon
        cells = torch.nn.functional.pad(cells, (0, pad), value=-1)[:, 1::EACH][:, : boxes.shape[1]]
        inside.append(within(cells, boxes[rows], pictures.shape[-1], side))
    return 100 * float(torch.cat(inside).float().mean())


def within(
    cells: Int[Tensor, "rows things"], boxes: Int[Tensor, "rows things 4"], size: int, side: int
) -> Bool[Tensor, "rows things"]:
    """Which cells of a grid of `side` by `side` lie in boxes grown by a cell, in a picture of `size` pixels.

    >>> within(torch.tensor([[9, 10]]), torch.tensor([[[12, 12, 20, 20], [40, 40, 48, 48]]]), 64, 8).tolist()
    [[True, False]]
    """
    cell = size / side
    left, top = (cells % side) * cell, (cells // side) * cell
    x0, y0, x1, y1 = boxes.unbind(-1)
    across = (left >= x0 - cell) & (left <= x1)
    return across & (top >= y0 - cell) & (top <= y1) & (cells >= 0)


def bleu(said: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> dict[str, Any]:
    """BLEU of one to four words by sacrebleu, with and without its penalty for short captions.

    Words are what stands between spaces, and each Han character or kana. The paper's figures are those without the
    penalty.
    """
    from sacrebleu.metrics.bleu import BLEU

    most = max(map(len, references))
    wanted: list[Any] = [[_known(told, place, lowercase) for told in references] for place in range(most)]
    found: dict[str, Any] = {}
    for order in ORDERS:
        metric = BLEU(tokenize="none", max_ngram_order=order, force=True)
        score = metric.corpus_score([apart(one) for one in said], wanted)
        found |= {f"bleu{order}": score.score, f"bleu{order}_bare": score.score / max(score.bp, 1e-9)}
    signature = str(metric.get_signature())
    return {**found, "bleu": found["bleu4"], "brevity_penalty": score.bp, "bleu_signature": signature}


def _known(told: Sequence[str], place: int, lowercase: bool) -> str | None:
    if place >= len(told):
        return None
    text = " ".join(apart(told[place]).split())
    return text.lower() if lowercase else text


def nearest(train: Captioned, test: Captioned) -> list[str]:
    """The floor: the first caption of the training picture whose mean is the nearest, by cosine."""
    known, asked = (
        torch.cat([_mean(part, rows) for rows in torch.arange(len(part)).split(1000)])
        for part in (train, test)
    )
    return [train.captions[row][0] for row in (asked @ known.T).argmax(1).tolist()]


def _mean(part: Captioned, rows: Tensor) -> Tensor:
    """The mean of each grid of features, of length 1."""
    return normalize(part.pictures.some(rows).mean(1), dim=-1)
