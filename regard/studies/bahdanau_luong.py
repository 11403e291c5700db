"""What the studies of translation have in common.

Bahdanau, Cho and Bengio (2015), found again: long sentences, and the gradient at their first words.

Luong, Pham and Manning (2015), found again: the order of the gains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard._imports import require_extra
from regard.data import SentencePair, iter_eval_batches
from regard.studies.runner import LogFn, Row, format_markdown_table, run_trial
from regard.tasks.loading import load
from regard.tasks.registry import get_recipe
from regard.tasks.sequence_loss import NextTokenLoss
from regard.tasks.translation.predictor import Translator

# What the models of a study have in common: small enough for an afternoon on two cores.
SHARED_OPTIONS: dict[str, dict[str, Any]] = {
    "reverse": {"max_length": 40, "hidden_dim": 128, "embed_dim": 64, "dropout": 0.0, "steps": 3000, "lr": 3e-3},
    "multi30k": {
        "model": "rnn",
        "hidden_dim": 256,
        "embed_dim": 256,
        "num_layers": 1,
        "tie_embeddings": "none",
        "dropout": 0.3,
        "vocab_size": 8000,
        "batch_tokens": 1024,  # many small steps: with 2,000 large ones they were still far from their end
        "steps": 4000,
        "lr": 1e-3,
        "warmup_steps": 400,
        "schedule": "cosine",
        "average_last": 0,
        "beam_size": 1,
    },
}


QUALITY_METRIC = {"reverse": "exact", "multi30k": "bleu"}


def bahdanau2015(out: Path, name: str, values: dict[str, Any], log: LogFn) -> dict[str, Any]:
    """With and without attention: quality by source length, and the gradient that arrives at each source word.

    Both read in one direction, so that the first words are the farthest from the last state.
    """
    shared = {
        **SHARED_OPTIONS[name],
        "bidirectional": False,
        **({"language_pair": "en-fr"} if name == "multi30k" else {}),
        **values,
    }
    rows, arrived = [], {}
    for label, scope in (("without attention", "none"), ("with attention", "global")):
        log(f"{label}:")
        row = run_trial(name, out / scope, log=log, **{**shared, "attention_scope": scope})
        rows.append({"model": label, **row})
        translator = load(out / scope)
        tests = next(iter(get_recipe(name).load_data(translator.config).select().values()))
        arrived[label] = gradient_by_position(translator, list(tests))
    quality = QUALITY_METRIC[name]
    columns = {"model": "", quality: ".1f", "parameters": ",", "minutes": ".1f"}
    by_length = [
        {"words": _format_range(a), "without attention": a[quality], "with attention": b[quality]}
        for a, b in zip(*(row["by_length"] for row in rows), strict=True)
    ]
    gradients = _rows_by_position({label: arrival.shares for label, arrival in arrived.items()})
    sizes = _rows_by_position({label: arrival.norms for label, arrival in arrived.items()})
    table = "\n\n".join(
        (
            format_markdown_table(rows, columns),
            f"{quality} by source length:\n\n"
            + format_markdown_table(by_length, {"words": "", "without attention": ".1f", "with attention": ".1f"}),
            "Gradient of the loss that arrives at a source word, as a share of its sentence's:\n\n"
            + format_markdown_table(gradients, {"place": "", "without attention": ".3f", "with attention": ".3f"}),
            "Size of this gradient: the norm at one source word, of the loss of its sentence summed over its words:\n\n"
            + format_markdown_table(sizes, {"place": "", "without attention": ".2e", "with attention": ".2e"}),
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


POSITIONS = ("first word", "first quarter", "second quarter", "third quarter", "fourth quarter", "last word")


class PositionGradients(NamedTuple):
    """The gradient at each of the places, on average over sentences."""

    shares: list[float]  # of a sentence's gradient norms, times its length: 1 is an even share
    norms: list[float]  # the norms themselves


def gradient_by_position(
    translator: Translator, pairs: Sequence[SentencePair], min_words: int = 8
) -> PositionGradients:
    """How much of the gradient arrives at the first word, at each quarter of a sentence, and at the last.

    It is the gradient of a sentence's loss, summed over the words to write, at the vector of a source word. Sentences
    of at least `fewest` words count.
    """
    loss, model = NextTokenLoss(label_smoothing=0.0).eval(), translator.torch_model
    sums, count = torch.zeros(2, len(POSITIONS), dtype=torch.float64), 0
    for batch, _ in iter_eval_batches(pairs, translator.source, translator.target):
        kept: list[Tensor] = []

        def keep(module: Any, given: Any, words: Tensor, kept: list[Tensor] = kept) -> None:
            words.retain_grad()
            kept.append(words)

        handle = translator.torch_model.src_embed.register_forward_hook(keep)
        with torch.enable_grad():
            loss(model, batch).total.backward()
        handle.remove()
        model.zero_grad()
        norms = kept[0].grad.norm(dim=-1).double()  # type: ignore[union-attr]
        for row, length in zip(norms, (batch.source_lengths - 1).tolist(), strict=True):
            if length >= min_words:
                norm = row[:length]
                share = norm / norm.sum().clamp(min=1e-30) * length
                sums += torch.stack([_position_means(share), _position_means(norm)])
                count += 1
    return PositionGradients(*(sums / max(count, 1)).tolist())


def _position_means(of_words: Tensor) -> Tensor:
    quarters = [part.mean() for part in of_words.tensor_split(4)]
    return torch.stack([of_words[0], *quarters, of_words[-1]])


def _rows_by_position(values: Mapping[str, Sequence[float]]) -> list[Row]:
    return [
        {"place": place, **{label: several[i] for label, several in values.items()}}
        for i, place in enumerate(POSITIONS)
    ]


def _draw_bahdanau(
    path: Path, quality: str, by_length: Sequence[Row], gradients: Mapping[str, PositionGradients]
) -> None:
    plt = require_extra("matplotlib.pyplot", extra="draw")
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 3.8), layout="constrained")
    colors = {"without attention": "#D55E00", "with attention": "#0072B2"}
    for label, color in colors.items():
        left.plot(
            [row["words"] for row in by_length], [row[label] for row in by_length], "o-", color=color, label=label
        )
        middle.plot(POSITIONS, gradients[label].shares, "o-", color=color, label=label)
        right.plot(POSITIONS, gradients[label].norms, "o-", color=color, label=label)
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


def _format_range(group: Row) -> str:
    return f"{group['from']}-{group['to']}" if group["to"] is not None else f"{group['from']}+"


def luong2015(out: Path, name: str, values: dict[str, Any], log: LogFn) -> dict[str, Any]:
    """The order of the gains: nothing, global attention, input feeding, local-p; and four scores."""
    shared = {
        **SHARED_OPTIONS[name],
        "order": "luong",
        **({"language_pair": "en-de"} if name == "multi30k" else {}),
        **values,
    }
    feeding = {"input_feeding": True}
    near = {**feeding, "score": "general", **({"window_radius": 10} if name == "multi30k" else {})}  # the paper's D
    trials: dict[str, dict[str, Any]] = {
        "none": {"attention_scope": "none"},
        "global (location)": {"score": "location"},
        "global (dot)": {"score": "dot"},
        "global (location) + feeding": {"score": "location", **feeding},
        "global (dot) + feeding": {"score": "dot", **feeding},
        "global (general) + feeding": {"score": "general", **feeding},
        "global (concat) + feeding": {"score": "concat", **feeding},
        "local-m (general) + feeding": {"attention_scope": "local-m", **near},
        "local-p (general) + feeding": {"attention_scope": "local-p", **near},
    }
    rows: list[Row] = []
    for number, (label, choice) in enumerate(trials.items()):
        log(f"{label}:")
        row = run_trial(name, out / f"{number}", log=log, **{**shared, **choice})
        rows.append({"model": label, **row})
    columns = {
        "model": "",
        QUALITY_METRIC[name]: ".1f",
        "aer": ".3f",
        "parameters": ",",
        "tokens_per_second": ",.0f",
        "minutes": ".1f",
    }
    if not any("aer" in row for row in rows):
        del columns["aer"]
    table = format_markdown_table(rows, columns)
    (out / "table.md").write_text(table + "\n", encoding="utf-8")
    return {"recipe": name, "rows": rows, "table": table}
