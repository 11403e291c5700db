"""`HtmlPage`: scripts, styles and data in one HTML file that needs no network.

The scripts in regard/viewing/web are plain JavaScript modules, which a server can deliver as they are. For a page in
one file they are bundled: imports and exports are removed, so top-level names must be unique across the modules.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from regard.errors import UsageError
from regard.files import write_output

__all__ = ["FULL_WEIGHT", "STYLE_SHEETS", "HtmlPage", "quantize_heads", "quantize_uint16"]

ASSET_FOLDER = Path(__file__).parent.parent / "web"
FULL_WEIGHT = 65535  # stands for a weight of 1
IMPORT_PATTERN = re.compile(r"^import \{[^}]*\} from '\./([\w-]+\.js)';\n", re.MULTILINE)
# A page may run its own script, use its own styles and show images that it made. No connections.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src {styles}; img-src data: blob:;"
    " base-uri 'none'; form-action 'none'"
)
COMPRESSION_LEVEL = 2  # of 9: higher levels hardly reduce the size of weights, but take five times as long
BLOCK_TYPE = "application/octet-stream;base64"
STYLE_SHEETS = ("base.css", "pages.css")
NOTEBOOK_HEIGHT = 780  # pixels


@dataclass(frozen=True)
class HtmlPage:
    """A page in one HTML file, to be saved, sent, or displayed in a notebook.

    Args:
        html: the text of the file

    Example:
        >>> HtmlPage("<!doctype html>").html
        '<!doctype html>'
    """

    html: str

    @classmethod
    def build(
        cls,
        title: str,
        modules: Iterable[str],
        data: Any,
        blocks: Mapping[str, bytes] | None = None,
        language: str | None = None,
        styles: Iterable[str] = (),
    ) -> HtmlPage:
        """Build a page from scripts and data.

        All text is data: it cannot close its element, and the policy of the page allows only its own script.

        Args:
            title: the title of the document
            modules: the scripts of regard/viewing/web to run; the modules that they import are included
            data: JSON data, `dataOf()` in the scripts
            blocks: binary data by id, `block(id)` in the scripts
            language: "en" or "zh", the initial language; None: that of the browser
            styles: style sheets after those of every page

        Example:
            >>> page = HtmlPage.build("</title><b>", ["language.js"], {"text": "</script><b>"})
            >>> page.html.count("<b>"), "\\\\u003c/script" in page.html
            (0, True)
        """
        if language not in (None, "en", "zh"):
            raise UsageError(f"invalid value {language!r} for language: must be 'en' or 'zh'")
        script = bundle_scripts(tuple(modules))
        style = "\n".join(read_asset(name) for name in (*STYLE_SHEETS, *styles))
        policy = CONTENT_SECURITY_POLICY.format(scripts=_policy_hash(script), styles=_policy_hash(style))
        lines = [
            "<!doctype html>",
            f'<html lang="{"zh-Hans" if language == "zh" else "en"}">',
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title>",
            f"<style>{style}</style>",
            '<main id="main"></main>',
            f'<script type="application/json" id="data">{dump_safe_json({**data, "language": language})}</script>',
        ]
        for block_id, block in (blocks or {}).items():
            lines.append(f'<script type="{BLOCK_TYPE}" id="{escape(block_id)}">{deflate_base64(block)}</script>')
        html = "\n".join([*lines, f'<script type="module">{script}</script>', "</html>\n"])
        return cls(html.encode("utf-8", "replace").decode())  # lone surrogates cannot be written to a file

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page to a file.

        Args:
            path: a name that ends in .html or .htm
        """
        formats = dict.fromkeys((".html", ".htm"), lambda: self.html.encode())
        write_output(path, "page", formats, ".html")

    def _repr_html_(self) -> str:
        """A frame, so that page and notebook do not affect each other."""
        style = f'width="100%" height="{NOTEBOOK_HEIGHT}" style="border:0"'
        return f'<iframe srcdoc="{escape(self.html)}" {style}></iframe>'

    def __repr__(self) -> str:
        return f"HtmlPage({len(self.html):,} characters)"


def read_asset(name: str) -> str:
    """Read a script or style sheet of regard/viewing/web.

    Args:
        name: the file name
    """
    return (ASSET_FOLDER / name).read_text(encoding="utf-8")


@lru_cache
def bundle_scripts(modules: tuple[str, ...]) -> str:
    """Bundle modules and their imports into one script, each once and after its imports.

    Args:
        modules: file names of scripts
    """
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in order:
            for imported in IMPORT_PATTERN.findall(read_asset(name)):
                visit(imported)
            order.append(name)

    for name in modules:
        visit(name)
    scripts = (IMPORT_PATTERN.sub("", read_asset(name)) for name in order)
    return "\n" + "\n".join(re.sub(r"^export ", "", script, flags=re.MULTILINE) for script in scripts)


def dump_safe_json(data: Any) -> str:
    """Dump JSON that can be embedded in HTML: it has no characters of tags.

    Args:
        data: data that JSON can represent

    Example:
        >>> dump_safe_json({"word": "</script>"})
        '{"word":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for c in "<>&\u2028\u2029":
        text = text.replace(c, f"\\u{ord(c):04x}")
    return text


def quantize_uint16(weights: Float[Tensor, "..."]) -> bytes:
    """Quantize weights from 0 to 1 to 16-bit integers, little-endian; 65535 stands for 1.

    Args:
        weights: a tensor of any shape

    Shape:
        - weights: any

    Example:
        >>> import torch
        >>> quantize_uint16(torch.tensor([[0.0, 1.0]])).hex()
        '0000ffff'
    """
    levels = (weights.detach().cpu().double().clamp(0, 1).nan_to_num(0) * FULL_WEIGHT).round()
    return levels.numpy().astype("<u2").tobytes()


def quantize_heads(weights: Float[Tensor, "layers heads queries keys"]) -> dict[str, bytes]:
    """Quantize the weights of each head for `HtmlPage.build`, under the names that the scripts expect.

    Args:
        weights: weights of all heads

    Shape:
        weights (layers, heads, queries, keys)

    Example:
        >>> import torch
        >>> list(quantize_heads(torch.rand(1, 2, 3, 4)))
        ['w-0-0', 'w-0-1']
    """
    layers, heads = map(range, weights.shape[:2])
    return {f"w-{layer}-{head}": quantize_uint16(weights[layer, head]) for layer in layers for head in heads}


def deflate_base64(data: bytes) -> str:
    """Compress bytes and encode them in base64, to be embedded in a page.

    Args:
        data: the bytes

    Example:
        >>> zlib.decompress(base64.b64decode(deflate_base64(b"weights")))
        b'weights'
    """
    return base64.b64encode(zlib.compress(data, COMPRESSION_LEVEL)).decode("ascii")


def _policy_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
