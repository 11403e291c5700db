"""Settings from words: `key=value` as people type it, checked against the fields of a dataclass."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Kind = TypeVar("Kind")

YES, NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class SettingError(ValueError):
    """A setting that does not exist, or cannot have this value."""


def settle(kind: type[Kind], defaults: Mapping[str, Any], words: Iterable[str] = ()) -> Kind:
    """Settings of a kind: its own defaults, then those given, then what the words say.

    >>> from regard.training import Settings
    >>> settle(Settings, {"steps": 50}, ["lr=0.01", "device=cpu"]).lr
    0.01
    >>> settle(Settings, {}, ["stepps=50"])
    Traceback (most recent call last):
    regard.recipes._parse.SettingError: There is no setting 'stepps'; did you mean steps?
    """
    chosen = dict(defaults)
    hints = get_type_hints(kind)
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise SettingError(f"{word!r} is not a setting; settings are written key=value, such as lr=0.001")
        name = name.strip().replace("-", "_")
        known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
        if name not in known:
            raise SettingError(f"There is no setting {name!r}; {nearest(name, known)}")
        chosen[name] = read(name, value.strip(), hints[name])
    try:
        return kind(**chosen)
    except SettingError:
        raise
    except ValueError as error:
        raise SettingError(str(error)) from None


def restore(kind: type[Kind], record: Mapping[str, Any]) -> Kind:
    """Settings as JSON kept them; lists become the tuples they were."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(record) - known):
        raise SettingError(
            f"the run has settings that this version of regard does not know: {', '.join(unknown)}"
        )
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in record.items()})


def nearest(name: str, known: list[str], what: str = "settings") -> str:
    """The names that come closest, as the end of a sentence."""
    close = difflib.get_close_matches(name, known, 3, 0.5)
    if not close:
        return f"the {what} are {', '.join(known)}"
    return f"did you mean {' or '.join(close)}?"


def read(name: str, value: str, hint: Any) -> Any:
    """The value of a setting from what was typed."""
    origin, choices = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value.lower() == "none" and type(None) in choices:
            return None
        (hint,) = (choice for choice in choices if choice is not type(None))
        return read(name, value, hint)
    if origin is Literal:
        if value not in choices:
            raise SettingError(
                f"{name}={value} is not possible; {name} is one of {', '.join(map(str, choices))}"
            )
        return value
    if origin is tuple:
        return tuple(read(name, part.strip(), choices[0]) for part in value.split(",") if part.strip())
    if hint is bool:
        if value.lower() not in YES + NO:
            raise SettingError(f"{name}={value} is not possible; {name} is on or off")
        return value.lower() in YES
    what = {int: "a whole number", float: "a number"}.get(hint)
    try:
        return _whole(value) if hint is int else hint(value)
    except ValueError:
        raise SettingError(f"{name}={value} is not possible; {name} is {what}") from None


def _whole(value: str) -> int:
    """3000, 3_000, 3,000 and 3e3 are the same whole number."""
    try:
        return int(value.replace(",", ""))
    except ValueError:
        number = float(value)
        if number != int(number):
            raise ValueError from None
        return int(number)
