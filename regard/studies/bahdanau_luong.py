"""The studies of translation: Bahdanau, Cho and Bengio (2015), and Luong, Pham and Manning (2015).

Bahdanau et al.: translations of long sentences, and the gradient at their first words. Luong et al.: the gains of
global attention, input feeding, local attention and four scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard._imports import require_extra
from regard.data import SentencePair, iter_eval_batches
from regard.studies.runner import Row, format_markdown_table, run_trial
from regard.tasks.loading import load
from regard.tasks.registry import get_recipe
from regard.tasks.sequence_loss import NextTokenLoss
from regard.tasks.translation.predictor import Translator
from regard.training.logging import LogFn

__all__ = ["PositionGradients", "bahdanau2015", "gradient_by_position", "luong2015"]

# Options of all models of a study: small enough for an afternoon on two cores.
SMALL_RNN = {"model": "rnn", "hidden_dim": 256, "embed_dim": 256, "num_layers": 1, "tie_embeddings": "none"}
# 2,000 steps with larger batches were far from convergence.
TRAINING = {"batch_tokens": 1024, "steps": 4000, "lr": 1e-3, "warmup_steps": 400, "schedule": "cosine"}
SHARED_OPTIONS: dict[str, dict[str, Any]] = {
    "reverse": {"max_length": 40, "hidden_dim": 128, "embed_dim": 64, "dropout": 0.0, "steps": 3000, "lr": 3e-3},
    "multi30k": {**SMALL_RNN, **TRAINING, "dropout": 0.3, "vocab_size": 8000, "average_last": 0, "beam_size": 1},
}
QUALITY_METRIC = {"reverse": "exact_match", "multi30k": "bleu"}
POSITIONS = ("first word", "first quarter", "second quarter", "third quarter", "fourth quarter", "last word")
COLORS = {"without attention": "#D55E00", "with attention": "#0072B2"}


def bahdanau2015(out: Path, name: str, values: dict[str, Any], log: LogFn) -> dict[str, Any]:
    """Compare models with and without attention: quality by source length, and the gradient at each source word.

    Both encoders read in one direction, so that the first words are the farthest from the final state.

    Args:
        out: the folder to write
        name: "reverse" or "multi30k"
        values: options of both trainings
        log: takes each line of progress
    """
    shared = {**SHARED_OPTIONS[name], "bidirectional": False}
    if name == "multi30k":
        shared["language_pair"] = "en-fr"
    rows, gradients = [], {}
    for label, scope in zip(COLORS, ("none", "global"), strict=True):
        log(f"{label}:")
        row = run_trial(name, out / scope, log=log, **{**shared, **values, "attention_scope": scope})
        rows.append({"model": label, **row})
        translator = load(out / scope)
        tests = next(iter(get_recipe(name).load_data(translator.config).select().values()))
        gradients[label] = gradient_by_position(translator, list(tests))
    quality = QUALITY_METRIC[name]
    lengths = map(_format_range, rows[0]["by_length"])
    qualities = {row["model"]: [group[quality] for group in row["by_length"]] for row in rows}
    by_length = _make_rows("words", lengths, qualities)
    shares = _make_rows("place", POSITIONS, {label: one.shares for label, one in gradients.items()})
    norms = _make_rows("place", POSITIONS, {label: one.norms for label, one in gradients.items()})
    columns = {"model": "", quality: ".1f", "parameters": ",", "minutes": ".1f"}
    table = "\n\n".join(
        (
            format_markdown_table(rows, columns),
            f"{quality} by source length:",
            format_markdown_table(by_length, {"words": "", **dict.fromkeys(COLORS, ".1f")}),
            "Gradient of the loss that arrives at a source word, as a share of its sentence's:",
            format_markdown_table(shares, {"place": "", **dict.fromkeys(COLORS, ".3f")}),
            "Size of this gradient: the norm at one source word, of the loss of its sentence summed over its words:",
            format_markdown_table(norms, {"place": "", **dict.fromkeys(COLORS, ".2e")}),
        )
    )
    _plot_bahdanau(out / "bahdanau2015.png", quality, by_length, gradients)
    numbers = {"recipe": name, "rows": rows, "by_length": by_length, "gradients": shares, "gradient_sizes": norms}
    return {**numbers, "table": table}


class PositionGradients(NamedTuple):
    """The gradient at each of `POSITIONS`, averaged over sentences.

    Args:
        shares: norms divided by the mean of their sentence; 1 is an even share
        norms: the norms themselves
    """

    shares: list[float]
    norms: list[float]


def gradient_by_position(
    translator: Translator, pairs: Sequence[SentencePair], min_words: int = 8
) -> PositionGradients:
    """The gradient of a sentence's loss, summed over its target words, with respect to the embedding of a source word.

    Args:
        translator: a translator in PyTorch
        pairs: sentences with their translations
        min_words: shorter source sentences are left out
    """
    loss, model = NextTokenLoss(label_smoothing=0.0).eval(), translator.torch_model
    sums, count = torch.zeros(2, len(POSITIONS), dtype=torch.float64), 0
    embeddings: list[Tensor] = []

    def retain_embedding(module: Any, inputs: Any, embedding: Tensor) -> None:
        embedding.retain_grad()
        embeddings.append(embedding)

    handle = model.src_embed.register_forward_hook(retain_embedding)
    for batch, _ in iter_eval_batches(pairs, translator.source, translator.target):
        with torch.enable_grad():
            loss(model, batch).total.backward()
        model.zero_grad()
        norms = embeddings.pop().grad.norm(dim=-1).double()  # type: ignore[union-attr]
        for row, length in zip(norms, (batch.source_lengths - 1).tolist(), strict=True):
            if length >= min_words:
                norm = row[:length]
                share = norm / norm.sum().clamp(min=1e-30) * length
                sums += torch.stack([_position_means(share), _position_means(norm)])
                count += 1
    handle.remove()
    return PositionGradients(*(sums / max(count, 1)).tolist())


def _position_means(values: Tensor) -> Tensor:
    """The means at `POSITIONS` of one value per word."""
    return torch.stack([values[0], *(quarter.mean() for quarter in values.tensor_split(4)), values[-1]])


def _make_rows(key: str, names: Iterable[str], columns: Mapping[str, Sequence[float]]) -> list[Row]:
    """A row for each name, with a value of each column."""
    rows = zip(names, *columns.values(), strict=True)
    return [{key: name, **dict(zip(columns, values, strict=True))} for name, *values in rows]


def _plot_bahdanau(
    path: Path, quality: str, by_length: Sequence[Row], gradients: Mapping[str, PositionGradients]
) -> None:
    plt = require_extra("matplotlib.pyplot", extra="draw")
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 3.8), layout="constrained")
    lengths = [row["words"] for row in by_length]
    for label, color in COLORS.items():
        left.plot(lengths, [row[label] for row in by_length], "o-", color=color, label=label)
        middle.plot(POSITIONS, gradients[label].shares, "o-", color=color, label=label)
        right.plot(POSITIONS, gradients[label].norms, "o-", color=color, label=label)
    left.set(xlabel="length of the source", ylabel=quality, title="Quality by source length")
    middle.set(ylabel="share of the gradient (1: even)", title="Gradient that arrives at a source word")
    right.set(ylabel="norm of the gradient", yscale="log", title="Norm of this gradient")
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
    """Compare the gains of global attention, input feeding and local attention, and four scores.

    Args:
        out: the folder to write
        name: "reverse" or "multi30k"
        values: options of all trainings
        log: takes each line of progress
    """
    shared = {**SHARED_OPTIONS[name], "decoder_type": "luong"}
    local = {"score": "general", "input_feeding": True}
    if name == "multi30k":
        shared["language_pair"] = "en-de"
        local["window_radius"] = 10  # the paper's D
    trials: dict[str, dict[str, Any]] = {
        "none": {"attention_scope": "none"},
        "global (location)": {"score": "location"},
        "global (dot)": {"score": "dot"},
        **{
            f"global ({score}) + feeding": {"score": score, "input_feeding": True}
            for score in ("location", "dot", "general", "concat")
        },
        "local-m (general) + feeding": {"attention_scope": "local-m", **local},
        "local-p (general) + feeding": {"attention_scope": "local-p", **local},
    }
    rows: list[Row] = []
    for index, (label, options) in enumerate(trials.items()):
        log(f"{label}:")
        row = run_trial(name, out / f"{index}", log=log, **{**shared, **values, **options})
        rows.append({"model": label, **row})
    columns = {"model": "", QUALITY_METRIC[name]: ".1f"}
    if any("aer" in row for row in rows):
        columns["aer"] = ".3f"
    columns |= {"parameters": ",", "tokens_per_second": ",.0f", "minutes": ".1f"}
    table = format_markdown_table(rows, columns)
    return {"recipe": name, "rows": rows, "table": table}
