"""Bahdanau, Cho and Bengio (2015), found again: long sentences, and the gradient at their first words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard._extras import need
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
    gradients = [
        {"place": place, **{label: values[i] for label, values in arrived.items()}}
        for i, place in enumerate(PLACES)
    ]
    table = "\n\n".join(
        (
            markdown(rows, columns),
            f"{quality} by source length:\n\n"
            + markdown(by_length, {"words": "", "without attention": ".1f", "with attention": ".1f"}),
            "Gradient of the loss that arrives at a source word, as a share of its sentence's:\n\n"
            + markdown(gradients, {"place": "", "without attention": ".3f", "with attention": ".3f"}),
        )
    )
    (out / "table.md").write_text(table + "\n", encoding="utf-8")
    _draw_bahdanau(out / "bahdanau2015.png", quality, by_length, arrived)
    return {"recipe": name, "rows": rows, "by_length": by_length, "gradients": gradients, "table": table}


PLACES = ("first word", "first quarter", "second quarter", "third quarter", "fourth quarter", "last word")


def arriving(translator: Translator, part: Sequence[Pair], fewest: int = 8) -> list[float]:
    """How much of the gradient arrives at the first word, at each quarter of a sentence, and at the last.

    Shares of a sentence's gradient norms, times its length: 1 is an even share. Sentences of at least `fewest`
    words count.
    """
    objective = NextWord(translator.network, smoothing=0.0).eval()
    sums, count = torch.zeros(len(PLACES), dtype=torch.float64), 0
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
                sums += _places(row[:length])
                count += 1
    return (sums / max(count, 1)).tolist()


def _places(norms: Tensor) -> Tensor:
    share = norms / norms.sum().clamp(min=1e-30) * len(norms)
    quarters = [part.mean() for part in share.tensor_split(4)]
    return torch.stack([share[0], *quarters, share[-1]])


def _draw_bahdanau(
    path: Path, quality: str, by_length: Sequence[Row], arrived: dict[str, list[float]]
) -> None:
    plt = need("matplotlib.pyplot", extra="draw")
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    colors = {"without attention": "#D55E00", "with attention": "#0072B2"}
    for label, color in colors.items():
        left.plot(
            [row["words"] for row in by_length],
            [row[label] for row in by_length],
            "o-",
            color=color,
            label=label,
        )
        right.plot(PLACES, arrived[label], "o-", color=color, label=label)
    left.set(xlabel="length of the source", ylabel=quality, title="Quality by source length")
    right.set(ylabel="share of the gradient (1: even)", title="Gradient that arrives at a source word")
    right.tick_params(axis="x", rotation=20)
    left.legend()
    left.set_ylim(bottom=0)
    right.set_ylim(bottom=0)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _range(group: Row) -> str:
    return f"{group['from']}-{group['to']}" if group["to"] is not None else f"{group['from']}+"
