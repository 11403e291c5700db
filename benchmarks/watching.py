"""The cost of `watch`: one layer of a Transformer of 6 layers, embed_dim 512, 8 heads, batch 16, 64 tokens.

    python -m benchmarks.watching            two quiet cores, by the clock
    python -m benchmarks.watching --busy     one thread, processor time

Forward passes without gradients alternate in one process: plain, watched, and with attention that does not look up its
watchers, which shows the cost of the lookup. A watched pass includes the beginning and the end of the watch.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.report import machine
from benchmarks.timing import Effort, interleaved, spread
from regard.attention import equation, multi_head
from regard.models import Transformer
from regard.viewing import watch

LAYERS, DIM, HEADS, BATCH, TOKENS, WORDS = 6, 512, 8, 16, 64, 1000
LOOKUP = "lookup of watchers"
MAX_RATIOS = {"one layer": 1.10, LOOKUP: 1.01}  # times a plain pass
HEAD = ("model", "what", "times a plain pass", "quartiles", "plain, ms", "target", "")


def ours() -> tuple[nn.Module, Callable[[], Tensor]]:
    model = Transformer(WORDS, WORDS, embed_dim=DIM, num_heads=HEADS, num_encoder_layers=LAYERS).eval()
    source, target = (torch.randint(4, WORDS, (BATCH, TOKENS)) for _ in range(2))
    lengths = torch.full((BATCH,), TOKENS)
    return model, lambda: model(source, lengths, target)


def theirs() -> tuple[nn.Module, Callable[[], Tensor]]:
    layer = nn.TransformerEncoderLayer(DIM, HEADS, batch_first=True)
    model, x = nn.TransformerEncoder(layer, LAYERS).eval(), torch.randn(BATCH, TOKENS, DIM)
    return model, lambda: model(x)


MODELS = {"regard Transformer, encoder and decoder": ours, "nn.TransformerEncoder, fast path": theirs}


class NoWatchers:
    """In place of the context variable of the watchers: always empty, without a lookup."""

    @staticmethod
    def get() -> tuple[()]:
        return ()


@contextmanager
def without_lookup() -> Iterator[None]:
    """Replace the lookup of watchers in `attend` and `MultiHead`."""
    modules = (equation, multi_head)
    originals = [module.WATCHERS for module in modules]
    for module in modules:
        module.WATCHERS = NoWatchers  # type: ignore[assignment]
    try:
        yield
    finally:
        for module, original in zip(modules, originals, strict=True):
            module.WATCHERS = original


def make_calls(model: nn.Module, call: Callable[[], Tensor]) -> dict[str, Callable[[], object]]:
    def watched() -> None:
        with watch(model, layers=LAYERS - 1):
            call()

    def unwatched() -> None:
        with without_lookup():
            call()

    return {"plain": call, "one layer": watched, "without lookup": unwatched}


def make_rows(effort: Effort) -> Iterator[list[str]]:
    for name, make in MODELS.items():
        model, call = make()
        calls = make_calls(model, call)
        with torch.no_grad():
            seconds = dict(zip(calls, interleaved(list(calls.values()), effort), strict=True))
        for what, max_ratio in MAX_RATIOS.items():
            above, below = ("plain", "without lookup") if what == LOOKUP else (what, "plain")
            ratio = spread([a / b for a, b in zip(seconds[above], seconds[below], strict=True)])
            yield [
                name,
                what,
                f"{ratio.median:.3f}",
                f"{ratio.low:.3f} to {ratio.high:.3f}",
                f"{1000 * spread(seconds['plain']).median:.1f}",
                f"at most {max_ratio:g}",
                "met" if ratio.median <= max_ratio else "MISSED",
            ]


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.watching", description="The cost of watch.")
    parser.add_argument("--busy", action="store_true", help="one thread, processor time instead of the clock")
    parser.add_argument("--seconds", type=float, default=15, help="for each model")
    parser.add_argument("--out", type=Path, help="a Markdown file, say benchmarks/results/watching.md")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="enable_nested_tensor")
    if options.busy:
        torch.set_num_threads(1)
    effort = Effort(rounds=3, least=0.0, budget=options.seconds, clock="processor" if options.busy else "wall")
    torch.manual_seed(0)
    facts = machine()
    facts["measured"] = "1 thread, processor time" if options.busy else "all threads, by the clock"
    table = [HEAD, ["---"] * len(HEAD), *make_rows(effort)]
    text = ["# Watching", "", *(f"- {name}: {value}" for name, value in facts.items()), ""]
    text += [f"| {' | '.join(row)} |" for row in table]
    print("\n".join(text))
    if options.out:
        options.out.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
