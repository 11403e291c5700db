"""Labels of figures: literal text, thinned out where there are too many, with a font for every script.

matplotlib takes, for each character, the first font of a list that has it. `escape_text` builds that list from the
fonts of the system. Characters without a font become boxes, with one warning per script.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from regard._imports import require_extra
from regard.viewing._text import grapheme_clusters, text_width, truncate, wrap_lines
from regard.viewing.figures._colors import INK_COLOR
from regard.viewing.figures.figure import FigureLayout

MISSING_GLYPH = "□"
FALLBACK_FONT = "DejaVu Sans"  # comes with matplotlib
CJK_SCRIPTS = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "IDEOGRAPHIC", "FULLWIDTH")
CJK_FONTS = {  # parts of font names, in the order of preference
    "chinese": ("CJK SC", "Han Sans SC", "PingFang SC", "YaHei", "SimHei", "WenQuanYi", "Heiti", "CJK"),
    "japanese": ("CJK JP", "Han Sans JP", "Hiragino", "Yu Gothic", "Meiryo", "IPA", "Takao", "CJK"),
    "korean": ("CJK KR", "Han Sans KR", "Apple SD Gothic", "Malgun", "Nanum", "CJK"),
}
UNUSABLE_FONTS = ("Last Resort", "Color Emoji")  # only boxes; bitmaps that matplotlib cannot draw
MAX_LABEL_WIDTH, MAX_TITLE_WIDTH, MIN_LINE_WIDTH = 18, 90, 32  # columns
CHAR_WIDTH = 0.6  # of the font size
FONT_SIZE, SMALL_FONT_SIZE = 8.0, 6.0  # points
LABEL_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
AxisLabels = tuple[list[str] | None, list[str] | None]  # of the rows, of the columns
PanelStarts = Sequence[float] | None

_warned_fonts: set[str] = set()


class MissingGlyphsWarning(UserWarning):
    """No font of the system has these characters."""


def covers(family: str, characters: Iterable[str]) -> bool:
    """Whether the font that matplotlib uses for a family has all these characters.

    Args:
        family: a font family
        characters: the characters to draw
    """
    manager = require_extra("matplotlib.font_manager", extra="draw")
    path = manager.findfont(manager.FontProperties(family=[family]))
    code_points = _read_code_points(str(path), getattr(path, "face_index", 0))  # a .ttc has several faces
    return all(ord(c) in code_points for c in characters)


def _choose_families(characters: set[str]) -> tuple[list[str], set[str]]:
    manager = require_extra("matplotlib.font_manager", extra="draw")
    families = list(dict.fromkeys([*manager.FontProperties().get_family(), FALLBACK_FONT]))
    characters = {c for c in characters if not any(covers(family, c) for family in families)}
    cjk_language, missing = _choose_cjk_language(characters), set()
    for c in sorted(characters):
        if any(covers(family, c) for family in families[2:]):
            continue
        family = _find_family(c, cjk_language)
        families += [family] if family else []
        missing |= set() if family else {c}
    return families, missing


def _choose_cjk_language(characters: set[str]) -> str:
    scripts = {_script_of(c) for c in characters}
    if scripts & {"HIRAGANA", "KATAKANA"}:
        return "japanese"
    return "korean" if "HANGUL" in scripts and "CJK" not in scripts else "chinese"


@cache
def _find_family(c: str, cjk_language: str) -> str | None:
    script = _script_of(c)
    preferred = CJK_FONTS[cjk_language] if script in CJK_SCRIPTS else (script, "Emoji", "Symbol")

    def rank(entry: Any) -> tuple[Any, ...]:
        name = entry.name.lower()
        index = next((i for i, part in enumerate(preferred) if part.lower() in name), len(preferred))
        is_regular = entry.style == "normal" and entry.weight in (400, "normal", "regular")
        return index, not is_regular, "Mono" in entry.name, "Serif" in entry.name, entry.name

    for entries in _iter_font_lists():
        usable = (entry for entry in entries if not any(part in entry.name for part in UNUSABLE_FONTS))
        for entry in sorted(usable, key=rank):
            if ord(c) in _read_code_points(entry.fname, getattr(entry, "index", 0)):
                return str(entry.name)
    return None


def _iter_font_lists() -> Iterator[list[Any]]:
    """The fonts in matplotlib's list, then those that were installed later."""
    manager = require_extra("matplotlib.font_manager", extra="draw")
    known = manager.fontManager.ttflist
    yield list(known)
    count, paths = len(known), {entry.fname for entry in known}
    for path in sorted(set(manager.findSystemFonts()) - paths):
        try:
            manager.fontManager.addfont(path)
        except (OSError, RuntimeError, KeyError, ValueError):
            continue  # not a font that matplotlib can read
    yield known[count:]


