"""Which architectures of transformers run with `attn_implementation="regard"`, and which can be watched.

    python -m benchmarks.huggingface                 all of them: about 20 minutes on one core
    python -m benchmarks.huggingface llama bloom     some of them

Of every architecture a small random model is built twice, with eager attention and with regard's, and the results are
compared: plain and padded batches, gradients, greedy generation with a cache, watched weights. See
tests/viewing/huggingface_check.py.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections import Counter

import torch

from regard.viewing import register_huggingface
from tests.viewing.huggingface_check import Comparison, check
from tests.viewing.huggingface_models import OVERRIDES, list_architectures, transformers

HEAD = ("architecture", "model", "logits", "padded", "gradient", "generate", "watched", "note")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="architectures; all of them by default")
    names = parser.parse_args().names or list_architectures()
    register_huggingface()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    missing, counts = [], Counter()
    print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|", flush=True)
    for name in names:
        try:
            result = check(name, OVERRIDES)
        except LookupError as error:
            missing.append(f"{name}: {' '.join(str(error).split())[:80]}")
            continue
        counts[classify(result)] += 1
        row = (result.name, result.model, result.logits, result.padded, result.gradient, result.generate)
        note = "" if "refused" in (result.logits, result.watched) else result.note
        print("| " + " | ".join((*row, result.watched, note)) + " |", flush=True)
    print(f"\ntransformers {transformers.__version__}, torch {torch.__version__}, {len(names)} architectures:\n")
    for what, count in (*counts.most_common(), ("not built", len(missing))):
        print(f"- {what}: {count}")
    print("\nNot built from a shrunk default config:\n\n" + "\n".join(f"- {line}" for line in missing))


def classify(result: Comparison) -> str:
    """The kind of a result."""
    if not result.is_right:
        return "wrong"
    if result.logits == "refused":
        return "refused in one sentence"
    if result.logits == "-":
        return "not comparable: " + result.note
    if result.watched == "refused":
        return "equal, attention code of its own: watch refuses"
    return "equal, without attention" if result.watched == "-" else "equal and watched"


if __name__ == "__main__":
    main()
