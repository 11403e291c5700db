"""A font for every letter: found among those of the system, or a hint which one to install.

matplotlib draws with a list of font families and takes, letter by letter, the first that has it. Here that list is
made. Letters that no font has become a box, with one warning a script instead of one a letter.

Labels drawn as they are: no formulas, no line breaks, in the right order, thinned where there are too many.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from regard._imports import require_extra
from regard.viewing._text import grapheme_clusters, text_width, truncate, wrap_lines
from regard.viewing.figures.figure import INK_COLOR, FigureLayout

MISSING_GLYPH = "□"


FALLBACK_FONT = "DejaVu Sans"  # comes with matplotlib


CJK_SCRIPTS = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "IDEOGRAPHIC", "FULLWIDTH")


# Words in the names of fonts that have Chinese characters; the first words are asked first.
CJK_FONTS = {
    "chinese": ("CJK SC", "Han Sans SC", "PingFang SC", "YaHei", "SimHei", "WenQuanYi", "Heiti", "CJK"),
    "japanese": ("CJK JP", "Han Sans JP", "Hiragino", "Yu Gothic", "Meiryo", "IPA", "Takao", "CJK"),
    "korean": ("CJK KR", "Han Sans KR", "Apple SD Gothic", "Malgun", "Nanum", "CJK"),
}


UNUSABLE_FONTS = (
    "Last Resort",
    "Color Emoji",
)  # boxes instead of letters; pictures that matplotlib cannot draw


_warned_fonts: set[str] = set()


class MissingGlyphsWarning(UserWarning):
    """No font of the system has these letters."""


def choose_fonts(texts: list[str]) -> tuple[list[str], list[str]]:
    """The texts with boxes for the letters that no font has, and the families to draw them with."""
    letters = set("".join(texts))
    families, missing = _choose_families(letters)
    if missing:
        _warn_missing(missing)
        table = {ord(c): None if _is_invisible(c) else MISSING_GLYPH for c in missing}
        texts = [text.translate(table) for text in texts]
    return texts, families


def covers(family: str, characters: Iterable[str]) -> bool:
    """Whether the font that matplotlib takes for a family has all these letters."""
    manager = require_extra("matplotlib.font_manager", extra="draw")
    path = manager.findfont(manager.FontProperties(family=[family]))
    known = _read_code_points(str(path), getattr(path, "face_index", 0))  # a .ttc holds several faces
    return all(ord(c) in known for c in characters)


def _choose_families(characters: set[str]) -> tuple[list[str], set[str]]:
    manager = require_extra("matplotlib.font_manager", extra="draw")
    families = list(dict.fromkeys([*manager.FontProperties().get_family(), FALLBACK_FONT]))
    characters = {c for c in characters if not any(covers(family, c) for family in families)}
    flavor, missing = _choose_cjk_language(characters), set()
    for c in sorted(characters):
        if any(covers(family, c) for family in families[2:]):
            continue
        found = _find_family(c, flavor)
        families += [found] if found else []
        missing |= set() if found else {c}
    return families, missing


def _choose_cjk_language(characters: set[str]) -> str:
    scripts = {_script_of(c) for c in characters}
    if scripts & {"HIRAGANA", "KATAKANA"}:
        return "japanese"
    return "korean" if "HANGUL" in scripts and "CJK" not in scripts else "chinese"


@cache
def _find_family(c: str, cjk_language: str) -> str | None:
    script = _script_of(c)
    wanted = CJK_FONTS[cjk_language] if script in CJK_SCRIPTS else (script, "Emoji", "Symbol")

    def rank(entry: Any) -> tuple[Any, ...]:
        place = next((i for i, word in enumerate(wanted) if word.lower() in entry.name.lower()), len(wanted))
        plain = entry.style == "normal" and entry.weight in (400, "normal", "regular")
        return place, not plain, "Mono" in entry.name, "Serif" in entry.name, entry.name

    for entries in _iter_font_lists():
        fit = (entry for entry in entries if not any(word in entry.name for word in UNUSABLE_FONTS))
        for entry in sorted(fit, key=rank):
            if ord(c) in _read_code_points(entry.fname, getattr(entry, "index", 0)):
                return str(entry.name)
    return None


def _iter_font_lists() -> Iterator[list[Any]]:
    """First the fonts that matplotlib remembers, then those installed since it last looked."""
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
    """The code points of a font; none if it cannot be drawn at any size."""
    load = require_extra("matplotlib.ft2font", extra="draw").FT2Font
    try:
        font = load(path, face_index=index) if index else load(path)
    except (OSError, RuntimeError, TypeError):
        return frozenset()
    return frozenset(font.get_charmap()) if getattr(font, "scalable", True) else frozenset()


def _script_of(c: str) -> str:
    """The first word of a character's name, which is that of its script: CJK, DEVANAGARI, ARABIC."""
    return unicodedata.name(c, "UNKNOWN").split()[0].split("-")[0]