@cache
def _read_code_points(path: str, index: int) -> frozenset[int]:
    """The code points of a font; none if it is not scalable."""
    load = require_extra("matplotlib.ft2font", extra="draw").FT2Font
    try:
        font = load(path, face_index=index) if index else load(path)
    except (OSError, RuntimeError, TypeError):
        return frozenset()
    return frozenset(font.get_charmap()) if getattr(font, "scalable", True) else frozenset()


def _script_of(c: str) -> str:
    """The script of a character, the first word of its Unicode name: CJK, DEVANAGARI, ARABIC."""
    return unicodedata.name(c, "UNKNOWN").split()[0].split("-")[0]


def _is_invisible(c: str) -> bool:
    return unicodedata.category(c) == "Cf" or 0xFE00 <= ord(c) <= 0xFE0F


def _warn_missing(missing: set[str]) -> None:
    characters_by_font: dict[str, list[str]] = {}
    for c in sorted(missing):
        if not _is_invisible(c):
            characters_by_font.setdefault(_suggest_font(c), []).append(c)
    for font, characters in characters_by_font.items():
        if font not in _warned_fonts:
            _warned_fonts.add(font)
            examples = ", ".join(f"{c} (U+{ord(c):04X})" for c in characters[:3]) + (" ..." if characters[3:] else "")
            message = f"No font has {examples}; boxes replace missing characters. Install {font}."
            warnings.warn(message, MissingGlyphsWarning, stacklevel=2)


def _suggest_font(c: str) -> str:
    script = _script_of(c)
    if script == "UNKNOWN":
        return "a font that has them"
    if script in CJK_SCRIPTS:
        return "Noto Sans CJK (Debian, Ubuntu: fonts-noto-cjk)"
    if unicodedata.category(c) == "So":
        return "Noto Emoji (monochrome) or Symbola (Debian, Ubuntu: fonts-symbola)"
    return f"a font for this script, such as Noto Sans {script.capitalize()} (Debian, Ubuntu: fonts-noto-core)"


def escape_text(*texts: str) -> tuple[list[str], dict[str, Any]]:
    """Prepare texts to be drawn literally; characters without a font are replaced by boxes.

    Args:
        texts: the texts to draw

    Returns:
        The texts, and the text options of matplotlib: fonts, no formulas.
    """
    safe_texts = [_reorder_right_to_left(text) for text in texts]
    families, missing = _choose_families(set("".join(safe_texts)))
    if missing:
        _warn_missing(missing)
        table = {ord(c): None if _is_invisible(c) else MISSING_GLYPH for c in missing}
        safe_texts = [text.translate(table) for text in safe_texts]
    return safe_texts, {"family": families, "parse_math": False, "usetex": False}


def show_control_characters(text: str) -> str:
    """Replace control characters and outer spaces by visible symbols.

    Args:
        text: the text

    Example:
        >>> show_control_characters(" the"), show_control_characters("a\\n\\x1b")
        ('␣the', 'a↵\\\\x1b')
    """
    symbols = {"\n": "↵", "\t": "⇥"}
    text = "".join(symbols.get(c, repr(c)[1:-1]) if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)
    inner = text.strip()
    start = len(text) - len(text.lstrip())
    return "␣" * start + inner + "␣" * (len(text) - start - len(inner))


