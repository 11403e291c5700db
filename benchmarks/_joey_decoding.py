"""JoeyNMT 2.3 translating, on the stopwatch. Run by the Python of an environment that has it, not by ours:

    JOEY/bin/python benchmarks/_joey_decoding.py transformer FOLDER --batch 32 --beam 5

prints one line of JSON: sentences a second of each pass, and the translations. `benchmarks/decoding.py` writes FOLDER:
the sources as numbers, and weights of ours, which it is given, so that it should find the same translations.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from _joey_side import MODELS  # not as a package: that wants what our environment has
from _names import fill, joey, joey_recurrent

now = time.process_time if os.environ.get("BENCHMARK_CLOCK") == "processor" else time.perf_counter
SWAP = [1, 0]  # its numbers of UNK and PAD are ours the other way around


def network(model: str, facts: dict[str, Any], weights: dict[str, Any]) -> Any:
    import torch
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    names = {"unk": "<unk>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
    special = SimpleNamespace(**{f"{name}_token": token for name, token in names.items()}, lang_tags=[])
    special.__dict__.update({f"{name}_id": number for number, name in enumerate(names)}, sep_token=None)
    words = Vocabulary([str(number) for number in range(4, facts["words"])], special)
    torch.manual_seed(0)
    made = build_model(MODELS[model](), words, words).eval()
    if model == "gru":
        weights = joey_recurrent(weights)
    for name in (
        "src_embed.weight",
        "src_embed.lut.weight",
        "trg_embed.lut.weight",
        "decoder.output_layer.weight",
    ):
        if name in weights:
            weights[name] = torch.cat((weights[name][SWAP], weights[name][2:]))
    fill(
        made, weights, joey(facts["layers"]) if model == "transformer" else ((name, name) for name in weights)
    )
    for part in made.modules():
        if isinstance(part, torch.nn.LayerNorm):
            part.eps = 1e-5  # as these weights were trained
    return made


def batches(sources: list[list[int]], size: int) -> list[Any]:
    """Sources of similar length together, the longest first."""
    import torch
    from joeynmt.batch import Batch

    order = sorted(range(len(sources)), key=lambda row: -len(sources[row]))
    found = []
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        lengths = torch.tensor([len(sources[row]) for row in rows])
        source = torch.ones(len(rows), int(lengths.max()), dtype=torch.long)  # 1 is its PAD
        for place, row in enumerate(rows):
            source[place, : len(sources[row])] = torch.tensor(sources[row])
        places = {
            "src_prompt_mask": None,
            "trg": None,
            "trg_prompt_mask": None,
            "indices": torch.tensor(rows),
        }
        where = {"device": torch.device("cpu"), "pad_index": 1, "eos_index": 3, "is_train": False}
        found.append((rows, Batch(src=source, src_length=lengths, **places, **where)))
    return found


def measure(model: str, folder: Path, batch: int, beam: int, passes: int, longest: int) -> dict[str, Any]:
    import torch
    from joeynmt.search import search

    logging.disable(logging.INFO)
    given = json.loads((folder / "given.json").read_text())
    sources = [
        [1 if number == 0 else 0 if number == 1 else number for number in one] for one in given["sources"]
    ]
    made, windows = network(model, given, torch.load(folder / "weights.pt")), []
    groups = batches(sources, batch)
    answers: list[list[int]] = [[] for _ in sources]
    search(made, batches(sources[:2], 2)[0][1], longest, beam, 1.0)
    for _ in range(passes):
        start = now()
        for rows, group in groups:
            found, _, _ = search(made, group, longest, beam, 1.0)
            for row, one in zip(rows, found.tolist(), strict=True):
                answers[row] = one
        windows.append(len(sources) / (now() - start))
    cut = [one[: one.index(3)] if 3 in one else [number for number in one if number != 1] for one in answers]
    cut = [[1 if number == 0 else number for number in one] for one in cut]  # its UNK is 0
    facts = {"versions": {name: version(name) for name in ("joeynmt", "torch")}}
    return {"windows": windows, "ids": cut, **facts, "threads": torch.get_num_threads()}


def main() -> None:
    parser = argparse.ArgumentParser(description="JoeyNMT translating on the stopwatch.")
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--longest", type=int, default=60, help="tokens of a translation")
    with contextlib.redirect_stdout(sys.stderr):
        answer = measure(**vars(parser.parse_args()))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
