"""Times until a page opens and until it responds to the pointer, measured inside the browser."""

import torch
from torch import Tensor

from regard.attention import Alibi, MultiHead, ScaledDot, causal

FIRST_PAINT = "performance.getEntriesByName('regard-shown')[0].startTime"
HOVER = """([x, y]) => new Promise((done) => {
  const box = document.querySelector('.heat-box');
  const bounds = box.getBoundingClientRect();
  const start = performance.now();
  // Two frames later, what was painted in the first one is on the screen.
  const observer = new MutationObserver(() => {
    observer.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
  });
  observer.observe(document.querySelector('.heat-status'), { childList: true, characterData: true, subtree: true });
  const position = { clientX: bounds.left + x, clientY: bounds.top + y, bubbles: true };
  box.dispatchEvent(new PointerEvent('pointermove', position));
})"""


@torch.no_grad()
def model_weights(num_tokens: int, num_layers: int = 8, num_heads: int = 8) -> Tensor:
    """Weights like those of a model: narrow and wide heads, every second layer causal."""
    x, weights = torch.randn(num_tokens, 64), []
    for layer in range(num_layers):
        attention = MultiHead(64, num_heads, score=1.0 * ScaledDot() + Alibi(num_heads))
        attention.q_proj.weight.mul_(2)
        output = attention(x, mask=causal() if layer % 2 else None)
        weights.append(output.weights)
        x = torch.nn.functional.layer_norm(x + output.context, (64,))
    return torch.stack(weights)


def measure_opening(page, address: str) -> float:
    """Milliseconds from the request of a page until its first head is drawn."""
    page.goto(address)
    page.wait_for_selector("html[data-shown]", state="attached")
    return float(page.evaluate(FIRST_PAINT))


def measure_responses(page, times: int = 20) -> list[float]:
    """Milliseconds from each move of the pointer until the response is on the screen."""
    return [page.evaluate(HOVER, [200 + 13 * i, 150 + 17 * i]) for i in range(times)]