def draw_title(
    axes: Any, text: str | None, size: float = FONT_SIZE + 1, width: float | None = None, **more: Any
) -> None:
    """Draw a title, wrapped to the width of the axes or to `width` inches.

    Args:
        axes: the axes of matplotlib
        text: the title; None: no title
        size: the font size
        width: inches; None: the width of the axes
        more: options of `Axes.set_title`
    """
    if text:
        inches = axes.get_position(original=True).width if width is None else width
        columns = max(MIN_LINE_WIDTH, int(inches * 72 / (CHAR_WIDTH * size)))
        lines, options = escape_text(*wrap_lines(truncate(show_control_characters(text), MAX_TITLE_WIDTH), columns))
        axes.set_title("\n".join(lines), fontsize=size, **{"loc": "left", "color": INK_COLOR} | options | more)


def draw_headline(layout: FigureLayout, text: str | None) -> None:
    """Draw a title above the content of the figure.

    Args:
        layout: the figure
        text: the title; None: no title
    """
    if text:
        edge = layout.figure.get_tightbbox(layout.figure.canvas.get_renderer())
        axes = layout.add_axes(edge.x0, -edge.y1 - 0.02, 0.01, 0.01)
        axes.set_axis_off()
        draw_title(axes, text, width=edge.width, color=layout.ink_color)


def label_side(
    axes: Any, side: str, labels: Sequence[str] | None, count: int, cell_size: float, starts: PanelStarts = None
) -> None:
    """Label the rows or columns of a matrix; labels at the top are rotated if they would overlap.

    Args:
        axes: the axes
        side: "left" for rows, "top" or "bottom" for columns
        labels: one per row or column; None: numbers
        count: the number of rows or columns
        cell_size: the height of a row or the width of a column, in inches
        starts: the edges of several matrices in the axes, in inches
    """
    size = FONT_SIZE if cell_size >= 1.15 * FONT_SIZE / 72 else SMALL_FONT_SIZE
    min_space = (2.6 if labels is None else 1.15) * size / 72  # numbers may be sparse
    step = next((step for step in LABEL_STEPS if step * cell_size >= min_space), count)
    indices, space = list(range(0, count, step)), step * cell_size
    names = map(str, indices) if labels is None else (show_control_characters(labels[i]) for i in indices)
    texts = [truncate(name, MAX_LABEL_WIDTH) for name in names]
    escaped, options = escape_text(*texts)
    if side == "top":
        axes.xaxis.tick_top()
        if max((text_width(text) * CHAR_WIDTH * size / 72 for text in texts), default=0.0) > 0.92 * space:
            diagonal = {"rotation": 45, "ha": "left", "va": "bottom", "rotation_mode": "anchor"}
            options |= diagonal if space > 0.2 else {"rotation": 90}
    ticks = indices if starts is None else [start + (i + 0.5) * cell_size for start in starts for i in indices]
    set_ticks = axes.set_yticks if side == "left" else axes.set_xticks
    set_ticks(ticks, escaped * len(starts or [0]), fontsize=size, **options)
    axes.tick_params(axis="y" if side == "left" else "x", length=0 if labels else 2, width=0.5, pad=2)


def label_axes(axes: Any, labels: AxisLabels, counts: tuple[int, int], cell_size: tuple[float, float]) -> None:
    """Label rows and columns; without labels they are numbered, and the axis is named.

    Args:
        axes: the axes of matplotlib
        labels: labels of rows and of columns, each a list or None
        counts: numbers of rows and columns
        cell_size: height and width of a cell, in inches
    """
    label_side(axes, "left", labels[0], counts[0], cell_size[0])
    label_side(axes, "top", labels[1], counts[1], cell_size[1])
    if labels[0] is None:
        axes.set_ylabel("query", fontsize=FONT_SIZE)
    if labels[1] is None:
        axes.xaxis.set_label_position("top")
        axes.set_xlabel("key", fontsize=FONT_SIZE)


def remove_labels(axes: Any) -> None:
    """Remove the ticks of both axes.

    Args:
        axes: the axes of matplotlib
    """
    axes.set_xticks([])
    axes.set_yticks([])


def _reorder_right_to_left(text: str) -> str:
    """Reverse a text that is entirely right-to-left, as matplotlib before 3.11 does not; letters are not joined."""
    if hasattr(require_extra("matplotlib.ft2font", extra="draw"), "__libraqm_version__"):
        return text
    classes = {unicodedata.bidirectional(c) for c in text}
    if classes & {"R", "AL"} and not classes & {"L", "EN", "AN"}:
        return "".join(reversed(grapheme_clusters(text)))
    return text
