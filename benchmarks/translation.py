"""Translation on real text: Multi30k with published evaluation, and English-French sentences with manual alignments.

    python -m benchmarks.translation DATA --runs RUNS [--only NAME ...] [--out benchmarks/results/translation.md]

DATA holds multi30k, tatoeba-fr-en and gold-alignments. Each row is trained into RUNS/NAME by the command that is
printed with it; existing runs are resumed or only measured. The weights to measure and the length penalty of the beam
(`alpha`, Wu et al. 2016) are the best ones on the validation split; recipes with averaging use the average of the last
checkpoints. The BLEU of the test split with the default penalty of 1 has a column of its own. Earlier rows stay in the
table; a .json file has them as numbers.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from regard.data import SentencePair
from regard.studies.runner import Row, format_markdown_table, run_trial
from regard.tasks import load
from regard.tasks.registry import get_recipe
from regard.tasks.translation.data import iter_pairs
from regard.tasks.translation.evaluation import evaluate

TINY = {"steps": 7000, "grad_accumulation": 2, "warmup_steps": 1000, "schedule": "cosine", "num_threads": 2}
TINY |= {"validate_every": 125, "save_every": 125, "average_last": 10}
GRU = {
    "model": "rnn",
    "tie_embeddings": "output",
    "hidden_dim": 320,
    "encoder_hidden_dim": 320,
    "embed_dim": 256,
    "num_layers": 1,
    "dropout": 0.4,
    "lr": 1e-3,
    "warmup_steps": 400,
    "schedule": "cosine",
    "batch_tokens": 2048,
    "steps": 5500,
    "validate_every": 220,
    "save_every": 220,
    "average_last": 5,
}
HANSARDS = {"precision": "bfloat16", "steps": 5000, "batch_tokens": 2048, "schedule": "cosine"}
HANSARDS |= {"validate_every": 500, "save_every": 250}
LUONG = {"decoder_type": "luong", "input_feeding": True}
SMALL_TRANSFORMER = {"model": "transformer", "embed_dim": 256, "num_layers": 3, "num_heads": 4, "ffn_dim": 512}
SMALL_TRANSFORMER |= {"tie_embeddings": "all"}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "m30k-tiny": ("multi30k-tok", TINY),
    "m30k-gru": ("multi30k-tok", GRU),
    "m30k-none": ("multi30k-tok", {**GRU, "attention_scope": "none"}),
    "m30k-raw": ("multi30k", {**TINY, "num_threads": 1, "precision": "bfloat16"}),
    "hansards-gru": ("hansards", {**HANSARDS, **LUONG}),
    "hansards-transformer": ("hansards", {**HANSARDS, **SMALL_TRANSFORMER}),
}
FOLDERS = {"multi30k-tok": "multi30k", "multi30k": "multi30k", "hansards": "."}
ALPHAS = (0.4, 0.7, 1.0, 1.3, 1.6, 2.0, 2.5)  # length penalties
COLUMNS = {
    "run": "",
    "bleu": ".2f",
    "alpha": "",
    "bleu at 1": ".2f",
    "chrf": ".2f",
    "brevity_penalty": ".3f",
    "aer": ".3f",
    "aer_posterior": ".3f",
    "head": "",
}
COLUMNS |= {"parameters": ",", "steps": ",", "minutes": ".0f", "sentences": ","}


def measure(name: str, data: Path, runs: Path) -> Row:
    """Train or load a run, and evaluate it on the test split."""
    recipe, settings = RUNS[name]
    where = str((data / FOLDERS[recipe]).resolve())
    row = run_trial(recipe, runs / name, log=print, data_dir=where, **{"num_threads": 1, **settings})
    if recipe != "hansards":
        row |= evaluate_length_penalties(runs / name, recipe, row["split"])
    head = f"layer {row['aer_layer']}, head {row['aer_head']}" if "aer_layer" in row else ""
    return {"run": name, **row, "head": head}


def evaluate_length_penalties(run: Path, recipe: str, split: str) -> Row:
    """Evaluate the test split with the length penalty that is best on the validation split, and with 1 to compare."""
    translator = load(run)
    splits = get_recipe(recipe).load_data(translator.config)
    valid, test = list(iter_pairs(splits.valid)), list(iter_pairs(splits.tests[split]))

    def evaluate_pairs(pairs: list[SentencePair], alpha: float) -> Row:
        return evaluate(translator, pairs, translator.decoding_config(length_penalty=alpha))

    scores = {alpha: evaluate_pairs(valid, alpha)["bleu"] for alpha in ALPHAS}
    best = max(scores, key=lambda alpha: scores[alpha])
    default = evaluate_pairs(test, 1.0)["bleu"]
    return {**evaluate_pairs(test, best), "alpha": best, "tried": scores, "bleu at 1": default}


def command(name: str) -> str:
    """The command that trains the same run."""
    recipe, settings = RUNS[name]
    settings = {"data_dir": f"DATA/{FOLDERS[recipe]}", "num_threads": 1, **settings}
    typed = {None: "none", True: "on", False: "off"}
    words = " ".join(
        f"{key}={typed[value] if value is None or isinstance(value, bool) else value}"
        for key, value in settings.items()
    )
    return f"regard train {recipe} {words} --out RUNS/{name}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = {} if options.out is None else read_rows(options.out)
    for name in options.only:
        rows[name] = measure(name, options.data, options.runs)
    if options.out is not None:
        numbers_path(options.out).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        text = f"# Translation\n\n{(__doc__ or '').strip()}\n\n{table(rows)}\n"
        options.out.write_text(text, encoding="utf-8")
    print(table(rows))


def table(rows: dict[str, Row]) -> str:
    """All rows that were measured so far, in the order of RUNS."""
    ordered = [rows[name] for name in RUNS if name in rows]
    signatures = sorted({f"- {row['run']}: {row['bleu_signature']}" for row in ordered})
    commands = "\n".join(f"    {command(row['run'])}" for row in ordered)
    return "\n\n".join(
        (format_markdown_table(ordered, COLUMNS), "Signatures of BLEU:\n\n" + "\n".join(signatures), commands)
    )


def numbers_path(out: Path) -> Path:
    """The file with the rows as numbers, to which other trainings can be added."""
    return out.with_suffix(".json")


def read_rows(out: Path) -> dict[str, Row]:
    return json.loads(numbers_path(out).read_text(encoding="utf-8")) if numbers_path(out).is_file() else {}


if __name__ == "__main__":
    main()
