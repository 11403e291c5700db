"""Records as a notebook shows them: one picture a head, without any other package, everything escaped."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING
from unicodedata import east_asian_width

import torch
from torch import Tensor

from regard.viewing._pooling import pooled

if TYPE_CHECKING:
    from regard.viewing.records import Record, Seen

SCALE = ("ffffff", "d6e6f2", "9cc3de", "5b97c4", "2b68a3", "143f78", "081d45")
"""From white over blue to nearly black: a scale that every eye, and a printer, sees darken."""
MOST_HEADS, MOST_RECORDS, MOST_WORDS = 16, 24, 40
LARGE, SMALL = 320, 96  # pixels: pictures of a record, and beside its name
FONT, LETTER, LONGEST = 11, 6.2, 14  # pixels, pixels, letters


def of_record(record: Record, row: int = 0) -> str:
    """The heads of one row of the batch, with its words if there are not too many."""
    queries, keys, weights = _row(record, row)
    shown = [
        _figure(f"head {head}", heads_weights, queries, keys)
        for head, heads_weights in zip(record.heads[:MOST_HEADS], weights[:MOST_HEADS], strict=True)
    ]
    batch, heads = record.weights.shape[:2]
    left = [f"row {row + 1} of {batch}"] * (batch > 1) + [f"{MOST_HEADS} of {heads} heads"] * (
        heads > MOST_HEADS
    )
    size = f"{weights.shape[1]} queries x {weights.shape[2]} keys"
    about = ", ".join([f"layer {record.layer}", size, *left])
    return f"<div><b>{escape(record.name)}</b> ({about})<div>{''.join(shown)}</div></div>"


def of_seen(seen: Seen) -> str:
    """A line a record: what it is, and its heads in little."""
    rows = []
    for record in seen[:MOST_RECORDS]:
        small = "".join(
            f'<img style="{_IMAGE};width:48px;height:48px;margin:1px" alt="head {head}" title="head {head}" '
            f'src="{png(weights, SMALL)}">'
            for head, weights in zip(record.heads[:MOST_HEADS], _row(record, 0)[2][:MOST_HEADS], strict=True)
        )
        batch, _, queries, keys = record.weights.shape
        cells = [record.name, record.layer, record.call, f"{batch} x {queries} x {keys}"]
        rows.append("".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + f"<td>{small}</td>")
    head = "".join(
        f"<th>{word}</th>" for word in ("attention", "layer", "call", "batch x queries x keys", "heads")
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    more = f"<p>and {len(seen) - MOST_RECORDS} more records</p>" if len(seen) > MOST_RECORDS else ""
    return f"<table><tr>{head}</tr>{body}</table>{more}"


def _row(record: Record, row: int) -> tuple[Sequence[str] | None, Sequence[str] | None, Tensor]:
    """One row of the batch with its words; nothing, if the batch is empty."""
    empty = record.weights.new_zeros(record.weights.shape[1], 0, 0)
    return record.row(row) if len(record.weights) else (None, None, empty)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Words in cells."""
    lines = [
        "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row)
        for tag, several in (("th", [head]), ("td", rows))
        for row in several
    ]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def png(weights: Tensor, most: int = LARGE) -> str:
    """Weights (queries, keys) as the address of a picture, darkest where they are largest.

    One pixel is one weight, or the largest of neighbors where there would be too many pixels.
    """
    weights = torch.as_tensor(pooled(weights.detach().float().numpy(), most, most))
    rows, columns = weights.shape
    top = weights.nan_to_num().amax().clamp(min=1e-12) if weights.numel() else 1.0
    levels = (weights.nan_to_num() / top * 255).round().clamp(0, 255).to(torch.uint8)
    lines = torch.nn.functional.pad(levels, (1, 0))  # every line begins with its filter: 0, none
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", max(columns, 1), max(rows, 1), 8, 3, 0, 0, 0)),
        (b"PLTE", _palette()),
        (b"IDAT", zlib.compress(lines.contiguous().numpy().tobytes() or b"\0\0")),
        (b"IEND", b""),
    ]
    whole = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return f"data:image/png;base64,{base64.b64encode(whole).decode()}"


_IMAGE = "image-rendering:pixelated;border:1px solid #999"


def _figure(title: str, weights: Tensor, queries: Sequence[str] | None, keys: Sequence[str] | None) -> str:
    """A drawing of one head: the picture, the words beside it, and its title."""
    rows, columns = weights.shape
    cell = min(18.0, LARGE / max(rows, columns, 1))
    across, down = (
        max(cell * columns, min(columns, 8)),
        max(cell * rows, min(rows, 8)),
    )  # one row is seen, too
    words = max(rows, columns) <= MOST_WORDS
    queries, keys = (queries or ()) if words else (), (keys or ()) if words else ()
    left = LETTER * max(map(_wide, queries), default=0) + 8
    high = LETTER * max(map(_wide, keys), default=0) + 8
    wide, tall = max(left + across + 4, 60), high + down + 18
    parts = [
        f'<image x="{left:.0f}" y="{high:.0f}" width="{across:.0f}" height="{down:.0f}" '
        f'preserveAspectRatio="none" style="image-rendering:pixelated" href="{png(weights)}"/>',
        f'<rect x="{left:.0f}" y="{high:.0f}" width="{across:.0f}" height="{down:.0f}" '
        'fill="none" stroke="#999"/>',
        f'<text x="{left:.0f}" y="{tall - 4:.0f}">{escape(title)}</text>',
    ]
    for place, word in enumerate(queries):
        at = high + cell * (place + 0.5) + FONT / 3
        parts.append(f'<text x="{left - 4:.0f}" y="{at:.1f}" text-anchor="end">{escape(_short(word))}</text>')
    for place, word in enumerate(keys):
        at = left + cell * (place + 0.5) + FONT / 3
        where = f'transform="translate({at:.1f} {high - 4:.0f}) rotate(-90)"'
        parts.append(f"<text {where}>{escape(_short(word))}</text>")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:.0f}" height="{tall:.0f}" role="img" '
        f'aria-label="{escape(title)}" style="font:{FONT}px sans-serif;fill:currentColor;margin:4px">'
        f"{''.join(parts)}</svg>"
    )


def _short(word: str) -> str:
    word = "".join(letter if letter.isprintable() else "·" for letter in word)
    return word if len(word) <= LONGEST else word[: LONGEST - 1] + "…"


def _wide(word: str) -> float:
    """How wide a word is drawn, in Latin letters."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in _short(word))


def _palette() -> bytes:
    """256 colors, three bytes each."""
    stops = torch.tensor([list(bytes.fromhex(color)) for color in SCALE]).float()
    even = torch.nn.functional.interpolate(stops.T[None], size=256, mode="linear", align_corners=True)
    return even[0].T.round().to(torch.uint8).contiguous().numpy().tobytes()
