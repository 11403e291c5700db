"""Comparisons of `benchmarks.golden`: tensors, metrics and JSON output of two runs, exactly."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

Answers = dict[str, Any]  # the JSON output of each command, by the command of version 0.1

# State-dict keys of version 0.1: each rule replaces a pattern by one of the alternatives, or does not apply yet. A key
# of the new side belongs to exactly one key of the old side.
Replacement = str | Callable[[re.Match[str]], str]
KEYS: list[tuple[str, tuple[Replacement, ...]]] = [
    (r"\b(look|look_back)\.query\.", (r"\1.q_proj.",)),
    (r"\b(look|look_back)\.key\.", (r"\1.k_proj.",)),
    (r"\b(look|look_back)\.value\.", (r"\1.v_proj.",)),
    (r"\b(look|look_back)\.output\.", (r"\1.out_proj.",)),
    (r"\blook\.", ("self_attn.",)),
    (r"\blook_back\.", ("cross_attn.",)),
    (r"\bthink\.0\.", ("feed_forward.linear1.", "feed_forward.0.", "think.linear1.")),
    (r"\bthink\.2\.", ("feed_forward.linear2.", "feed_forward.2.", "think.linear2.")),
    (r"\badd_look\.norm\.", ("norm1.",)),
    (r"\badd_back\.norm\.", ("norm2.",)),
    (r"(decoder\.layers\.\d+\.)add_think\.norm\.", (r"\1norm3.", r"\1norm2.")),  # 3: with cross-attention
    (r"\badd_think\.norm\.", ("norm2.",)),
    (r"(^|/)(read|write|embed|reader\.embed)\.words\.", (r"\1\2.",)),
    (r"(^|/)read\.(?=weight$)", (r"\1src_embed.",)),
    (r"(^|/)write\.", (r"\1tgt_embed.",)),
    (r"(^|/)read\.embed\.", (r"\1question_encoder.embed.",)),
    (r"(^|/)read\.step\.", (r"\1question_encoder.gru.", r"\1question_encoder.step.")),
    (r"(^|/)output\.", (r"\1lm_head.", r"\1classifier.", r"\1output_proj.")),
    (r"\bfirst\.(?=early|late|past)", ("cells.0.",)),
    (r"\babove\.(\d+)\.", (lambda found: f"cells.{int(found[1]) + 1}.",)),
    (r"\bearly\.", ("input_proj.",)),
    (r"\blate\.", ("context_proj.",)),
    (r"\bpast\.", ("hidden_proj.",)),
    (r"(^|/)start\.", (r"\1bridge.",)),
    (r"(^|/)join\.", (r"\1readout_proj.",)),
    (r"(^|/)joins\.", (r"\1query_updates.",)),
    (r"\b(score|attention)\.W\b", (r"\1.query_proj", r"\1.in_proj")),
    (r"\bscore\.U\b", ("score.key_proj",)),
    (r"\b(score|attention)\.v\b", (r"\1.energy",)),
    (r"(^|/)eyes\.", (r"\1backbone.",)),
    (r"\.last\.", (".out_proj.",)),
    (r"(^|/)reader\.", (r"\1encoder.",)),
    (r"(of_words|of_sentences)\.read\.", (r"\1.rnn.",)),
    (r"\bof_words\.", ("word_level.",)),
    (r"\bof_sentences\.", ("sentence_level.",)),
    (r"(layers\.\d+\.layer\.)near\.", (r"\1conv.",)),
    (r"(layers\.\d+\.layer\.)read\.", (r"\1rnn.",)),
    (r"(layers\.\d+\.layer\.)output\.", (r"\1out_proj.",)),
    (r"(layers\.\d+\.)layer\.", (r"\1",)),
    (r"(layers\.\d+\.)add\.norm\.", (r"\1norm.",)),
    (r"(^|/)tell\.", (r"\1interface_proj.",)),
    (r"\bfirst_read\b", ("initial_read",)),
    (r"\bcontroller\.first\b", ("controller.initial_state",)),
    (r"^seen$", ("num_batches",)),
]

CLOCK = {"time", "train_seconds", "seconds", "tokens_per_second"}
# Metrics of one step; the others are means over the steps since the line before.
SINGLE = {"lr", "grad_norm", "epoch"}
# Training metrics of version 0.1 in another unit: the number of right answers is now `accuracy`, in percent.
REPLACED = {"right"}
# Metrics of version 0.1 that have another name.
RENAMED = {"exact": "exact_match"}
# Counts of version 0.1 that have another name.
COUNTS = {"sentences": "num_examples"}
# Fields that repeat the input, or a path.
INPUTS = {"run", "recipe", "line", "source", "document", "image", "beginning", "question", "decoding", "data", "seed"}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file by the key in the model, without prefixes; tied weights under each of their keys."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
        shared = json.loads((file.metadata() or {}).get("shared", "{}"))
    tensors |= {name: tensors[same] for name, same in shared.items()}
    if path.parent.parent.name != "checkpoints" and any(name.startswith("model.") for name in tensors):
        tensors = {name: tensor for name, tensor in tensors.items() if name.startswith("model.")}  # not of the loss
    prefix = re.compile(r"^(optimizer/|loss/)?([a-z_]+/)?(model\.)?")
    return {prefix.sub(r"\2", name): tensor for name, tensor in tensors.items()}


def read_all_tensors(run: Path) -> dict[str, dict[str, Tensor]]:
    """The tensors of each checkpoint (model, optimizer and loss in one) and of each weight file."""
    found: dict[str, dict[str, Tensor]] = {}
    for path in sorted(run.rglob("*.safetensors")):
        unit = path.parent if path.parent.parent.name == "checkpoints" else path
        found.setdefault(str(unit.relative_to(run)), {}).update(read_tensors(path))
    return found


@functools.cache
def new_keys(key: str) -> tuple[str, ...]:
    """The names that a key of version 0.1 may have now, the present one first."""
    keys = [key]
    for pattern, replacements in KEYS:
        matching = [key for key in keys if re.search(pattern, key)]
        keys = [re.sub(pattern, new, key) for new in replacements for key in matching] + keys
    return tuple(dict.fromkeys(keys))


def compare_tensors(old: dict[str, Tensor], new: dict[str, Tensor]) -> Iterator[str]:
    left = dict(new)
    for key, tensor in old.items():
        name = next((name for name in new_keys(key) if name in left), None)
        if name is None:
            yield f"{key} is missing"
            continue
        other = left.pop(name)
        if other.shape != tensor.shape or other.dtype != tensor.dtype:
            yield f"{key} is {tuple(tensor.shape)} {tensor.dtype}, now {tuple(other.shape)} {other.dtype}"
        elif tensor.numpy().tobytes() != other.numpy().tobytes():
            yield f"{key}: largest difference {float((tensor.double() - other.double()).abs().max()):.3g}"
    yield from (f"{name} is additional" for name in left)


def read_metrics(path: Path) -> dict[str, Any]:
    """Each metric with the steps it covers. The clock adds lines where training is slow, and so shortens means."""
    found, before = {}, 0
    for line in path.read_text().splitlines():
        point = json.loads(line)
        step = point.pop("step")
        for name, value in point.pop("valid", {}).items():
            found[f"valid {RENAMED.get(name, name)} at step {step}"] = value
        for name, value in point.items():
            covered = f"step {step}" if name in SINGLE else f"steps {before}-{step}"
            found |= {} if name in CLOCK else {f"{name} at {covered}": value}
        before = step
    return found


def compare_metrics(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    metrics = {name.split(" at ")[0] for name in new}
    if not any(name in new for name in old if name.startswith("grad_norm")):
        yield "no gradient norm of a common step"
    for name, value in old.items():
        if name in new and not is_same(value, new[name]):
            yield f"{name} is {value}, now {new[name]}"
        elif name.split(" at ")[0] in REPLACED:
            continue
        elif name not in new and (name.startswith("valid ") or name.split(" at ")[0] not in metrics):
            yield f"{name} is missing"


def is_same(old: Any, new: Any) -> bool:
    return bool(old == new or (old != old and new != new))  # NaN is the same as NaN


def nodes(tree: Any) -> Iterator[tuple[str, Any]]:
    """All values of a JSON tree, each with its name."""
    for name, value in tree.items() if isinstance(tree, dict) else (("", value) for value in tree):
        yield name, value
        if isinstance(value, (dict, list)):
            yield from ((inner or name, deeper) for inner, deeper in nodes(value))


def leaves(tree: Any) -> list[Any]:
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else None
    return [tree] if inner is None else [leaf for value in inner for leaf in leaves(value)]


def compare_json(old: Any, new: Any, name: str = "") -> tuple[int, list[str]]:
    """How many values of an old output were compared with a new one, and those that are not in it."""
    if isinstance(old, dict):
        ignored = INPUTS | ({"text"} if {"label", "filled"} & old.keys() else set())  # there, `text` is the input
        return _join(compare_json(value, new, key) for key, value in old.items() if key not in ignored)
    if isinstance(old, list) and old and isinstance(old[0], dict):
        results = [
            _join(compare_json(*pair, f"{name}[{n}]") for n, pair in enumerate(zip(old, items, strict=True)))
            for _, items in nodes(new)
            if isinstance(items, list) and len(items) == len(old) and isinstance(items[0], dict)
        ]
        return max(results, key=lambda result: result[0] - len(result[1]), default=(0, [f"{name} is missing"]))
    values, others = leaves(old), [(key, leaves(value)) for key, value in nodes(new)]
    if all(value is None or isinstance(value, int) for value in values):  # too common: compared by name only
        others = [(key, other) for key, other in others if key in (name, COUNTS.get(name))]
        if not others or not values or None in values:
            return 0, []
    others = [(key, other) for key, other in others if len(other) == len(values)]
    if any(all(map(is_same, values, other)) for _, other in others):
        return 1, []
    numeric = [other for _, other in others if all(isinstance(value, (int, float)) for value in (*values, *other))]
    gaps = [max(abs(a - b) for a, b in zip(values, other, strict=True)) for other in numeric]
    shown = str(old) if len(values) == 1 else f"{len(values)} values"
    return 1, [f"{name} ({shown}) is missing" + (f"; largest difference {min(gaps):.3g}" if gaps else "")]


def _join(results: Iterable[tuple[int, list[str]]]) -> tuple[int, list[str]]:
    results = list(results)
    return sum(count for count, _ in results), [line for _, lines in results for line in lines]


def compare_runs(old: Path, new: Path, answers: tuple[Answers, Answers]) -> tuple[str, list[str]]:
    """What was compared, and what differs."""
    tensors, others = read_all_tensors(old / "run"), read_all_tensors(new / "run")
    lines = [f"{unit} is missing" for unit in tensors if unit not in others]
    lines += [f"{unit} is additional" for unit in others if unit not in tensors]
    for unit in tensors.keys() & others.keys():
        lines += [f"{unit}: {line}" for line in compare_tensors(tensors[unit], others[unit])]
    metrics = read_metrics(old / "run" / "metrics.jsonl")
    lines = sorted(lines) + list(compare_metrics(metrics, read_metrics(new / "run" / "metrics.jsonl")))
    number = 0
    for command, answer in answers[0].items():
        count, missing = compare_json(answer, answers[1][command])
        number += count
        missing += [] if count else ["no values to compare"]
        lines += [f"{command.split()[0]}: {line}" for line in missing]
    return f"{sum(map(len, tensors.values()))} tensors, {len(metrics)} metrics, {number} values", lines
