"""Translation on real text: Multi30k in the published way of scoring, and English-French words linked by people.

    python -m benchmarks.translation DATA --runs RUNS [--only NAME ...] [--out benchmarks/results/translation.md]

DATA holds multi30k, tatoeba-fr-en and gold-alignments. Each row is trained into RUNS/NAME by the command that is
printed with it; what is there already is resumed, or only measured. The weights to measure are chosen on the validation
part, or are the average of the last checkpoints where the recipe averages. So is the length penalty of the beam
(`alpha`, Wu et al. 2016); the BLEU of the test part with the usual penalty of 1 stands beside it.
Rows that were measured before stay in the table; beside it they are kept as numbers.
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

TINY = {"steps": 7000, "accumulate": 2, "warmup": 1000, "schedule": "cosine", "threads": 2}
TINY |= {"validate_every": 125, "save_every": 125, "average": 10}
GRU = {
    "model": "recurrent",
    "tied": "output",
    "dim": 320,
    "encoder_dim": 320,
    "embed_dim": 256,
    "heads": 1,
    "hidden_dim": None,
    "layers": 1,
    "dropout": 0.4,
    "lr": 1e-3,
    "warmup": 400,
    "schedule": "cosine",
    "batch_tokens": 2048,
    "steps": 5500,
    "validate_every": 220,
    "save_every": 220,
    "average": 5,
}
LINKED = {"precision": "bfloat16", "steps": 5000, "batch_tokens": 2048, "schedule": "cosine"}
LINKED |= {"validate_every": 500, "save_every": 250}
LUONG = {"order": "luong", "input_feeding": True}
LOOKING = {"model": "transformer", "dim": 256, "layers": 3, "heads": 4, "hidden_dim": 512, "tied": "all"}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "m30k-tiny": ("multi30k-tok", TINY),
    "m30k-gru": ("multi30k-tok", GRU),
    "m30k-none": ("multi30k-tok", {**GRU, "scope": "none"}),
    "m30k-raw": ("multi30k", {**TINY, "threads": 1, "precision": "bfloat16"}),
    "hansards-gru": ("hansards", {**LINKED, **LUONG}),
    "hansards-transformer": ("hansards", {**LINKED, **LOOKING}),
}
FOLDERS = {"multi30k-tok": "multi30k", "multi30k": "multi30k", "hansards": "."}
ALPHAS = (0.4, 0.7, 1.0, 1.3, 1.6, 2.0, 2.5)  # length penalties, chosen among on the validation part
COLUMNS = {
    "run": "",
    "bleu": ".2f",
    "alpha": "",
    "bleu at 1": ".2f",
    "chrf": ".2f",
    "brevity_penalty": ".3f",
    "aer": ".3f",
    "aer_hindsight": ".3f",
    "looks": "",
}
COLUMNS |= {"parameters": ",", "steps": ",", "minutes": ".0f", "sentences": ","}


def measured(name: str, data: Path, runs: Path) -> Row:
    """Train, or take what is there, and measure it on the test part."""
    known, settings = RUNS[name]
    where = str((data / FOLDERS[known]).resolve())
    row = run_trial(known, runs / name, log=print, data=where, **{"threads": 1, **settings})
    if known != "hansards":
        row |= longer(runs / name, known, row["part"])
    looks = f"layer {row['aer_layer']}, head {row['aer_head']}" if "aer_layer" in row else ""
    return {"run": name, **row, "looks": looks}


def longer(run: Path, known: str, part: str) -> Row:
    """The test part with the length penalty that is best on the validation part; and with 1, to compare."""
    translator = load(run)
    material = get_recipe(known).load_data(translator.config)
    valid, test = list(iter_pairs(material.valid)), list(iter_pairs(material.tests[part]))

    def judged(given: list[SentencePair], alpha: float) -> Row:
        return evaluate(translator, given, translator.decoding_config(alpha=alpha))

    tried = {alpha: judged(valid, alpha)["bleu"] for alpha in ALPHAS}
    best = max(tried, key=lambda alpha: tried[alpha])
    usual = judged(test, 1.0)["bleu"]
    return {**judged(test, best), "alpha": best, "tried": tried, "bleu at 1": usual}


def command(name: str) -> str:
    """What trains the same by hand."""
    known, settings = RUNS[name]
    settings = {"data": f"DATA/{FOLDERS[known]}", "threads": 1, **settings}
    typed = {None: "none", True: "on", False: "off"}
    words = " ".join(
        f"{key}={typed[value] if value is None or isinstance(value, bool) else value}"
        for key, value in settings.items()
    )
    return f"regard train {known} {words} --out RUNS/{name}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = {} if given.out is None else before(given.out)
    for name in given.only:
        rows[name] = measured(name, given.data, given.runs)
    if given.out is not None:
        kept(given.out).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        told = f"# Translation\n\n{(__doc__ or '').strip()}\n\n{table(rows)}\n"
        given.out.write_text(told, encoding="utf-8")
    print(table(rows))


def table(rows: dict[str, Row]) -> str:
    """All rows that were ever measured, in the order of RUNS."""
    found = [rows[name] for name in RUNS if name in rows]
    signatures = sorted({f"- {row['run']}: {row['bleu_signature']}" for row in found})
    commands = "\n".join(f"    {command(row['run'])}" for row in found)
    return "\n\n".join(
        (format_markdown_table(found, COLUMNS), "Signatures of BLEU:\n\n" + "\n".join(signatures), commands)
    )


def kept(out: Path) -> Path:
    """Where the rows are as numbers, so that those of other trainings can be added."""
    return out.with_suffix(".json")


def before(out: Path) -> dict[str, Row]:
    return json.loads(kept(out).read_text(encoding="utf-8")) if kept(out).is_file() else {}


if __name__ == "__main__":
    main()
