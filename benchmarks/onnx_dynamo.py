"""`torch.onnx.export(dynamo=True)` compared with the ONNX graphs that regard builds node by node.

    python -m benchmarks.onnx_dynamo                  # export time, file size, error and speed of three models
    python -m benchmarks.onnx_dynamo --architectures  # logits and translations of all architectures of tests/export

The modules of benchmarks/_onnx_modules.py have the same inputs and outputs, so that `OnnxEngine` drives both. They need
`pip install onnxscript` and PyTorch 2.8 or later for `torch.onnx.ops`: ONNX's own GRU and LSTM know the lengths of the
rows, while `pack_padded_sequence` cannot be exported. Timings are interleaved in one process, in one thread.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import torch

from benchmarks._onnx_modules import write_model
from benchmarks.timing import Effort, interleaved
from regard.data.tokenizer import Tokenizer
from regard.export import onnx as hand_built
from regard.tasks import Translator, make_config
from regard.tasks.translation.task import TranslationProcessor, build_model

VOCAB_SIZE, NUM_SENTENCES = 4000, 32
MODELS = {
    "transformer": ["model=transformer", "embed_dim=128", "num_heads=4", "num_layers=4", "ffn_dim=256", "dropout=0"],
    "gru": ["embed_dim=128", "hidden_dim=256"],
    "lstm": [
        *("embed_dim=128", "hidden_dim=256", "cell_type=lstm", "num_layers=2"),
        *("decoder_type=luong", "input_feeding=on", "score=bilinear"),
    ],
}


def make_translator(name: str) -> Translator:
    """A translator with random weights."""
    torch.manual_seed(0)
    config = make_config("reverse", ["max_length=40", *MODELS[name]])
    tokenizer = Tokenizer.train(["abcdefgh"], model_type="char", vocab_size=50)
    model = build_model(config, VOCAB_SIZE, VOCAB_SIZE).eval()
    return Translator(model, TranslationProcessor(tokenizer, tokenizer), config)


@torch.no_grad()
def compare(name: str, quantize: str | None) -> str:
    """One row of the table: the hand-built graphs / those of torch.onnx.export."""
    translator, generator = make_translator(name), torch.Generator().manual_seed(1)
    options = translator.decoding_config(beam_size=5, max_length=30, min_length=20)
    lengths = torch.randint(8, 30, (NUM_SENTENCES,), generator=generator).tolist()
    sources = [[*torch.randint(4, VOCAB_SIZE, (length,), generator=generator).tolist(), 3] for length in lengths]
    source, length = torch.tensor(sources[:1]), torch.tensor([len(sources[0])])
    expected = translator.torch_model.start_decoding(source, length).step(torch.tensor([2]))
    seconds, sizes, errors, engines = [], [], [], []
    for write in (hand_built.write_model, write_model):
        with tempfile.TemporaryDirectory() as folder:
            start = time.process_time()
            write(translator, Path(folder), quantize)
            seconds.append(time.process_time() - start)
            sizes.append(sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e6)
            engines.append(hand_built.OnnxEngine(Path(folder), 40))
        logits = engines[-1].start_decoding(source, length).step(torch.tensor([2]))
        errors.append(float((logits - expected).abs().max() / expected.abs().max()))
    ratios = []
    for batch in (sources, sources[:1]):
        runs = [partial(engine.search, batch, options) for engine in engines]
        ours, theirs = interleaved(runs, Effort(rounds=7, least=0.01, budget=1.0))
        ratios.append(statistics.median(other / own for own, other in zip(ours, theirs, strict=True)))
    pairs = [f"{ours:.2f} / {theirs:.2f}" for ours, theirs in (seconds, sizes)]
    pairs.append(f"{errors[0]:.0e} / {errors[1]:.0e}")
    return f"| {name} | {quantize or 'float32'} | {' | '.join(pairs)} | {ratios[0]:.2f} | {ratios[1]:.2f} |"


def compare_architectures() -> None:
    """The largest difference of logits over five steps, and whether translations are equal."""
    from tests.export.fixtures_translators import ARCHITECTURES, TEXTS, translator

    source, lengths = torch.tensor([[4, 5, 6, 7, 3], [6, 3, 0, 0, 0], [5, 4, 3, 0, 0]]), torch.tensor([5, 2, 3])
    print("| architecture | largest difference of logits | equal translations |\n|---|---|---|")
    for name in ARCHITECTURES:
        original = translator(name)
        with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
            write_model(original, Path(folder), None)
            engine = hand_built.OnnxEngine(Path(folder), original.max_length)
            states = [model.start_decoding(source, lengths) for model in (original.torch_model, engine)]
            differences = []
            for tokens, rows in (
                ([2] * 3, [0, 1, 2]),
                ([4, 5, 6], [0, 1, 2]),
                ([7, 8, 4, 4], [0, 1, 2, 1]),
                ([5], [3]),
            ):
                for state in states:
                    state.reorder(torch.tensor(rows))
                expected, actual = (state.step(torch.tensor(tokens)) for state in states)
                differences.append(float((actual - expected).abs().max()))
        is_equal = original.with_model(engine).translate(TEXTS) == original.translate(TEXTS)
        print(f"| {name} | {max(differences):.0e} | {'yes' if is_equal else 'NO'} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.onnx_dynamo", description="Two ways to write ONNX graphs.")
    parser.add_argument("--architectures", action="store_true", help="compare results of all architectures")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    if options.architectures:
        compare_architectures()
        return
    write_model(make_translator("gru"), Path(tempfile.mkdtemp()), None)  # imports and registries, not counted below
    print("| model | weights | export, CPU s | MB | error of logits | time, 32 sentences | time, 1 sentence |")
    print("|---|---|---|---|---|---|---|")
    for name in options.models:
        for quantize in (None, "int8"):
            print(compare(name, quantize), flush=True)


if __name__ == "__main__":
    main()
