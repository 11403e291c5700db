"""Exported engines compared with their run: equal translations, quality and speed.

    python -m benchmarks.exports RUN --sources test.en --references test.de [--out benchmarks/results/exports.md]

RUN is a trained Transformer. It is exported to CTranslate2 and ONNX, in float32 and int8, and every engine translates
all sources through `Translator`. CTranslate2 is also called directly, in turns with `--engine ctranslate2`: its own
`translate_batch`, with tokens ready, as many sentences at once, the same beam and limit, a batch a thread. What the
engine adds is encoding, ranking and decoding. `regard bench translate` compares the speed of engines.
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
from benchmarks._side import BenchmarkProcess
from benchmarks.report import machine
from benchmarks.timing import spread
from regard.data.vocabulary import EOS_ID
from regard.export import export
from regard.export.ctranslate2 import MAX_BATCH_SENTENCES
from regard.tasks import Translator, load
from regard.training.weights import retain_freed_memory

ENGINES = (("ctranslate2", None), ("ctranslate2", "int8"), ("onnx", None), ("onnx", "int8"))
MIN_EQUAL, MAX_BLEU_DIFFERENCE = 99.5, {None: 0.1, "int8": 0.5}  # per cent of equal translations; BLEU
SIDES = ("`--engine ctranslate2`", "called directly")
MIN_RATIO = 0.9  # of the speed of direct calls
Translate = Callable[[list[str]], list[str]]


class Engine(NamedTuple):
    name: str
    quantize: str | None
    translate: Translate


def make_engines(run: Path, folder: Path, alpha: float) -> list[Engine]:
    engines = [Engine("torch", None, make_translate(load(run), alpha))]
    for to, quantize in ENGINES:
        exported = export(run, to, folder / f"{to}-{quantize}", quantize=quantize)
        name = f"{to}, {quantize or 'float32'}"
        engines.append(Engine(name, quantize, make_translate(load(exported, engine=to), alpha)))
    return engines


def make_translate(translator: Translator, alpha: float) -> Translate:
    options = translator.decoding_config(beam_size=5, length_penalty=alpha)
    return lambda texts: [translator.to_text(one[0]) for one in translator.search(texts, options)]


def make_direct_call(translator: Translator, folder: Path, texts: list[str], alpha: float) -> Callable[[], object]:
    """CTranslate2's own call, with all inputs prepared before."""
    import ctranslate2

    threads = {"inter_threads": torch.get_num_threads(), "intra_threads": 1}
    program: Any = ctranslate2.Translator(str(folder), **threads)
    vocabulary = translator.source.vocabulary.tokens
    encoded = [[*translator.source.encode(translator.clean(text)), EOS_ID] for text in texts]
    limits = translator.decoding_config(beam_size=5).max_lengths(torch.tensor([len(one) for one in encoded]))
    tokens = [[vocabulary[index] for index in one] for one in encoded]
    options = {"max_batch_size": MAX_BATCH_SENTENCES, "beam_size": 5, "max_decoding_length": int(limits.max())}
    return lambda: program.translate_batch(tokens, length_penalty=alpha, **options)


def measure(side: str, run: str, exported: Path, texts: list[str], alpha: float) -> dict[str, list[float]]:
    """Sentences a second of three passes, after one that is not counted."""
    work: Callable[[], object]
    if side == SIDES[0]:
        work = partial(make_translate(load(exported, engine="ctranslate2"), alpha), texts)
    else:
        work = make_direct_call(load(run), exported, texts, alpha)
    work()
    windows = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        windows.append(len(texts) / (time.perf_counter() - start))
    return {"windows": windows}


def compare_speed(options: argparse.Namespace, folder: str) -> list[str]:
    """Each in a process of its own: of two programs in one process, the second is slower, whichever it is."""
    exported = export(options.run, "ctranslate2", Path(folder) / "alone")
    words = [str(options.run), str(exported), str(options.sources), str(options.alpha)]
    command = [sys.executable, "-m", "benchmarks.exports", "--measure"]
    engine, alone = both = [BenchmarkProcess(name, [*command, name, *words]) for name in SIDES]
    for turn in range(options.rounds):
        for side in both if turn % 2 == 0 else reversed(both):
            side.run()
    times = spread(engine.windows).median / spread(alone.windows).median
    speeds = [f"- {side.name}: {spread(side.windows).median:,.1f} sentences/s" for side in both]
    return [*speeds, f"- ratio {times:.2f}, target {MIN_RATIO}: {'met' if times >= MIN_RATIO else 'MISSED'}", ""]


def bleu(answers: list[str], references: list[str]) -> float:
    import sacrebleu

    return sacrebleu.corpus_bleu(answers, [references], tokenize="none", force=True).score


def compare(engines: list[Engine], texts: list[str], references: list[str]) -> list[str]:
    answers = [engine.translate(texts) for engine in engines]
    scores = [bleu(answer, references) for answer in answers]
    rows = ["| engine | the same | BLEU | difference | |", "|---|---|---|---|---|"]
    for engine, answer, score in zip(engines, answers, scores, strict=True):
        same = 100 * sum(a == b for a, b in zip(answer, answers[0], strict=True)) / len(answer)
        difference = score - scores[0]
        met = abs(difference) <= MAX_BLEU_DIFFERENCE[engine.quantize] and (
            engine.quantize is not None or same >= MIN_EQUAL
        )
        verdict = "" if engine is engines[0] else "met" if met else "MISSED"
        rows.append(f"| {engine.name} | {same:.1f} % | {score:.2f} | {difference:+.2f} | {verdict} |")
    return rows


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:  # a process of its own, started by `BenchmarkProcess.run`
        side, run, exported, sources, alpha = sys.argv[2:]
        retain_freed_memory()
        print(json.dumps(measure(side, run, Path(exported), lines(Path(sources)), float(alpha))))
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
        text += compare_speed(options, folder)
        text += compare(make_engines(options.run, Path(folder), options.alpha), texts, references)
    print("\n".join(text))
    if options.out:
        _, heading, others = options.out.read_text().partition("\n## ") if options.out.exists() else ("", "", "")
        options.out.write_text("\n".join(text) + "\n" + heading + others)  # keeps the sections of other benchmarks


if __name__ == "__main__":
    main()