def _is_invisible(c: str) -> bool:
    return unicodedata.category(c) == "Cf" or 0xFE00 <= ord(c) <= 0xFE0F


def _warn_missing(missing: set[str]) -> None:
    by_font: dict[str, str] = {}
    for c in sorted(missing):
        if not _is_invisible(c):
            by_font[_suggest_font(c)] = by_font.get(_suggest_font(c), "") + c
    for font, letters in by_font.items():
        if font not in _warned_fonts:
            _warned_fonts.add(font)
            shown = ", ".join(f"{c} (U+{ord(c):04X})" for c in letters[:3]) + (" ..." if letters[3:] else "")
            warnings.warn(
                f"No font here has {shown}; boxes stand for what is missing. Install {font}.",
                MissingGlyphsWarning,
                stacklevel=2,
            )


def _suggest_font(c: str) -> str:
    script = _script_of(c)
    if script == "UNKNOWN":
        return "a font that has them, if there is one"
    if script in CJK_SCRIPTS:
        return "Noto Sans CJK (Debian, Ubuntu: fonts-noto-cjk)"
    if unicodedata.category(c) == "So":
        return "Noto Emoji, the one without color, or Symbola (Debian, Ubuntu: fonts-symbola)"
    return (
        f"a font for this script, such as Noto Sans {script.capitalize()} (Debian, Ubuntu: fonts-noto-core)"
    )


MAX_LABEL_WIDTH, MAX_TITLE_WIDTH, MIN_LINE_WIDTH = 18, 90, 32  # columns


CHAR_WIDTH = 0.6  # of the font size: about the width of a letter


FONT_SIZE, SMALL_FONT_SIZE = 8.0, 6.0  # points


AxisLabels = tuple[list[str] | None, list[str] | None]  # of the rows and of the columns


PanelStarts = Sequence[float] | None


LABEL_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)


def escape_text(*texts: str) -> tuple[list[str], dict[str, Any]]:
    """The texts as they shall be drawn, and what to tell matplotlib so that it draws them so."""
    drawn, families = choose_fonts([_reorder_right_to_left(text) for text in texts])
    return drawn, {"family": families, "parse_math": False, "usetex": False}


def show_control_characters(text: str) -> str:
    """A text in which spaces at the ends and control characters can be seen.

    >>> show_control_characters(" the"), show_control_characters("a\\n\\x1b")
    ('␣the', 'a↵\\\\x1b')
    """
    named = {"\n": "↵", "\t": "⇥"}
    text = "".join(
        named.get(c, repr(c)[1:-1]) if unicodedata.category(c) in ("Cc", "Cs") else c for c in text
    )
    inner = text.strip()
    start = len(text) - len(text.lstrip())
    return "␣" * start + inner + "␣" * (len(text) - start - len(inner))


def draw_title(
    axes: Any, text: str | None, size: float = FONT_SIZE + 1, width: float | None = None, **more: Any
) -> None:
    """Write a title, if there is one, in lines as wide as the axes or so many inches."""
    if text:
        inches = axes.get_position(original=True).width if width is None else width
        columns = max(MIN_LINE_WIDTH, int(inches * 72 / (CHAR_WIDTH * size)))
        drawn, how = escape_text(
            *wrap_lines(truncate(show_control_characters(text), MAX_TITLE_WIDTH), columns)
        )
        axes.set_title("\n".join(drawn), fontsize=size, **{"loc": "left", "color": INK_COLOR, **how, **more})


def draw_headline(layout: FigureLayout, text: str | None) -> None:
    """Write a title above everything that is on the sheet so far."""
    if text:
        edge = layout.figure.get_tightbbox(layout.figure.canvas.get_renderer())
        axes = layout.add_axes(edge.x0, -edge.y1 - 0.02, 0.01, 0.01)
        axes.set_axis_off()
        draw_title(axes, text, width=edge.width, color=layout.ink_color)


