"""Records and measures as HTML for notebooks: one image per head, without other packages, all text escaped."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import torch
from rich.table import Table
from torch import Tensor

from regard.viewing import measures
from regard.viewing._arrays import max_pool
from regard.viewing._text import text_width

if TYPE_CHECKING:
    from regard.viewing.records import AttentionRecord, AttentionRecords

__all__ = ["HeadMeasures", "MeasuresTable", "encode_png", "render_record", "render_records"]

COLOR_STOPS = ("ffffff", "d6e6f2", "9cc3de", "5b97c4", "2b68a3", "143f78", "081d45")
"""White to dark blue, with decreasing lightness, which also survives color blindness and grayscale printing."""
MAX_HEADS, MAX_RECORDS, MAX_TOKEN_LABELS = 16, 24, 40
RECORD_IMAGE_SIZE, THUMBNAIL_SIZE = 320, 96  # pixels
FONT_SIZE, CHAR_WIDTH = 11, 6.2  # pixels
MAX_LABEL_LENGTH = 14  # characters
IMAGE_STYLE = "image-rendering:pixelated;border:1px solid #999"
QUERY_MEASURES = ("entropy", "sparsity", "keys_for_mass", "distance", "diagonality")
COLUMN_TITLES = (
    "attention", "head", "entropy", "sparsity", "keys for 90 %", "distance", "diagonality", "similarity",
)  # fmt: skip


def render_record(record: AttentionRecord, index: int = 0) -> str:
    """Render the heads of one example, with its tokens if there are not too many.

    Args:
        record: the record
        index: the example of the batch

    Returns:
        HTML.
    """
    query_tokens, key_tokens, weights = _get_example(record, index)
    images = [
        _render_head(f"head {head}", head_weights, query_tokens, key_tokens)
        for head, head_weights in zip(record.heads[:MAX_HEADS], weights[:MAX_HEADS], strict=True)
    ]
    batch, heads = record.weights.shape[:2]
    notes = [f"layer {record.layer}", f"{weights.shape[1]} queries x {weights.shape[2]} keys"]
    notes += [f"example {index + 1} of {batch}"] * (batch > 1)
    notes += [f"{MAX_HEADS} of {heads} heads"] * (heads > MAX_HEADS)
    return f"<div><b>{escape(record.name)}</b> ({', '.join(notes)})<div>{''.join(images)}</div></div>"


def render_records(records: AttentionRecords) -> str:
    """Render a table with one row per record: name, layer, call, shape and thumbnails of the heads.

    Args:
        records: the records
    """
    rows = []
    for record in records[:MAX_RECORDS]:
        weights = _get_example(record, 0)[2][:MAX_HEADS]
        thumbnails = "".join(
            f'<img style="{IMAGE_STYLE};width:48px;height:48px;margin:1px" alt="head {head}" title="head {head}" '
            f'src="{encode_png(head_weights, THUMBNAIL_SIZE)}">'
            for head, head_weights in zip(record.heads[:MAX_HEADS], weights, strict=True)
        )
        batch, _, queries, keys = record.weights.shape
        cells = (record.name, record.layer, record.call, f"{batch} x {queries} x {keys}")
        rows.append([*(escape(str(cell)) for cell in cells), thumbnails])
    more = f"<p>and {len(records) - MAX_RECORDS} more records</p>" if len(records) > MAX_RECORDS else ""
    return _render_table(["attention", "layer", "call", "batch x queries x keys", "heads"], rows) + more


def encode_png(weights: Tensor, max_size: int = RECORD_IMAGE_SIZE) -> str:
    """Encode weights as a PNG image: the larger a weight, the darker its pixel.

    Args:
        weights: (queries, keys)
        max_size: the largest number of rows and columns; beyond it a pixel is the maximum of its neighbors

    Shape:
        - weights: (queries, keys)

    Returns:
        A data URL.
    """
    weights = torch.as_tensor(max_pool(weights.detach().float().numpy(), max_size, max_size))
    rows, columns = weights.shape
    vmax = weights.nan_to_num().amax().clamp(min=1e-12) if weights.numel() else 1.0
    levels = (weights.nan_to_num() / vmax * 255).round().clamp(0, 255).to(torch.uint8)
    lines = torch.nn.functional.pad(levels, (1, 0))  # every line begins with its filter type: 0, none
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", max(columns, 1), max(rows, 1), 8, 3, 0, 0, 0)),
        (b"PLTE", _build_palette()),
        (b"IDAT", zlib.compress(lines.contiguous().numpy().tobytes() or b"\0\0")),
        (b"IEND", b""),
    ]
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data)) for tag, data in chunks
    )
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


@dataclass(frozen=True)
class HeadMeasures:
    """The measures of one head: means over all queries and calls, NaN where a measure is undefined.

    Args:
        name: the name of the module
        head: the number of the head
        entropy: see `measures.entropy`; the other measures have the names of their functions as well
        sparsity, keys_for_mass, distance, diagonality, head_similarity: see the functions of `measures`
            with these names
    """

    name: str
    head: int
    entropy: float
    sparsity: float
    keys_for_mass: float
    distance: float
    diagonality: float
    head_similarity: float

    def format_cells(self) -> list[str]:
        values = list(asdict(self).values())[2:]
        return [self.name, str(self.head), *("-" if value != value else f"{value:.3g}" for value in values)]


@dataclass(frozen=True)
class MeasuresTable:
    """The measures of every head. It is printed by rich and displayed by notebooks.

    Args:
        rows: one per head, in the order of the layers
    """

    rows: tuple[HeadMeasures, ...]

    @classmethod
    def build(cls, records: Iterable[AttentionRecord]) -> MeasuresTable:
        """Measure every head; the calls of a module are combined."""
        measured: dict[tuple[int, str, int], list[dict[str, Tensor]]] = {}
        for record in records:
            for head, values in zip(record.heads, _compute_measures(record), strict=True):
                measured.setdefault((record.layer, record.name, head), []).append(values)
        rows = []
        for (_, name, head), calls in sorted(measured.items(), key=lambda item: item[0]):
            means = {key: torch.cat([call[key].flatten() for call in calls]).nanmean().item() for key in calls[0]}
            rows.append(HeadMeasures(name, head, **means))
        return cls(tuple(rows))

    def to_json(self) -> list[dict[str, Any]]:
        """One object per head, with None where a measure is undefined."""
        return [{key: None if value != value else value for key, value in asdict(row).items()} for row in self.rows]

    def __rich__(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for index, title in enumerate(COLUMN_TITLES):
            table.add_column(title, justify="right" if index else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*row.format_cells())
        return table

    def _repr_html_(self) -> str:
        return _render_table(COLUMN_TITLES, [map(escape, row.format_cells()) for row in self.rows])


def _render_table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table whose cells are HTML."""
    lines = ["".join(f"<th>{cell}</th>" for cell in header)]
    lines += ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _compute_measures(record: AttentionRecord) -> list[dict[str, Tensor]]:
    """The measures of each head and query, without padding."""
    weights = record.weights
    mask = _build_padding_mask(record)
    per_query = {name: getattr(measures, name)(weights, mask) for name in QUERY_MEASURES}
    if weights.shape[2] == 1:  # a decoding step: the position of its query is unknown
        for key in ("distance", "diagonality"):
            per_query[key] = torch.full_like(per_query[key], math.nan)
    similarity = measures.head_similarity(weights, mask)
    is_itself = torch.eye(len(record.heads), dtype=torch.bool)
    computed = per_query | {"head_similarity": similarity.masked_fill(is_itself, math.nan)}
    return [{key: values[:, i] for key, values in computed.items()} for i in range(len(record.heads))]


