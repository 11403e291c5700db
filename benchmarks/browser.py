"""How fast the page with all heads of 512 tokens opens and answers a pointer, in a real browser.

    python -m benchmarks.browser [--tokens 512] [--times 5]

Weights of 8 layers x 8 heads, as a model has them and, harder to pack, as chance has them. Needs Chromium and
Playwright: `make browser`.
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

from regard._extras import need
from regard.viewing.players import heads
from tests.browser.timing import answered, looks, opened


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("no Chromium here; `make browser` installs it from Debian's packages")
    torch.manual_seed(0)
    chance = torch.randn(8, 8, given.tokens, given.tokens).softmax(-1)
    with need("playwright.sync_api", extra="dev").sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, weights in (("a model's weights", looks(given.tokens)), ("weights by chance", chance)):
            report(browser, name, weights, given.times)
        browser.close()


def report(browser: object, name: str, weights: Tensor, times: int) -> None:
    """Make the page, open it several times, move over it, and print."""
    tokens = [f"token{i}" for i in range(weights.shape[-1])]
    with tempfile.TemporaryDirectory() as folder:
        began, file = time.perf_counter(), Path(folder, "heads.html")
        heads(weights, tokens).save(file)
        made, size = time.perf_counter() - began, file.stat().st_size / 1e6
        opening, hovering = [], []
        for _ in range(times):
            page = browser.new_page(viewport={"width": 1280, "height": 800})  # type: ignore[attr-defined]
            opening.append(opened(page, file.as_uri()))
            hovering += answered(page)
            page.close()
    print(f"{name}, {' x '.join(map(str, weights.shape))}: made in {made:.1f} s, {size:.1f} MB")
    print(f"  opens in {median(opening):.0f} ms (worst {max(opening):.0f})")
    print(f"  answers a pointer in {median(hovering):.0f} ms (worst {max(hovering):.0f})")


if __name__ == "__main__":
    main()