def label_columns(
    axes: Any, labels: Sequence[str] | None, count: int, cell_size: float, starts: PanelStarts = None
) -> None:
    """Label the columns, whose cells are so many inches wide: above them, turned only if they would touch.

    If several matrices stand in the axes, `starts` says where each begins, in inches.
    """
    axes.xaxis.tick_top()
    places, texts, size, room = _choose_labels(labels, count, cell_size)
    drawn, how = escape_text(*texts)
    need_turn = max((text_width(text) * CHAR_WIDTH * size / 72 for text in texts), default=0.0) > 0.92 * room
    if need_turn and room > 0.2:
        how |= {"rotation": 45, "ha": "left", "va": "bottom", "rotation_mode": "anchor"}
    elif need_turn:
        how |= {"rotation": 90}
    axes.set_xticks(*_repeat_labels(places, drawn, cell_size, starts), fontsize=size, **how)
    axes.tick_params(axis="x", length=0 if labels else 2, width=0.5, pad=2)


def label_axes(
    axes: Any, labels: AxisLabels, counts: tuple[int, int], cell_size: tuple[float, float]
) -> None:
    """Label rows and columns; where there are no labels, number them and say what they are."""
    label_rows(axes, labels[0], counts[0], cell_size[0])
    label_columns(axes, labels[1], counts[1], cell_size[1])
    if labels[0] is None:
        axes.set_ylabel("query", fontsize=FONT_SIZE)
    if labels[1] is None:
        axes.xaxis.set_label_position("top")
        axes.set_xlabel("key", fontsize=FONT_SIZE)


def number_columns(axes: Any, count: int, cell_size: float) -> None:
    """Number the columns, below them."""
    places, texts, size, _ = _choose_labels(None, count, cell_size)
    axes.set_xticks(places, texts, fontsize=size)
    axes.tick_params(axis="x", length=2, width=0.5, pad=2)


def label_rows(
    axes: Any, labels: Sequence[str] | None, count: int, cell_size: float, starts: PanelStarts = None
) -> None:
    """Label the rows, whose cells are so many inches high."""
    places, texts, size, _ = _choose_labels(labels, count, cell_size)
    drawn, how = escape_text(*texts)
    axes.set_yticks(*_repeat_labels(places, drawn, cell_size, starts), fontsize=size, **how)
    axes.tick_params(axis="y", length=0 if labels else 2, width=0.5, pad=2)


def remove_labels(axes: Any) -> None:
    axes.set_xticks([])
    axes.set_yticks([])


def _choose_labels(
    labels: Sequence[str] | None, count: int, cell_size: float
) -> tuple[list[int], list[str], float, float]:
    """Which places get a label, the labels, their size in points and the room of each in inches."""
    numbers = labels is None
    size = FONT_SIZE if cell_size >= 1.15 * FONT_SIZE / 72 else SMALL_FONT_SIZE
    line = (2.6 if numbers else 1.15) * size / 72  # numbers stand upright, and need not be many
    step = next((step for step in LABEL_STEPS if step * cell_size >= line), count)
    places = list(range(0, count, step))
    texts = [
        str(i) if labels is None else truncate(show_control_characters(labels[i]), MAX_LABEL_WIDTH)
        for i in places
    ]
    return places, texts, size, step * cell_size


def _repeat_labels(
    places: list[int], texts: list[str], cell_size: float, starts: PanelStarts
) -> tuple[Sequence[float], list[str]]:
    if starts is None:
        return places, texts
    return [start + (i + 0.5) * cell_size for start in starts for i in places], texts * len(starts)


def _reorder_right_to_left(text: str) -> str:
    """Right to left where matplotlib does not do that itself, which it does from 3.11 on.

    Only texts that are entirely right to left are turned, and Arabic letters are not joined then.
    """
    if hasattr(require_extra("matplotlib.ft2font", extra="draw"), "__libraqm_version__"):
        return text
    kinds = {unicodedata.bidirectional(c) for c in text}
    if kinds & {"R", "AL"} and not kinds & {"L", "EN", "AN"}:
        return "".join(reversed(grapheme_clusters(text)))
    return text
