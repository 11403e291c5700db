"""All heads of all layers, small beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Shaped
from torch import Tensor

from regard.viewing import _check as check
from regard.viewing.terminal._panel import beside, weights_panel
from regard.viewing.terminal._screen import clean, columns_of, fitting, legend, spoken, wants_color

LAYER, HEAD = {"en": "layer {}", "zh": "第 {} 层"}, {"en": "head {}", "zh": "第 {} 头"}
NARROW, WIDE = 8, 24  # columns of a panel


def heads(
    weights: Shaped[Tensor, "layers heads queries keys"],
    *,
    layers: Sequence[object] | None = None,
    heads: Sequence[object] | None = None,
    color: bool | None = None,
    width: int | None = None,
    language: str = "en",
) -> str:
    """Draw every head of every layer on one scale, as many beside each other as the terminal is wide.

    `language` ("en" or "zh") is that of the titles and the legend.

    >>> print(heads(torch.eye(4).expand(1, 2, 4, 4), color=False, width=40))
    layer 0
    head 0           head 1
    ████             ████
    ...
    blank 0, ░ up to 0.25, █ up to 1
    """
    array = check.weights("heads", weights, "layers heads queries keys")
    depth, many = array.shape[:2]
    names = (
        check.labels("heads", "layer", layers, depth) or list(map(str, range(depth))),
        check.labels("heads", "head", heads, many) or list(map(str, range(many))),
    )
    color = wants_color() if color is None else color
    room, top = columns_of(width), check.top("heads", None, array)
    size = min(room, max(NARROW, min(WIDE, (room + 1) // many - 1)))
    a_line = max(1, (room + 1) // (size + 1))

    lines = []
    for layer in range(depth):
        lines.append(spoken(LAYER, language).format(names[0][layer]))
        for first in range(0, many, a_line):
            shown = range(first, min(many, first + a_line))
            panels = [weights_panel(array[layer, head], top, size, size // 2, color) for head in shown]
            titles = [clean(spoken(HEAD, language).format(names[1][head]), size) for head in shown]
            lines += beside(panels, titles)
    return "\n".join(fitting([*lines, legend(top, color, language)], room))
