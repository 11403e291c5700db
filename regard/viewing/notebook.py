"""Records as a notebook shows them: one picture a head, without any other package, everything escaped.

The measures of every head that was seen, as one table.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

import torch
from rich.table import Table
from torch import Tensor

from regard.viewing import measures
from regard.viewing import notebook as _html
from regard.viewing._arrays import max_pool

if TYPE_CHECKING:
    from regard.viewing.records import AttentionRecord, AttentionRecords

COLOR_STOPS = ("ffffff", "d6e6f2", "9cc3de", "5b97c4", "2b68a3", "143f78", "081d45")
"""From white over blue to nearly black: a scale that every eye, and a printer, sees darken."""


MAX_HEADS, MAX_RECORDS, MAX_TOKEN_LABELS = 16, 24, 40


RECORD_IMAGE_SIZE, THUMBNAIL_SIZE = 320, 96  # pixels: pictures of a record, and beside its name


FONT_SIZE, CHAR_WIDTH, MAX_LABEL_LENGTH = 11, 6.2, 14  # pixels, pixels, letters


def render_record(record: AttentionRecord, index: int = 0) -> str:
    """The heads of one row of the batch, with its words if there are not too many."""
    queries, keys, weights = _get_example(record, index)
    shown = [
        _render_head(f"head {head}", heads_weights, queries, keys)
        for head, heads_weights in zip(record.heads[:MAX_HEADS], weights[:MAX_HEADS], strict=True)
    ]
    batch, heads = record.weights.shape[:2]
    left = [f"row {index + 1} of {batch}"] * (batch > 1) + [f"{MAX_HEADS} of {heads} heads"] * (
        heads > MAX_HEADS
    )
    size = f"{weights.shape[1]} queries x {weights.shape[2]} keys"
    about = ", ".join([f"layer {record.layer}", size, *left])
    return f"<div><b>{escape(record.name)}</b> ({about})<div>{''.join(shown)}</div></div>"


def render_records(records: AttentionRecords) -> str:
    """A line a record: what it is, and its heads in little."""
    rows = []
    for record in records[:MAX_RECORDS]:
        small = "".join(
            f'<img style="{_IMAGE_STYLE};width:48px;height:48px;margin:1px" alt="head {head}" title="head {head}" '
            f'src="{encode_png(weights, THUMBNAIL_SIZE)}">'
            for head, weights in zip(
                record.heads[:MAX_HEADS], _get_example(record, 0)[2][:MAX_HEADS], strict=True
            )
        )
        batch, _, queries, keys = record.weights.shape
        cells = [record.name, record.layer, record.call, f"{batch} x {queries} x {keys}"]
        rows.append("".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + f"<td>{small}</td>")
    head = "".join(
        f"<th>{word}</th>" for word in ("attention", "layer", "call", "batch x queries x keys", "heads")
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    more = f"<p>and {len(records) - MAX_RECORDS} more records</p>" if len(records) > MAX_RECORDS else ""
    return f"<table><tr>{head}</tr>{body}</table>{more}"


def _get_example(
    record: AttentionRecord, index: int
) -> tuple[Sequence[str] | None, Sequence[str] | None, Tensor]:
    """One row of the batch with its words; nothing, if the batch is empty."""
    empty = record.weights.new_zeros(record.weights.shape[1], 0, 0)
    return record.example(index) if len(record.weights) else (None, None, empty)


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Words in cells."""
    lines = [
        "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row)
        for tag, several in (("th", [header]), ("td", rows))
        for row in several
    ]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def encode_png(weights: Tensor, max_size: int = RECORD_IMAGE_SIZE) -> str:
    """Weights (queries, keys) as the address of a picture, darkest where they are largest.

    One pixel is one weight, or the largest of neighbors where there would be too many pixels.
    """
    weights = torch.as_tensor(max_pool(weights.detach().float().numpy(), max_size, max_size))
    rows, columns = weights.shape
    top = weights.nan_to_num().amax().clamp(min=1e-12) if weights.numel() else 1.0
    levels = (weights.nan_to_num() / top * 255).round().clamp(0, 255).to(torch.uint8)
    lines = torch.nn.functional.pad(levels, (1, 0))  # every line begins with its filter: 0, none
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", max(columns, 1), max(rows, 1), 8, 3, 0, 0, 0)),
        (b"PLTE", _build_palette()),
        (b"IDAT", zlib.compress(lines.contiguous().numpy().tobytes() or b"\0\0")),
        (b"IEND", b""),
    ]
    whole = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return f"data:image/png;base64,{base64.b64encode(whole).decode()}"


_IMAGE_STYLE = "image-rendering:pixelated;border:1px solid #999"


