"""Bahdanau, Cho and Bengio (2015), found again: long sentences, and the gradient at their first words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard._imports import require_extra
from regard.data import Pair, in_order
from regard.recipes._recipes import recipe
from regard.recipes._runs import load_translator
from regard.recipes.studies._shared import QUALITY, SHARED
from regard.recipes.translation._material import pairs
from regard.recipes.translation.objective import NextWord
from regard.recipes.translation.translator import Translator
from regard.recipes.trials import Row, Say, markdown, trial


def bahdanau2015(out: Path, name: str, given: dict[str, Any], say: Say) -> dict[str, Any]:
    """With and without attention: quality by source length, and the gradient that arrives at each source word.

    Both read in one direction, so that the first words are the farthest from the last state.
    """
    shared = {
        **SHARED[name],
        "bidirectional": False,
        **({"pair": "en-fr"} if name == "multi30k" else {}),
        **given,
    }
    rows, arrived = [], {}
    for label, scope in (("without attention", "none"), ("with attention", "global")):
        say(f"{label}:")
        row = trial(name, out / scope, say=say, **{**shared, "scope": scope})
        rows.append({"model": label, **row})
        translator = load_translator(out / scope)
        tests = next(iter(recipe(name).material(translator.settings).tests.values()))
        arrived[label] = arriving(translator, list(pairs(tests)))
    quality = QUALITY[name]
    columns = {"model": "", quality: ".1f", "parameters": ",", "minutes": ".1f"}
    by_length = [
        {"words": _range(a), "without attention": a[quality], "with attention": b[quality]}
        for a, b in zip(rows[0]["by_length"], rows[1]["by_length"], strict=True)
    ]
    gradients = _by_place({label: arrival.shares for label, arrival in arrived.items()})
    sizes = _by_place({label: arrival.sizes for label, arrival in arrived.items()})
    table = "\n\n".join(
        (
            markdown(rows, columns),
            f"{quality} by source length:\n\n"
            + markdown(by_length, {"words": "", "without attention": ".1f", "with attention": ".1f"}),
            "Gradient of the loss that arrives at a source word, as a share of its sentence's:\n\n"
            + markdown(gradients, {"place": "", "without attention": ".3f", "with attention": ".3f"}),
            "Size of this gradient: the norm at one source word, of the loss of its sentence summed over its words:\n\n"
            + markdown(sizes, {"place": "", "without attention": ".2e", "with attention": ".2e"}),
        )
    )
    (out / "table.md").write_text(table + "\n", encoding="utf-8")
    _draw_bahdanau(out / "bahdanau2015.png", quality, by_length, arrived)
    return {
        "recipe": name,
        "rows": rows,
        "by_length": by_length,
        "gradients": gradients,
        "gradient_sizes": sizes,
        "table": table,
    }


PLACES = ("first word", "first quarter", "second quarter", "third quarter", "fourth quarter", "last word")


class Arrival(NamedTuple):
    """The gradient at each of the places, on average over sentences."""

    shares: list[float]  # of a sentence's gradient norms, times its length: 1 is an even share
    sizes: list[float]  # the norms themselves


def arriving(translator: Translator, part: Sequence[Pair], fewest: int = 8) -> Arrival:
    """How much of the gradient arrives at the first word, at each quarter of a sentence, and at the last.

    It is the gradient of a sentence's loss, summed over the words to write, at the vector of a source word. Sentences
    of at least `fewest` words count.
    """
    objective = NextWord(translator.network, smoothing=0.0).eval()
    sums, count = torch.zeros(2, len(PLACES), dtype=torch.float64), 0
    for batch, _ in in_order(part, translator.source, translator.target):
        kept: list[Tensor] = []

        def keep(module: Any, given: Any, words: Tensor, kept: list[Tensor] = kept) -> None:
            words.retain_grad()
            kept.append(words)

        handle = translator.network.read.register_forward_hook(keep)
        with torch.enable_grad():
            objective(batch).total.backward()
        handle.remove()
        objective.zero_grad()
        norms = kept[0].grad.norm(dim=-1).double()  # type: ignore[union-attr]
        for row, length in zip(norms, (batch.source_lengths - 1).tolist(), strict=True):
            if length >= fewest:
                norm = row[:length]
                share = norm / norm.sum().clamp(min=1e-30) * length
                sums += torch.stack([_places(share), _places(norm)])
                count += 1
    return Arrival(*(sums / max(count, 1)).tolist())


def _places(of_words: Tensor) -> Tensor:
    quarters = [part.mean() for part in of_words.tensor_split(4)]
    return torch.stack([of_words[0], *quarters, of_words[-1]])


def _by_place(values: Mapping[str, Sequence[float]]) -> list[Row]:
    return [
        {"place": place, **{label: several[i] for label, several in values.items()}}
        for i, place in enumerate(PLACES)
    ]


def _draw_bahdanau(
    path: Path, quality: str, by_length: Sequence[Row], arrived: Mapping[str, Arrival]
) -> None:
    plt = require_extra("matplotlib.pyplot", extra="draw")
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 3.8), layout="constrained")
    colors = {"without attention": "#D55E00", "with attention": "#0072B2"}
    for label, color in colors.items():
        left.plot(
            [row["words"] for row in by_length],
            [row[label] for row in by_length],
            "o-",
            color=color,
            label=label,
        )
        middle.plot(PLACES, arrived[label].shares, "o-", color=color, label=label)
        right.plot(PLACES, arrived[label].sizes, "o-", color=color, label=label)
    left.set(xlabel="length of the source", ylabel=quality, title="Quality by source length")
    middle.set(ylabel="share of the gradient (1: even)", title="Gradient that arrives at a source word")
    right.set(ylabel="norm of the gradient", yscale="log", title="Its size")
    for panel in (middle, right):
        panel.tick_params(axis="x", rotation=20)
    left.legend()
    left.set_ylim(bottom=0)
    middle.set_ylim(bottom=0)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _range(group: Row) -> str:
    return f"{group['from']}-{group['to']}" if group["to"] is not None else f"{group['from']}+"
