"""Chinese and Japanese, whose words stand without spaces between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
KANA = "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"
MARKS = "\u3000-\u3004\u3008-\u3030\u303d\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"  # their punctuation
UNREADABLE = "\ufffd"  # for a token that stands for any character
LETTER, CHARACTER = re.compile(f"[{HAN}{KANA}]"), re.compile(f"[{HAN}{KANA}{MARKS}]")
PIECE = re.compile(f"[{HAN}{KANA}{MARKS}]|[^{HAN}{KANA}{MARKS}]+")
FEW = 4  # characters between spaces, if somebody put them there to cut words


def words(text: str) -> list[str]:
    """What stands between spaces; of text that has none, each character, and what is in another script.

    >>> words("We met in 北京."), words("我用iPhone。"), words("我 用 手机 。")
    (['We', 'met', 'in', '北', '京', '.'], ['我', '用', 'iPhone', '。'], ['我', '用', '手机', '。'])
    """
    spaced = text.split()
    return spaced if spaces_tell(spaced) else [piece for word in spaced for piece in PIECE.findall(word)]


def spaces_tell(spaced: Sequence[str]) -> bool:
    """Whether words are what stands between spaces: in other scripts, and where there is one every few characters.

    >>> [spaces_tell(text.split()) for text in ("Good morning", "科学家 一直 猜想 。", "你好。 我是学生。")]
    [True, True, False]
    """
    if not any(map(LETTER.search, spaced)):
        return True
    neighbors = pairwise(spaced)
    between = sum(bool(CHARACTER.match(one[-1:]) and CHARACTER.match(other)) for one, other in neighbors)
    return between > 0 and sum(len(CHARACTER.findall(word)) for word in spaced) < FEW * (between + 1)


def apart(group: Sequence[int], surfaces: Sequence[str]) -> list[list[int]]:
    """The tokens of what stands between two spaces, by words: one token each, or several of another script.

    >>> apart(range(5), ["", "我", "用", "i", "Phone"])
    [[0, 1], [2], [3, 4]]

    An unknown token stands for one character that nobody knows, so it is a word of its own.
    """
    parts: list[list[int]] = [[]]
    before = ""  # the last character so far: a mere sign of a space is none, so what follows it stays with it
    for position in group:
        here = surfaces[position]
        if before and here and (_alone(before) or _alone(here[0])):
            parts.append([])
        parts[-1].append(position)
        before = here[-1:] or before
    return parts


def _alone(character: str) -> bool:
    return character == UNREADABLE or CHARACTER.match(character) is not None