def _render_head(
    title: str, weights: Tensor, query_tokens: Sequence[str] | None, key_tokens: Sequence[str] | None
) -> str:
    """A drawing of one head: the picture, the words beside it, and its title."""
    rows, columns = weights.shape
    cell = min(18.0, RECORD_IMAGE_SIZE / max(rows, columns, 1))
    across, down = (
        max(cell * columns, min(columns, 8)),
        max(cell * rows, min(rows, 8)),
    )  # one row is seen, too
    words = max(rows, columns) <= MAX_TOKEN_LABELS
    query_tokens, key_tokens = (query_tokens or ()) if words else (), (key_tokens or ()) if words else ()
    left = CHAR_WIDTH * max(map(_token_width, query_tokens), default=0) + 8
    high = CHAR_WIDTH * max(map(_token_width, key_tokens), default=0) + 8
    wide, tall = max(left + across + 4, 60), high + down + 18
    parts = [
        f'<image x="{left:.0f}" y="{high:.0f}" width="{across:.0f}" height="{down:.0f}" '
        f'preserveAspectRatio="none" style="image-rendering:pixelated" href="{encode_png(weights)}"/>',
        f'<rect x="{left:.0f}" y="{high:.0f}" width="{across:.0f}" height="{down:.0f}" '
        'fill="none" stroke="#999"/>',
        f'<text x="{left:.0f}" y="{tall - 4:.0f}">{escape(title)}</text>',
    ]
    for place, word in enumerate(query_tokens):
        at = high + cell * (place + 0.5) + FONT_SIZE / 3
        parts.append(
            f'<text x="{left - 4:.0f}" y="{at:.1f}" text-anchor="end">{escape(_truncate_token(word))}</text>'
        )
    for place, word in enumerate(key_tokens):
        at = left + cell * (place + 0.5) + FONT_SIZE / 3
        where = f'transform="translate({at:.1f} {high - 4:.0f}) rotate(-90)"'
        parts.append(f"<text {where}>{escape(_truncate_token(word))}</text>")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:.0f}" height="{tall:.0f}" role="img" '
        f'aria-label="{escape(title)}" style="font:{FONT_SIZE}px sans-serif;fill:currentColor;margin:4px">'
        f"{''.join(parts)}</svg>"
    )


def _truncate_token(token: str) -> str:
    token = "".join(letter if letter.isprintable() else "·" for letter in token)
    return token if len(token) <= MAX_LABEL_LENGTH else token[: MAX_LABEL_LENGTH - 1] + "…"


def _token_width(token: str) -> float:
    """How wide a word is drawn, in Latin letters."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in _truncate_token(token))


def _build_palette() -> bytes:
    """256 colors, three bytes each."""
    stops = torch.tensor([list(bytes.fromhex(color)) for color in COLOR_STOPS]).float()
    even = torch.nn.functional.interpolate(stops.T[None], size=256, mode="linear", align_corners=True)
    return even[0].T.round().to(torch.uint8).contiguous().numpy().tobytes()


COLUMN_TITLES = {
    "name": "attention",
    "head": "head",
    "entropy": "entropy",
    "sparsity": "idle",
    "holding": "90 % in",
    "distance": "distance",
    "diagonality": "diagonal",
    "agreement": "alike",
}


@dataclass(frozen=True)
class HeadMeasures:
    """One head: each measure on average over its queries, in all calls; NaN where there is nothing to measure."""

    name: str
    head: int
    entropy: float
    sparsity: float
    holding: float
    distance: float
    diagonality: float
    agreement: float

    def format_cells(self) -> list[str]:
        return [_format_value(value) for value in asdict(self).values()]


@dataclass(frozen=True)
class MeasuresTable:
    """What `seen.measures()` found: print it with rich, or take `to_json()`."""

    rows: tuple[HeadMeasures, ...]

    @classmethod
    def build(cls, records: Iterable[AttentionRecord]) -> MeasuresTable:
        """Measures of heads, the calls of a module taken together."""
        found: dict[tuple[int, str, int], list[dict[str, Tensor]]] = {}
        for record in records:
            for head, values in zip(record.heads, _compute_measures(record), strict=True):
                found.setdefault((record.layer, record.name, head), []).append(values)
        lines = [
            HeadMeasures(
                name, head, **{what: _nanmean([one[what] for one in several]) for what in several[0]}
            )
            for (_, name, head), several in sorted(found.items(), key=lambda item: item[0])
        ]
        return cls(tuple(lines))

    def to_json(self) -> list[dict[str, Any]]:
        """One object a head; None where there is nothing to measure."""
        return [
            {key: None if value != value else value for key, value in asdict(line).items()}
            for line in self.rows
        ]

    def __rich__(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for place, title in enumerate(COLUMN_TITLES.values()):
            table.add_column(title, justify="right" if place else "left", overflow="fold")
        for line in self.rows:
            table.add_row(*line.format_cells())
        return table

    def _repr_html_(self) -> str:
        return _html.render_table(list(COLUMN_TITLES.values()), [line.format_cells() for line in self.rows])


def _compute_measures(record: AttentionRecord) -> list[dict[str, Tensor]]:
    """For each head, each measure of each query; positions that are padding are left out."""
    weights = record.weights
    mask = _build_padding_mask(record)
    per_query = {
        "entropy": measures.entropy(weights, mask),
        "sparsity": measures.sparsity(weights, mask),
        "holding": measures.keys_for_mass(weights, mask),
        "distance": measures.distance(weights, mask),
        "diagonality": measures.diagonality(weights, mask),
    }
    if weights.shape[2] == 1:  # a decoding step: where its query stands is not known here
        for what in ("distance", "diagonality"):
            per_query[what] = torch.full_like(per_query[what], math.nan)
    alike = measures.head_similarity(weights, mask)
    alike = alike.masked_fill(torch.eye(len(record.heads), dtype=torch.bool), math.nan)
    return [
        {what: values[:, place] for what, values in per_query.items()} | {"agreement": alike[:, place]}
        for place in range(len(record.heads))
    ]


def _build_padding_mask(record: AttentionRecord) -> Tensor | None:
    """True where both positions have a word; None if nobody gave words."""
    if record.query_tokens is None and record.key_tokens is None:
        return None
    there = torch.ones(len(record.weights), 1, *record.weights.shape[2:], dtype=torch.bool)
    for rows, axis in ((record.query_tokens, 2), (record.key_tokens, 3)):
        for row, words in enumerate(rows or ()):
            there[row].narrow(axis - 1, len(words), there.shape[axis] - len(words)).fill_(False)
    return there


def _nanmean(values: list[Tensor]) -> float:
    return torch.cat([value.flatten() for value in values]).nanmean().item()


def _format_value(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return "-" if value != value else f"{value:.3g}"
