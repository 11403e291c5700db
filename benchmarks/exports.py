"""Exported engines beside the run they came from: are their translations the same, how good, how fast?

    python -m benchmarks.exports RUN --sources test.en --references test.de [--out benchmarks/results/exports.md]

RUN is a trained Transformer. It is exported to CTranslate2 and ONNX, in float32 and int8, and every engine translates
all sources through `Translator`. CTranslate2 is also called directly, in turns with `--engine ctranslate2`: its own
`translate_batch`, with tokens ready, as many sentences at once, the same beam and limit, a batch a thread; what the
engine adds is encoding, ranking and decoding. How fast engines are beside each other, `regard bench translate` says.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks._segmented import lines
from benchmarks._side import Side
from benchmarks.report import machine
from benchmarks.timing import spread
from regard.data.vocabulary import EOS_ID
from regard.export import export
from regard.export.ctranslate2 import MAX_BATCH_SENTENCES
from regard.tasks import Translator, load
from regard.training.weights import retain_freed_memory

ENGINES = (("ctranslate2", None), ("ctranslate2", "int8"), ("onnx", None), ("onnx", "int8"))
SAME, WITHIN = 99.5, {None: 0.1, "int8": 0.5}  # per cent of equal translations; BLEU
PAIR = ("`--engine ctranslate2`", "called directly")
PART = 0.9  # of its speed when it is called directly
Translate = Callable[[list[str]], list[str]]


class Made(NamedTuple):
    name: str
    quantize: str | None
    translate: Translate


def engines(run: Path, folder: Path, alpha: float) -> list[Made]:
    found = [Made("torch", None, through(load(run), alpha))]
    for to, quantize in ENGINES:
        made = export(run, to, folder / f"{to}-{quantize}", quantize=quantize)
        name = f"{to}, {quantize or 'float32'}"
        found.append(Made(name, quantize, through(load(made, engine=to), alpha)))
    return found


def through(translator: Translator, alpha: float) -> Translate:
    options = translator.decoding_config(beam=5, alpha=alpha)
    return lambda texts: [translator.to_text(one[0]) for one in translator.search(texts, options)]


def direct(ours: Translator, folder: Path, texts: list[str], alpha: float) -> Callable[[], object]:
    """CTranslate2's own call, with all that it is given made before."""
    import ctranslate2

    threads = {"inter_threads": torch.get_num_threads(), "intra_threads": 1}
    program: Any = ctranslate2.Translator(str(folder), **threads)
    words = ours.source.vocabulary.tokens
    encoded = [[*ours.source.encode(ours.clean(text)), EOS_ID] for text in texts]
    limits = ours.decoding_config(beam=5).max_lengths(torch.tensor([len(one) for one in encoded]))
    told = [[words[number] for number in one] for one in encoded]
    how = {"max_batch_size": MAX_BATCH_SENTENCES, "beam_size": 5, "max_decoding_length": int(limits.max())}
    return lambda: program.translate_batch(told, length_penalty=alpha, **how)


def measure(side: str, run: str, made: Path, texts: list[str], alpha: float) -> dict[str, list[float]]:
    """Sentences a second of three passes, after one that is not counted."""
    work: Callable[[], object]
    if side == PAIR[0]:
        work = partial(through(load(made, engine="ctranslate2"), alpha), texts)
    else:
        work = direct(load(run), made, texts, alpha)
    work()
    windows = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        windows.append(len(texts) / (time.perf_counter() - began))
    return {"windows": windows}


def in_turns(options: argparse.Namespace, folder: str) -> list[str]:
    """Each in a process of its own: of two programs in one process, the second is slower, whichever it is."""
    made = export(options.run, "ctranslate2", Path(folder) / "alone")
    words = [str(options.run), str(made), str(options.sources), str(options.alpha)]
    command = [sys.executable, "-m", "benchmarks.exports", "--measure"]
    engine, alone = both = [Side(name, [*command, name, *words]) for name in PAIR]
    for turn in range(options.rounds):
        for side in both if turn % 2 == 0 else reversed(both):
            side.run()
    times = spread(engine.windows).median / spread(alone.windows).median
    told = [f"- {side.name}: {spread(side.windows).median:,.1f} sentences/s" for side in both]
    return [*told, f"- ratio {times:.2f}, target {PART}: {'met' if times >= PART else 'MISSED'}", ""]


def bleu(answers: list[str], references: list[str]) -> float:
    import sacrebleu

    return sacrebleu.corpus_bleu(answers, [references], tokenize="none", force=True).score


def compared(found: list[Made], texts: list[str], references: list[str]) -> list[str]:
    answers = [side.translate(texts) for side in found]
    scores = [bleu(said, references) for said in answers]
    rows = ["| engine | the same | BLEU | difference | |", "|---|---|---|---|---|"]
    for side, said, score in zip(found, answers, scores, strict=True):
        same = 100 * sum(a == b for a, b in zip(said, answers[0], strict=True)) / len(said)
        apart = score - scores[0]
        met = abs(apart) <= WITHIN[side.quantize] and (side.quantize is not None or same >= SAME)
        verdict = "" if side is found[0] else "met" if met else "MISSED"
        rows.append(f"| {side.name} | {same:.1f} % | {score:.2f} | {apart:+.2f} | {verdict} |")
    return rows


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:  # a process of its own, started by `Side.run`
        side, run, made, sources, alpha = sys.argv[2:]
        retain_freed_memory()
        print(json.dumps(measure(side, run, Path(made), lines(Path(sources)), float(alpha))))
        return
    parser = argparse.ArgumentParser("python -m benchmarks.exports", description="Exported engines, in turns.")
    parser.add_argument("run", type=Path, help="a trained Transformer")
    parser.add_argument("--sources", type=Path, required=True, help="a file, one sentence a line, also .xz")
    parser.add_argument("--references", type=Path, required=True, help="their translations, tokenized")
    parser.add_argument("--alpha", type=float, default=1.0, help="the length penalty")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="a Markdown file, say benchmarks/results/exports.md")
    options = parser.parse_args()
    retain_freed_memory()
    texts, references = lines(options.sources), lines(options.references)
    facts = machine()
    text = ["# Exported engines", "", *(__doc__ or "").split("\n\n", 1)[1].rstrip().split("\n"), ""]
    names = ("date", "processor", "load when it began", "system", "torch")
    text += [*(f"- {name}: {facts[name]}" for name in names), f"- sentences: {len(texts):,}, beam 5", ""]
    with tempfile.TemporaryDirectory() as folder:
        text += in_turns(options, folder)
        text += compared(engines(options.run, Path(folder), options.alpha), texts, references)
    print("\n".join(text))
    if options.out:
        options.out.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
