"""Beam search on a Marian model of Hugging Face: regard against `generate` of transformers.

The model has the sizes of OPUS-MT's (6 + 6 layers, 512 dimensions, 58,101 tokens) and random weights, scaled so that
targets end by themselves; both programs get the same token ids, and their translations are compared.

    python -m benchmarks.pretrained_translation

prints a table. Options: --batch 32 --threads 2 --runs 3.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

import torch
import transformers

import regard
from regard.decoding import DecodingConfig, decode

VOCAB, MAX_LENGTH = 58_101, 24
SIZES = {"encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8, "decoder_attention_heads": 8}
SIZES |= {"d_model": 512, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}


def make_checkpoint(folder: Path) -> transformers.MarianMTModel:
    """A random Marian model whose translations differ and end after 5 to 40 tokens."""
    torch.manual_seed(0)
    pad, eos = VOCAB - 1, 0
    config = transformers.MarianConfig(
        vocab_size=VOCAB, decoder_vocab_size=VOCAB, pad_token_id=pad, eos_token_id=eos, decoder_start_token_id=pad,
        forced_eos_token_id=None, activation_function="swish", scale_embedding=True, max_position_embeddings=512,
        **SIZES,
    )  # fmt: skip
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embed_positions" not in name:
                parameter.normal_(std=0.06 if "shared" in name else 0.05)
        model.final_logits_bias[0, eos] = 5.0
    model.save_pretrained(folder)
    return model


def measure(function, runs: int) -> tuple[float, object]:
    """The median time of a call and its result; with one thread the time of the processor, which other programs do
    not change."""
    clock, times = time.process_time if torch.get_num_threads() == 1 else time.perf_counter, []
    for _ in range(runs):
        start = clock()
        result = function()
        times.append(clock() - start)
    return median(times), result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        theirs = make_checkpoint(Path(folder))
        ours = regard.from_pretrained(folder)
    print("| batch | beams | tokens out | generate, s | regard, s | ratio | equal |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for batch in options.batch:
        generator = torch.Generator().manual_seed(1)
        lengths = torch.randint(8, 31, (batch,), generator=generator)
        source = torch.randint(2, VOCAB - 1, (batch, int(lengths.max())), generator=generator)
        mask = torch.arange(source.shape[1]) < lengths[:, None]
        source = source.masked_fill(~mask, VOCAB - 1)
        for beams in options.beams:
            search = DecodingConfig(
                method="beam" if beams > 1 else "greedy", beam_size=beams, length_penalty_type="power",
                max_length=MAX_LENGTH - 1, max_length_ratio=1000.0,
            )  # fmt: skip
            arguments = {"num_beams": beams, "early_stopping": beams > 1, "max_length": MAX_LENGTH, "do_sample": False}
            arguments |= {"bad_words_ids": [[VOCAB - 1]]}
            generate = partial(theirs.generate, source, attention_mask=mask.long(), **arguments)
            slow, expected = measure(generate, options.runs)
            run = partial(decode, ours, source, lengths, search, bos=VOCAB - 1, eos=0, pad=VOCAB - 1)
            fast, answers = measure(run, options.runs)
            rows = [[token for token in row[1:] if token not in (0, VOCAB - 1)] for row in expected.tolist()]
            results = [best.token_ids for best, *_ in answers]
            equal, count = sum(a == b for a, b in zip(rows, results, strict=True)), sum(map(len, results))
            print(f"| {batch} | {beams} | {count} | {slow:.2f} | {fast:.2f} | {slow / fast:.1f} | {equal}/{batch} |")


if __name__ == "__main__":
    main()
