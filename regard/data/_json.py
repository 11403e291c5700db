"""What JSON calls its values."""

from __future__ import annotations

NAMES = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}


def called(value: object) -> str:
    """A value of JSON in words, for a sentence about one that is out of place.

    >>> called(7), called(None), called(["a"])
    ('a number', 'null', 'a list')
    """
    return NAMES.get(type(value), "null")
