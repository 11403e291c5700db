"""Output of commands: tables, JSON, status lines, and lines that wrap text with Chinese and Latin letters.

Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

import typer

from regard.config import Option, format_conditions, load_translations
from regard.files import replace_non_finite

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "describe_group", "describe_option", "echo_text", "escape_controls", "line_breaks", "make_table", "print_blocks",
    "print_json", "print_status", "print_summaries", "wrap_text",
]  # fmt: skip

OPENING = "（【《〈「『“‘([{"  # what follows stays on the same line
CONTROLS = re.compile(r"\x1b\[[0-9;]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # a color, or one control character
CLOSING = "，。、；：！？）】》〉」』”’…—％,.;:!?)]}%"  # stays on the line of what precedes it


def escape_controls(text: str) -> str:
    """Replace control characters, which could move the cursor or rename the window; colors remain.

    Args:
        text: may come from the run or the vocabulary of a stranger

    Example:
        >>> escape_controls("\\x1b[1mbold\\x1b[0m, \\x1b]0;title\\x07")
        '\\x1b[1mbold\\x1b[0m, \\\\x1b]0;title\\\\x07'
    """
    return CONTROLS.sub(lambda match: match[0] if len(match[0]) > 1 else repr(match[0])[1:-1], text)


def echo_text(text: str = "", *, end: str = "\n") -> None:
    """Print a text as it is, to a terminal without control characters.

    Args:
        text: of a model
        end: printed after it
    """
    typer.echo(escape_controls(text) if sys.stdout.isatty() else text, nl=False)
    typer.echo(end, nl=False)


def print_status(sentence: str) -> None:
    """Print a line that is not part of the result.

    Args:
        sentence: printed to standard error
    """
    typer.echo(escape_controls(sentence), err=True)


def print_json(result: dict[str, Any], indent: int | None = 2) -> None:
    """Print one JSON object; NaN and infinity become null.

    Args:
        result: plain values
        indent: spaces of a level; None: all in one line
    """
    typer.echo(json.dumps(replace_non_finite(result), ensure_ascii=False, indent=indent))


WORDS = {
    "separator": ("; ", "；"),
    "ge": ("at least", "不小于"),
    "gt": ("above", "大于"),
    "le": ("at most", "不大于"),
    "lt": ("below", "小于"),
    "default": ("default: ", "默认："),
    "when": ("only with ", "仅当 "),
}


def describe_option(item: Option, language: str = "en", *, with_allowed: bool = False) -> str:
    """What an option is, with its bounds, its default and where it is read.

    Args:
        item: the option
        language: "en" or "zh"
        with_allowed: also the allowed values; the help of a command has them next to its name

    Example:
        >>> describe_option(Option("lr", float, 0.1, "Sizes", "learning rate", {"gt": 0}))
        'learning rate [above 0; default: 0.1]'
    """
    words = {name: texts[language == "zh"] for name, texts in WORDS.items()}
    facts = [", ".join(item.allowed)] if with_allowed and item.allowed else []
    facts += [f"{words[name]} {bound:,}" for name, bound in item.bounds.items()]
    if item.auto or item.default not in (None, (), []):
        facts.append(f"{words['default']}{item.format(item.default)}")
    if item.when:
        facts.append(f"{words['when']}{format_conditions(item.when)}")
    return item.localized_help(language) + (f" [{words['separator'].join(facts)}]" if facts else "")


def describe_group(group: str, language: str = "en") -> str:
    """The heading of the options that one class declares.

    Args:
        group: the name of the class
        language: "en" or "zh"

    Example:
        >>> describe_group("TextClassificationConfig"), describe_group("VisualQAConfig")
        ('Text classification options', 'Visual QA options')
    """
    first, *rest = re.findall("[A-Z]+(?![a-z])|[A-Z][a-z]+", group.removesuffix("Config"))
    words = [first, *(word if word.isupper() else word.lower() for word in rest), "options"]
    return load_translations(language).get(f"Group.{group}", " ".join(words))


def print_blocks(*parts: RenderableType) -> None:
    """Print for people: wrapped to the terminal, styled if it is one, without trailing spaces.

    Args:
        parts: texts and renderables of rich, one below the other
    """
    from rich.console import Console, Group

    out = Console(highlight=False, markup=False, emoji=False)
    with out.capture() as text:
        out.print(Group(*(wrap_text(part) if isinstance(part, str) else part for part in parts)))
    lines = text.get().removesuffix("\n").split("\n")
    typer.echo(escape_controls("\n".join(line.rstrip() for line in lines)), color=True)


def print_summaries(kind: str, entries: Mapping[str, Any], as_json: bool, lang: str) -> None:
    """Print what there is of a kind, with one sentence each.

    Args:
        kind: what they are, the key in JSON
        entries: by name, each with a `summary` and a `summary_zh`
        as_json: print JSON
        lang: "en" or "zh"
    """
    summaries = {name: one.summary_zh if lang == "zh" else one.summary for name, one in entries.items()}
    if as_json:
        print_json({kind: [{"name": name, "summary": text} for name, text in summaries.items()]})
    else:
        print_blocks(make_table(summaries.items()))


def make_table(
    rows: Iterable[Sequence[str]],
    head: Sequence[str] = (),
    numbers: Iterable[int] = (),
    styles: Sequence[str] = ("bold",),
) -> Table:
    """A table for `print_blocks`.

    Args:
        rows: cells
        head: titles of the columns
        numbers: columns that are aligned to the right
        styles: of the first columns, which are not wrapped
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=bool(head), padding=(0, 2, 0, 0))
    rows, right = [tuple(row) for row in rows], set(numbers)
    for column in range(len(head) or len(rows[0]) if head or rows else 0):
        table.add_column(
            Text(head[column] if head else ""),
            overflow="fold",
            justify="right" if column in right else "left",
            style=styles[column] if column < len(styles) else "",
            no_wrap=column < len(styles),
        )
    for row in rows:
        table.add_row(*map(wrap_text, row))
    return table


