"""Opening and response time of all heads of 512 tokens in a browser: as one file, and in the explorer.

    python -m benchmarks.browser [--tokens 512] [--times 5]

Weights of 8 layers x 8 heads, of a model and random ones, which are harder to compress; then a served Transformer of
8 layers x 8 heads and embed_dim 64 with a sentence of that length. Requires Chromium and Playwright: `make browser`.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from regard._imports import require_extra
from regard.decoding import Hypothesis
from regard.serving import build_app
from regard.viewing.pages import head_grid
from tests.browser.timing import measure_opening, measure_responses, model_weights
from tests.serving.servers import in_thread, tiny_translator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("no Chromium here; `make browser` installs it from Debian's packages")
    torch.manual_seed(0)
    random = torch.randn(8, 8, options.tokens, options.tokens).softmax(-1)
    with require_extra("playwright.sync_api", extra="dev").sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, weights in (("a model's weights", model_weights(options.tokens)), ("random weights", random)):
            report(browser, name, weights, options.times)
        explore(browser, options.tokens, options.times)
        browser.close()


def report(browser: object, name: str, weights: Tensor, times: int) -> None:
    """Build the page, open it several times, move the pointer over it, and print the times."""
    tokens = [f"token{i}" for i in range(weights.shape[-1])]
    with tempfile.TemporaryDirectory() as folder:
        start, file = time.perf_counter(), Path(folder, "heads.html")
        head_grid(weights, tokens).save(file)
        seconds, size = time.perf_counter() - start, file.stat().st_size / 1e6
        opening, hovering = [], []
        for _ in range(times):
            page = browser.new_page(viewport={"width": 1280, "height": 800})  # type: ignore[attr-defined]
            opening.append(measure_opening(page, file.as_uri()))
            hovering += measure_responses(page)
            page.close()
    print(f"{name}, {' x '.join(map(str, weights.shape))}: built in {seconds:.1f} s, {size:.1f} MB")
    print(f"  opens in {median(opening):.0f} ms (worst {max(opening):.0f})")
    print(f"  responds to the pointer in {median(hovering):.0f} ms (worst {max(hovering):.0f})")


def explore(browser: object, tokens: int, times: int) -> None:
    """Open a sentence in the explorer, until its matrix and measures are drawn, and move the pointer over it."""
    translator = tiny_translator(max_length=tokens, num_layers=8, num_heads=8, embed_dim=64, ffn_dim=128)
    text = ("hello world " * tokens)[: tokens - 1]
    token_ids = translator.target.encode(text[::-1])[: tokens - 1]  # an untrained model would not end
    hypothesis, make = Hypothesis(token_ids, -1.0, -1.0, [-0.1] * tokens), translator.make_predictions
    translator.predict = lambda inputs, options: make(inputs, [[hypothesis]], options)
    opening, hovering = [], []
    with in_thread(build_app(translator)) as address:
        for _ in range(times + 1):
            page = browser.new_page(viewport={"width": 1280, "height": 800})  # type: ignore[attr-defined]
            start = time.perf_counter()
            page.goto(f"{address}/#predict?text={text}")
            page.wait_for_selector(".measures dd")
            page.wait_for_selector(".heat-ramp")
            opening.append(1000 * (time.perf_counter() - start))
            hovering += measure_responses(page)
            page.close()
    print(f"the explorer, 8 x 8 x {tokens} x {tokens}")
    print(f"  opens in {median(opening[1:]):.0f} ms (worst {max(opening[1:]):.0f}; the first time {opening[0]:.0f})")
    print(f"  responds to the pointer in {median(hovering):.0f} ms (worst {max(hovering):.0f})")


if __name__ == "__main__":
    main()
