"""Translation speed compared with other programs: same weights and sources, one process at a time, alternating.

    python -m benchmarks.decoding RUN --joey JOEY/bin/python --sources test.en --references test.de

RUN is a trained Transformer (norm_first=off, tie_embeddings=all), or a recurrent network such as JoeyNMT has:

    regard train multi30k-tok data_dir=DATA/multi30k model=rnn decoder_type=luong input_feeding=on score=additive \\
        hidden_dim=256 encoder_hidden_dim=256 num_layers=1 num_heads=1 ffn_dim=none tie_embeddings=none --out RUN

CTranslate2, Hugging Face's Marian (Transformers only) and JoeyNMT, which needs its own environment (see throughput.py),
get its weights, so that BLEU shows whether they do the same work. Every side is measured with each ``--batch``, and
compared at its best one. Ours takes batches of as many tokens as that many sentences have on average, as `Translator`
does, and CTranslate2 is also measured with one batch per thread. ``--busy`` is for a machine with other load: one
thread, processor time instead of the wall clock.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._names import fill, marian
from benchmarks._segmented import lines
from benchmarks._side import ROOT, BenchmarkProcess
from benchmarks.report import machine
from benchmarks.timing import CLOCKS, spread

now = CLOCKS[os.environ.get("BENCHMARK_CLOCK", "wall")]
TARGETS = {"JoeyNMT": 10.0, "Marian": 3.0, "CTranslate2": 0.8}  # times as many sentences a second
HEAD = ("side", "batch", "sentences/s", "quartiles", "ours / this", "BLEU", "other load")
IDS = list[list[int]]
Translate = Callable[[list[IDS]], list[IDS]]


# ---- each side: from batches of sources to their translations


def regard_side(run: str, facts: dict[str, Any]) -> Translate:
    """What `Translator.search` does with its batches."""
    import regard
    from regard.data.tokenizer import pad_rows
    from regard.decoding import decode
    from regard.tasks.translation.inference import map_in_threads
    from regard.training.weights import retain_freed_memory

    retain_freed_memory()
    model: Any = regard.load(run).model
    options = make_options(facts)

    def translate(sources: IDS) -> IDS:
        hypotheses = decode(model.eval(), *pad_rows(sources), options)
        return [best[0].token_ids if best else [] for best in hypotheses]

    return lambda batches: map_in_threads(translate, batches)


def make_options(facts: dict[str, Any]) -> Any:
    from regard.decoding import DecodingConfig

    return DecodingConfig(beam_size=facts["beam"], length_penalty=1.0, max_length=facts["longest"])


def ctranslate2_side(run: str, facts: dict[str, Any], batch_per_thread: bool = False) -> Translate:
    """`translate_batch` of an exported model: all threads for one batch, or one batch per thread."""
    import ctranslate2
    import torch

    from regard.export import export
    from regard.tasks import load

    translator, threads = load(run), torch.get_num_threads()
    tokens = translator.source.vocabulary.tokens
    numbers = {token: number for number, token in enumerate(translator.target.vocabulary.tokens)}
    sizes = {"inter_threads": threads, "intra_threads": 1} if batch_per_thread else {"intra_threads": threads}
    with tempfile.TemporaryDirectory() as folder:
        program = ctranslate2.Translator(str(export(run, "ctranslate2", Path(folder) / "model")), **sizes)

    def translate(batches: list[IDS]) -> list[IDS]:
        words = [[tokens[number] for number in one] for batch in batches for one in batch]
        options = {"beam_size": facts["beam"], "max_decoding_length": facts["longest"], "length_penalty": 1.0}
        results = iter(program.translate_batch(words, max_batch_size=len(batches[0]), **options))
        return [[[numbers[word] for word in next(results).hypotheses[0]] for _ in batch] for batch in batches]

    return translate


def marian_side(run: str, facts: dict[str, Any]) -> Translate:
    import torch
    from transformers import MarianConfig, MarianMTModel

    import regard
    from regard.data.tokenizer import pad_rows

    ours: Any = regard.load(run).model
    first, dim = ours.encoder.layers[0], ours.lm_head.weight.shape[1]
    sizes = {
        "layers": facts["layers"],
        "attention_heads": first.self_attn.num_heads,
        "ffn_dim": first.feed_forward.linear1.out_features,
    }
    config = MarianConfig(
        vocab_size=facts["words"],
        d_model=dim,
        **{f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in sizes.items()},
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=0,
        eos_token_id=3,
        forced_eos_token_id=None,
        decoder_start_token_id=2,
        max_position_embeddings=512,
    )
    model = MarianMTModel(config).eval()
    fill(model, ours.state_dict(), marian(facts["layers"]))
    for stack in (model.model.encoder, model.model.decoder):
        stack.embed_positions.weight.data = ours.src_embed.positions.encoding(512)
    model.tie_weights()

    def translate(sources: IDS) -> IDS:
        source, lengths = pad_rows(sources)
        mask = (torch.arange(source.shape[1]) < lengths[:, None]).long()
        how = {"num_beams": facts["beam"], "length_penalty": 1.0, "early_stopping": True, "do_sample": False}
        with torch.inference_mode():
            output = model.generate(source, attention_mask=mask, max_new_tokens=facts["longest"], **how)
        return [[number for number in one if number > 3 or number == 1] for one in output.tolist()]

    return lambda batches: [translate(batch) for batch in batches]


SIDES: dict[str, Callable[[str, dict[str, Any]], Translate]] = {
    "regard": regard_side,
    "CTranslate2": ctranslate2_side,
    "CTranslate2, a batch per thread": partial(ctranslate2_side, batch_per_thread=True),
    "Marian": marian_side,
}


def measure(side: str, run: str, folder: Path, batch: int, passes: int) -> dict[str, Any]:
    """Sentences per second of each pass over all sources, in batches of similar length, and the translations."""
    facts = json.loads((folder / "facts.json").read_text())
    sources, translate = facts["sources"], SIDES[side](run, facts)
    translate([sources[:2]])
    batches = make_batches(side, [len(source) for source in sources], batch)
    answers: IDS = [[] for _ in sources]
    windows = []
    for _ in range(passes):
        start = now()
        results = translate([[sources[row] for row in rows] for rows in batches])
        windows.append(len(sources) / (now() - start))
        for rows, translations in zip(batches, results, strict=True):
            for row, one in zip(rows, translations, strict=True):
                answers[row] = one
    return {"windows": windows, "ids": answers}


def make_batches(side: str, lengths: list[int], batch: int) -> list[list[int]]:
    """The rows of each batch: equally many rows, or for our side equally many tokens."""
    if side == "regard":
        import torch

        from regard.tasks.translation.scorer import group_by_length

        tokens = batch * sum(lengths) // len(lengths)
        return list(group_by_length(range(len(lengths)), lengths, tokens, torch.get_num_threads()))
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    return [order[start : start + batch] for start in range(0, len(order), batch)]


# ---- alternating


def prepare(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Write the inputs of all sides to a folder."""
    import torch

    from regard.tasks import load

    translator = load(options.run)
    texts = lines(options.sources)[: options.limit]
    model: Any = translator.model
    options.model = "transformer" if translator.config.model == "transformer" else "gru"
    facts = {
        "sources": [[*translator.source.encode(translator.clean(text)), 3] for text in texts],
        "words": len(translator.source),
        "layers": len(model.encoder.layers) if options.model == "transformer" else 1,
        "beam": options.beam,
        "longest": options.longest,
    }
    (folder / "facts.json").write_text(json.dumps(facts))
    torch.save(dict(model.state_dict()), folder / "weights.pt")
    return facts