def wrap_text(text: str) -> Text:
    """Text that breaks between Chinese characters and at spaces, and never inside a word that fits into a line.

    Args:
        text: Chinese, Latin or both
    """
    return _wrapped_text_class()(text)


@cache
def _wrapped_text_class() -> type[Text]:
    from rich.containers import Lines
    from rich.text import Text

    class WrappedText(Text):
        def wrap(self, console: Any, width: int, **options: Any) -> Lines:
            if options.get("no_wrap"):
                return super().wrap(console, width, **options)
            parts = Lines()
            for line in self.split(allow_blank=True):
                parts.extend(line.divide(line_breaks(line.plain, width)))
            for part in parts:
                part.rstrip()  # rich counts characters, not columns, and would cut the line for its last space
            return Text("\n").join(parts).wrap(console, width, **options)

    return WrappedText


def line_breaks(text: str, width: int) -> list[int]:
    """The indices at which lines of at most `width` columns begin, after the first line.

    Args:
        text: one line
        width: columns of a line; a Chinese character takes two

    Example:
        >>> line_breaks("混合读取：layers=cnn,gru。", 16), line_breaks("layers=cnn,attention,gru", 16)
        ([5], [11])
    """
    from rich.cells import cell_len

    breaks: list[int] = []
    index = used = 0
    for piece in split_unbreakable(text):
        wide = cell_len(piece.rstrip()) > width
        for number, part in enumerate(_split_wide(piece, width) if wide else [piece]):
            if used and (used + cell_len(part.rstrip()) > width or (wide and not number)):
                breaks.append(index)
                used = 0
            index, used = index + len(part), used + cell_len(part)
    return breaks


def split_unbreakable(text: str) -> list[str]:
    """The parts of a text inside which no line breaks, each with the spaces after it.

    Example:
        >>> split_unbreakable("数字画面、MNIST 画面（data）。")
        ['数', '字', '画', '面、', 'MNIST ', '画', '面', '（data）。']
    """
    starts = [0, *(index for index in range(1, len(text)) if _can_break(*text[index - 1 : index + 1]))]
    return [text[first:last] for first, last in zip(starts, [*starts[1:], len(text)], strict=True)]


def _can_break(before: str, after: str) -> bool:
    if before.isspace() or after.isspace():
        return not after.isspace()
    if before in OPENING or after in CLOSING:
        return False
    return any(east_asian_width(letter) in "WF" for letter in (before, after))


def _split_wide(piece: str, width: int) -> Iterator[str]:
    """A piece that is wider than a line: split after its commas, or else anywhere."""
    from rich.cells import cell_len

    for part in re.findall(r"[^,]*,\s*|[^,]+", piece):
        yield from [part] if cell_len(part.rstrip()) <= width else part
