"""How long a page takes to open, and to answer a pointer: measured inside the browser, by its own clock."""

import torch
from torch import Tensor

from regard.attention import Alibi, MultiHead, ScaledDot, causal

OPENED = "performance.getEntriesByName('regard-shown')[0].startTime"
HOVER = """([x, y]) => new Promise((done) => {
  const box = document.querySelector('.heat-box');
  const place = box.getBoundingClientRect();
  const began = performance.now();
  // Two frames on, what was painted in the first one is on the screen.
  const watching = new MutationObserver(() => {
    watching.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
  });
  watching.observe(document.querySelector('.heat-status'), { childList: true, characterData: true, subtree: true });
  const at = { clientX: place.left + x, clientY: place.top + y, bubbles: true };
  box.dispatchEvent(new PointerEvent('pointermove', at));
})"""


@torch.no_grad()
def looks(tokens: int, layers: int = 8, heads: int = 8) -> Tensor:
    """Weights as a model has them: narrow and wide heads, some that see the past only."""
    x, found = torch.randn(tokens, 64), []
    for layer in range(layers):
        attention = MultiHead(64, heads, score=1.0 * ScaledDot() + Alibi(heads))
        attention.q_proj.weight.mul_(2)
        seen = attention(x, mask=causal() if layer % 2 else None)
        found.append(seen.weights)
        x = torch.nn.functional.layer_norm(x + seen.context, (64,))
    return torch.stack(found)


def opened(page, address: str) -> float:
    """Milliseconds from asking for the page until the first head is drawn."""
    page.goto(address)
    page.wait_for_selector("html[data-shown]", state="attached")
    return float(page.evaluate(OPENED))


def answered(page, times: int = 20) -> list[float]:
    """Milliseconds from each move of the pointer until its answer is on the screen."""
    return [page.evaluate(HOVER, [200 + 13 * i, 150 + 17 * i]) for i in range(times)]