def make_sides(options: argparse.Namespace, folder: Path) -> Iterator[tuple[int, BenchmarkProcess]]:
    run = str(options.run)
    names = SIDES if options.model == "transformer" else ("regard",)
    for batch in options.batch:
        for name in names:
            words = ["--measure", name, run, str(folder), str(batch), str(options.passes)]
            yield batch, BenchmarkProcess(name, [sys.executable, "-m", "benchmarks.decoding", *words])
        if options.joey is not None:
            script = [str(options.joey), str(ROOT / "benchmarks" / "_joey_decoding.py"), options.model, str(folder)]
            how = {"batch": batch, "beam": options.beam, "passes": options.passes, "longest": options.longest}
            words = [word for name, value in how.items() for word in (f"--{name}", str(value))]
            yield batch, BenchmarkProcess("JoeyNMT", [*script, *words])


def bleu(options: argparse.Namespace, translations: IDS) -> str:
    """BLEU of the tokens; the references are tokenized."""
    import sacrebleu

    from regard.tasks import load

    if options.references is None:
        return ""
    target = load(options.run).target
    texts = [target.decode(one) for one in translations]
    references = lines(options.references)[: len(texts)]
    return f"{sacrebleu.corpus_bleu(texts, [references], tokenize='none', force=True).score:.2f}"