def _build_padding_mask(record: AttentionRecord) -> Tensor | None:
    """True where query and key have a token; None if the record has no tokens."""
    if record.query_tokens is None and record.key_tokens is None:
        return None
    mask = torch.ones(len(record.weights), 1, *record.weights.shape[2:], dtype=torch.bool)
    for rows, axis in ((record.query_tokens, 2), (record.key_tokens, 3)):
        for index, tokens in enumerate(rows or ()):
            mask[index].narrow(axis - 1, len(tokens), mask.shape[axis] - len(tokens)).fill_(False)
    return mask


def _get_example(record: AttentionRecord, index: int) -> tuple[Sequence[str] | None, Sequence[str] | None, Tensor]:
    """One example with its tokens; an empty one if the batch is empty."""
    if len(record.weights):
        return record.example(index)
    return None, None, record.weights.new_zeros(record.weights.shape[1], 0, 0)


def _render_head(
    title: str, weights: Tensor, query_tokens: Sequence[str] | None, key_tokens: Sequence[str] | None
) -> str:
    """An SVG image of one head with its tokens and title."""
    rows, columns = weights.shape
    cell = min(18.0, RECORD_IMAGE_SIZE / max(rows, columns, 1))
    # Small matrices keep a visible size.
    width, height = max(cell * columns, min(columns, 8)), max(cell * rows, min(rows, 8))
    has_labels = max(rows, columns) <= MAX_TOKEN_LABELS
    query_labels, key_labels = (
        [_truncate_token(token) for token in tokens or () if has_labels] for tokens in (query_tokens, key_tokens)
    )
    left, top = (CHAR_WIDTH * max(map(text_width, labels), default=0) + 8 for labels in (query_labels, key_labels))
    full_width, full_height = max(left + width + 4, 60), top + height + 18
    parts = [
        f'<image x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'preserveAspectRatio="none" style="image-rendering:pixelated" href="{encode_png(weights)}"/>',
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{height:.0f}" fill="none" stroke="#999"/>',
        f'<text x="{left:.0f}" y="{full_height - 4:.0f}">{escape(title)}</text>',
    ]
    for i, label in enumerate(query_labels):
        y = top + cell * (i + 0.5) + FONT_SIZE / 3
        parts.append(f'<text x="{left - 4:.0f}" y="{y:.1f}" text-anchor="end">{escape(label)}</text>')
    for i, label in enumerate(key_labels):
        x = left + cell * (i + 0.5) + FONT_SIZE / 3
        parts.append(f'<text transform="translate({x:.1f} {top - 4:.0f}) rotate(-90)">{escape(label)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{full_width:.0f}" height="{full_height:.0f}" role="img" '
        f'aria-label="{escape(title)}" style="font:{FONT_SIZE}px sans-serif;fill:currentColor;margin:4px">'
        f"{''.join(parts)}</svg>"
    )


def _truncate_token(token: str) -> str:
    token = "".join(c if c.isprintable() else "·" for c in token)
    return token if len(token) <= MAX_LABEL_LENGTH else token[: MAX_LABEL_LENGTH - 1] + "…"


def _build_palette() -> bytes:
    """256 colors, three bytes each."""
    stops = torch.tensor([list(bytes.fromhex(color)) for color in COLOR_STOPS]).float()
    colors = torch.nn.functional.interpolate(stops.T[None], size=256, mode="linear", align_corners=True)
    return colors[0].T.round().to(torch.uint8).contiguous().numpy().tobytes()
