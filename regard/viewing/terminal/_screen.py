"""What a terminal can show: how wide it is, whether it wants color, and text that stays where it is put."""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
from collections.abc import Mapping

from regard.errors import UsageError
from regard.viewing._letters import JOINER, clusters, is_mark, shortened, width

SHADES = "░▒▓█"
# From dark blue to yellow in the 256 colors that terminals agree on; even a colorblind eye sees it brighten.
COLORS = (17, 18, 54, 55, 91, 127, 163, 169, 174, 180, 222, 229)
CELL = 2  # characters: about as wide as a line is high
LONGEST_LABEL = 12
LEGEND = {
    "en": "blank 0, {} up to {:.2g}, {} up to {:.2g}",
    "zh": "空白为 0，{} 至多 {:.2g}，{} 至多 {:.2g}",
}
ESCAPE = r"\x1b\[[0-9;]*m"


def wants_color() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def columns_of(given: int | None) -> int:
    """How many columns to use: those asked for, or those of the terminal."""
    return shutil.get_terminal_size().columns if given is None else max(1, given)


def step(weight: float, top: float, steps: int) -> int:
    """Which of so many steps a weight is on, from 1; 0 is for exactly 0."""
    if weight == 0:
        return 0
    return steps if weight >= top else max(1, math.ceil(weight / top * steps))


def cell(weight: float, top: float, color: bool, size: int = CELL) -> str:
    """One weight as a shade, or as a color behind a space."""
    if math.isnan(weight):
        return "?" * size
    on = step(weight, top, len(COLORS if color else SHADES))
    if not on:
        return " " * size
    return f"\x1b[48;5;{COLORS[on - 1]}m{' ' * size}\x1b[0m" if color else SHADES[on - 1] * size


def spoken(words: Mapping[str, str], language: str) -> str:
    """The words of a language; one that there is not is refused."""
    if language not in words:
        raise UsageError(f"A picture for the terminal speaks 'en' or 'zh', not {language!r}.")
    return words[language]


def legend(top: float, color: bool, language: str = "en") -> str:
    """What the shades mean."""
    steps = len(COLORS) if color else len(SHADES)
    size = CELL if color else 1
    least, most = cell(top / steps, top, color, size), cell(top, top, color, size)
    return spoken(LEGEND, language).format(least, top / steps, most, top)


def clean(label: str, room: int = LONGEST_LABEL) -> str:
    """A label that cannot move the cursor, no longer than there is room for.

    Of letters that terminals disagree about how wide they are, such as a family joined of emoji, the first is shown.

    >>> clean("a\\x1b[2J"), clean("internationalization")
    ('a·[2J', 'internation…')
    """
    label = "".join(c if _is_harmless(c) else "·" for c in label[: 16 * room])
    return shortened("".join(_first(letter) for letter in clusters(label)), room)


def fitting(lines: list[str], room: int) -> list[str]:
    """The lines without spaces at their ends, each cut where it would run over the edge."""
    lines = [line.rstrip(" ") for line in lines]
    return [line if seen_width(line) <= room else shortened(re.sub(ESCAPE, "", line), room) for line in lines]


def seen_width(line: str) -> int:
    """How wide a line is on the screen, its colors not counted."""
    return width(re.sub(ESCAPE, "", line))


def _is_harmless(c: str) -> bool:
    return c.isprintable() or c == JOINER


def _first(letter: str) -> str:
    if is_mark(letter[0]) or letter[0] == JOINER:
        return "·"  # nothing there to stand on
    return letter.partition(JOINER)[0]