def report(sides: list[tuple[int, BenchmarkProcess]], facts: dict[str, str], options: argparse.Namespace) -> list[str]:
    best: dict[str, float] = {}
    for _, side in sides:  # a side with several variants counts by its best
        name = side.name.partition(",")[0]
        best[name] = max(best.get(name, 0.0), rate(side))
    text = [f"# Translating, {options.model}", "", *(f"- {name}: {value}" for name, value in facts.items())]
    for name, value in best.items():
        if name in TARGETS:
            times, target = best["regard"] / value, TARGETS[name]
            verdict = "met" if times >= target else "MISSED"
            text.append(
                f"- against {name}, each with its best batch size: {times:.2f} times, target {target:g}: {verdict}"
            )
    rows = [HEAD, ["---"] * len(HEAD)]
    for batch, side in sides:
        middle, low, high = spread(side.windows)
        times = "" if side.name == "regard" else f"{best['regard'] / middle:.2f} times"
        load = f"{sum(side.others) / len(side.others):.0%}"
        quality = bleu(options, side.facts["ids"])
        rows.append((side.name, str(batch), f"{middle:,.1f}", f"{low:,.1f} to {high:,.1f}", times, quality, load))
    return [*text, "", *(f"| {' | '.join(row)} |" for row in rows)]


def rate(side: BenchmarkProcess) -> float:
    return spread(side.windows).median


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:  # a child process, started by `BenchmarkProcess.run`
        side, run, folder, batch, passes = sys.argv[2:]
        print(json.dumps(measure(side, run, Path(folder), int(batch), int(passes))))
        return
    parser = argparse.ArgumentParser(
        "python -m benchmarks.decoding", description="Translation speed of several programs."
    )
    parser.add_argument("run", type=Path, help="a trained translator")
    parser.add_argument("--joey", type=Path, help="the Python of an environment with JoeyNMT 2.3")
    parser.add_argument("--sources", type=Path, required=True, help="a file, one sentence a line, also .xz")
    parser.add_argument("--references", type=Path, help="their translations, tokenized")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--limit", type=int, default=1000, help="maximum number of sentences")
    parser.add_argument("--longest", type=int, default=60, help="maximum number of tokens of a translation")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=1, help="passes over all sentences per round")
    parser.add_argument("--busy", action="store_true", help="one thread, processor time instead of the wall clock")
    parser.add_argument("--out", type=Path, help="a Markdown file, such as benchmarks/results/decoding.md")
    options = parser.parse_args()
    if options.busy:
        os.environ.update(OMP_NUM_THREADS="1", BENCHMARK_CLOCK="processor")  # for the processes started here
    facts = machine()
    facts = {name: facts[name] for name in ("date", "processor", "load when it began", "system", "torch")}
    facts["cores"] = f"{os.cpu_count()}; " + ("1 thread, processor time" if options.busy else "all threads, wall clock")
    with tempfile.TemporaryDirectory() as folder:
        facts["sentences"] = f"{len(prepare(options, Path(folder))['sources']):,}, beam {options.beam}"
        all_sides = list(make_sides(options, Path(folder)))
        for turn in range(options.rounds):
            for batch, side in all_sides if turn % 2 == 0 else reversed(all_sides):
                side.run()
                print(f"round {turn + 1}: {side.name}, batch {batch}: {rate(side):,.1f} sentences/s", file=sys.stderr)
        text = report(all_sides, facts, options)
    print("\n".join(text))
    if options.out:
        options.out.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
