"""Pages in one file: the modules, styles and data that a page needs, and nothing from the network.

The modules beside this file are plain JavaScript, which a server can hand out as they are. For a page in one
file they are joined: imports and exports are taken out, so no two modules may use the same name at their top.

What every player is in the end: a page in one file.
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

from regard.errors import StorageError, UsageError

ASSET_FOLDER = Path(__file__).parent


FULL_WEIGHT = 65535  # the number that stands for a weight of 1


IMPORT_PATTERN = re.compile(r"^import \{[^}]*\} from '\./([\w-]+\.js)';\n", re.MULTILINE)


# What a page may do: run its own script, use its own styles, show pictures it made itself. No connection at all.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src {styles}; img-src data: blob:;"
    " base-uri 'none'; form-action 'none'"
)


COMPRESSION_LEVEL = 2  # of 9: weights hardly get smaller beyond, but take five times as long


BLOCK_TYPE = "application/octet-stream;base64"


def build_page(
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

    >>> made = build_page("</title><b>", ["say.js"], {"text": "</script><b>"})
    >>> made.count("<b>"), "\\\\u003c/script" in made
    (0, True)
    """
    script, style = bundle_scripts(tuple(modules)), "\n".join(read_asset(name) for name in styles)
    policy = CONTENT_SECURITY_POLICY.format(scripts=_policy_hash(script), styles=_policy_hash(style))
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
            f'<script type="application/json" id="data">{dump_safe_json(data)}</script>',
            *(
                f'<script type="{BLOCK_TYPE}" id="{escape(i)}">{deflate_base64(b)}</script>'
                for i, b in (blocks or {}).items()
            ),
            f'<script type="module">{script}</script>',
            "</html>\n",
        ]
    )
    return whole.encode("utf-8", "replace").decode()  # half a surrogate pair cannot be written to a file


def read_asset(name: str) -> str:
    """The text of a module or style sheet."""
    return (ASSET_FOLDER / name).read_text(encoding="utf-8")


@lru_cache
def bundle_scripts(modules: tuple[str, ...]) -> str:
    """The modules and what they import as one script, each once and after what it needs."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        for needed in IMPORT_PATTERN.findall(read_asset(name)):
            visit(needed)
        order.append(name)

    for name in modules:
        visit(name)
    whole = "\n".join(
        re.sub(r"^export ", "", IMPORT_PATTERN.sub("", read_asset(name)), flags=re.MULTILINE)
        for name in order
    )
    return "\n" + whole


def dump_safe_json(data: Any) -> str:
    """JSON that can stand inside an HTML page: nothing in it can be taken for a tag.

    >>> dump_safe_json({"word": "</script>"})
    '{"word":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def quantize_uint16(weights: Float[Tensor, "..."]) -> bytes:
    """Weights as 16-bit numbers, least byte first: 65535 is 1.

    >>> import torch
    >>> quantize_uint16(torch.tensor([[0.0, 1.0]])).hex()
    '0000ffff'
    """
    numbers = (weights.detach().cpu().double().clamp(0, 1).nan_to_num(0) * FULL_WEIGHT).round()
    return numbers.numpy().astype("<u2").tobytes()


def deflate_base64(data: bytes) -> str:
    """Bytes for the inside of a page: deflated, in base64."""
    return base64.b64encode(zlib.compress(data, COMPRESSION_LEVEL)).decode("ascii")


def _policy_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


STYLE_SHEETS = ("base.css", "players.css")


NOTEBOOK_HEIGHT = 780  # pixels in a notebook, where it stands between other things


@dataclass(frozen=True)
class HtmlPage:
    """A page in one file, to be saved, sent around, or shown in a notebook.

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
    ) -> HtmlPage:
        """The page of these modules and data; `language` ("en" or "zh") is the one it begins in."""
        if language not in (None, "en", "zh"):
            raise UsageError(f"A player speaks 'en' or 'zh', not {language!r}.")
        data = {**data, "language": language}
        return cls(build_page(title, modules, data, blocks=blocks, styles=STYLE_SHEETS, language=language))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page; the name must end in .html."""
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"A player is an HTML page, so its name must end in .html, not {path.name!r}.")
        try:
            path.write_text(self.html, encoding="utf-8", newline="\n")
        except OSError as error:
            why = error.strerror if path.parent.is_dir() else f"there is no folder {path.parent}"
            raise StorageError(f"The page cannot be written to {path}: {why}.") from None

    def _repr_html_(self) -> str:
        """In a notebook: a frame of its own, so that neither disturbs the other."""
        return f'<iframe srcdoc="{escape(self.html)}" width="100%" height="{NOTEBOOK_HEIGHT}" style="border:0"></iframe>'

    def __repr__(self) -> str:
        return f"Player({len(self.html):,} characters of HTML)"
