"""Pages in one file: the modules, styles and data that a page needs, and nothing from the network.

The modules beside this file are plain JavaScript, which a server can hand out as they are. For a page in one
file they are joined: imports and exports are taken out, so no two modules may use the same name at their top.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

FOLDER = Path(__file__).parent
FULL = 65535  # the number that stands for a weight of 1
IMPORT = re.compile(r"^import \{[^}]*\} from '\./([\w-]+\.js)';\n", re.MULTILINE)
# What a page may do: run its own script, use its own styles, show pictures it made itself. No connection at all.
POLICY = (
    "default-src 'none'; script-src {scripts}; style-src {styles}; img-src data: blob:;"
    " base-uri 'none'; form-action 'none'"
)
PACKING = 2  # of 9: weights hardly get smaller beyond, but take five times as long
PACKED = "application/octet-stream;base64"


def page(
    title: str,
    modules: Iterable[str],
    data: Any = None,
    *,
    blocks: Mapping[str, bytes] | None = None,
    styles: Iterable[str] = ("base.css",),
    language: str | None = None,
) -> str:
    """A whole HTML page: `modules` with all they import, and what they find under `dataOf()` and `block(id)`.

    Every text, from wherever it comes, is data: it cannot end its element, and the page's own policy lets
    the browser run the page's script and no other.

    >>> made = page("</title><b>", ["say.js"], {"text": "</script><b>"})
    >>> made.count("<b>"), "\\\\u003c/script" in made
    (0, True)
    """
    script, style = joined(tuple(modules)), "\n".join(asset(name) for name in styles)
    policy = POLICY.format(scripts=_hash(script), styles=_hash(style))
    whole = "\n".join(
        [
            "<!doctype html>",
            f'<html lang="{"zh-Hans" if language == "zh" else "en"}">',
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title>",
            f"<style>{style}</style>",
            '<main id="main"></main>',
            f'<script type="application/json" id="data">{safe_json(data)}</script>',
            *(
                f'<script type="{PACKED}" id="{escape(i)}">{packed(b)}</script>'
                for i, b in (blocks or {}).items()
            ),
            f'<script type="module">{script}</script>',
            "</html>\n",
        ]
    )
    return whole.encode("utf-8", "replace").decode()  # half a surrogate pair cannot be written to a file


def asset(name: str) -> str:
    """The text of a module or style sheet."""
    return (FOLDER / name).read_text(encoding="utf-8")


@lru_cache
def joined(modules: tuple[str, ...]) -> str:
    """The modules and what they import as one script, each once and after what it needs."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        for needed in IMPORT.findall(asset(name)):
            visit(needed)
        order.append(name)

    for name in modules:
        visit(name)
    whole = "\n".join(
        re.sub(r"^export ", "", IMPORT.sub("", asset(name)), flags=re.MULTILINE) for name in order
    )
    return "\n" + whole


def safe_json(data: Any) -> str:
    """JSON that can stand inside an HTML page: nothing in it can be taken for a tag.

    >>> safe_json({"word": "</script>"})
    '{"word":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def quantized(weights: Float[Tensor, "..."]) -> bytes:
    """Weights as 16-bit numbers, least byte first: 65535 is 1.

    >>> import torch
    >>> quantized(torch.tensor([[0.0, 1.0]])).hex()
    '0000ffff'
    """
    numbers = (weights.detach().cpu().double().clamp(0, 1).nan_to_num(0) * FULL).round()
    return numbers.numpy().astype("<u2").tobytes()


def packed(raw: bytes) -> str:
    """Bytes for the inside of a page: deflated, in base64."""
    return base64.b64encode(zlib.compress(raw, PACKING)).decode("ascii")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
