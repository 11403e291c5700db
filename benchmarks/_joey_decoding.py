"""Translation speed of JoeyNMT 2.3. Run by the Python of an environment that has it, not by ours:

    JOEY/bin/python benchmarks/_joey_decoding.py transformer FOLDER --batch 32 --beam 5

prints one line of JSON: sentences per second of each pass, and the translations; `benchmarks/decoding.py` writes
FOLDER: the sources as token ids and our weights, so that the translations should be equal.
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

from _joey_side import MODELS  # not as a package, whose imports this environment lacks
from _names import fill, joey, joey_recurrent

now = time.process_time if os.environ.get("BENCHMARK_CLOCK") == "processor" else time.perf_counter
SWAP = [1, 0]  # its ids of UNK and PAD are ours, exchanged


def build_network(model: str, facts: dict[str, Any], weights: dict[str, Any]) -> Any:
    import torch
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    names = {"unk": "<unk>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
    special = SimpleNamespace(**{f"{name}_token": token for name, token in names.items()}, lang_tags=[])
    special.__dict__.update({f"{name}_id": number for number, name in enumerate(names)}, sep_token=None)
    words = Vocabulary([str(number) for number in range(4, facts["words"])], special)
    torch.manual_seed(0)
    network = build_model(MODELS[model](), words, words).eval()
    if model == "gru":
        weights = joey_recurrent(weights)
    for name in ("src_embed.weight", "src_embed.lut.weight", "trg_embed.lut.weight", "decoder.output_layer.weight"):
        if name in weights:
            weights[name] = torch.cat((weights[name][SWAP], weights[name][2:]))
    fill(network, weights, joey(facts["layers"]) if model == "transformer" else ((name, name) for name in weights))
    for part in network.modules():
        if isinstance(part, torch.nn.LayerNorm):
            part.eps = 1e-5  # as these weights were trained
    return network


def batches(sources: list[list[int]], size: int) -> list[Any]:
    """Sources of similar length together, the longest first."""
    import torch
    from joeynmt.batch import Batch

    order = sorted(range(len(sources)), key=lambda row: -len(sources[row]))
    groups = []
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        lengths = torch.tensor([len(sources[row]) for row in rows])
        source = torch.ones(len(rows), int(lengths.max()), dtype=torch.long)  # 1 is its PAD
        for place, row in enumerate(rows):
            source[place, : len(sources[row])] = torch.tensor(sources[row])
        masks = {"src_prompt_mask": None, "trg": None, "trg_prompt_mask": None, "indices": torch.tensor(rows)}
        options = {"device": torch.device("cpu"), "pad_index": 1, "eos_index": 3, "is_train": False}
        groups.append((rows, Batch(src=source, src_length=lengths, **masks, **options)))
    return groups


def measure(model: str, folder: Path, batch: int, beam: int, passes: int, longest: int) -> dict[str, Any]:
    import torch
    from joeynmt.search import search

    logging.disable(logging.INFO)
    facts = json.loads((folder / "facts.json").read_text())
    sources = [[1 if number == 0 else 0 if number == 1 else number for number in one] for one in facts["sources"]]
    network, windows = build_network(model, facts, torch.load(folder / "weights.pt")), []
    groups = batches(sources, batch)
    answers: list[list[int]] = [[] for _ in sources]
    search(network, batches(sources[:2], 2)[0][1], longest, beam, 1.0)
    for _ in range(passes):
        start = now()
        for rows, group in groups:
            output, _, _ = search(network, group, longest, beam, 1.0)
            for row, one in zip(rows, output.tolist(), strict=True):
                answers[row] = one
        windows.append(len(sources) / (now() - start))
    cut = [one[: one.index(3)] if 3 in one else [number for number in one if number != 1] for one in answers]
    cut = [[1 if number == 0 else number for number in one] for one in cut]  # its UNK is 0
    versions = {name: version(name) for name in ("joeynmt", "torch")}
    return {"windows": windows, "ids": cut, "versions": versions, "threads": torch.get_num_threads()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Translation speed of JoeyNMT.")
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
