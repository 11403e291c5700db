"""Settings from words: `key=value` as people type it, checked against the fields of a dataclass."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from regard.errors import ConfigError

Kind = TypeVar("Kind")

YES, NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def settle(kind: type[Kind], defaults: Mapping[str, Any], words: Iterable[str] = ()) -> Kind:
    """Settings of a kind: its own defaults, then those given, then what the words say.

    >>> from regard.training import Settings
    >>> settle(Settings, {"steps": 50}, ["lr=0.01", "device=cpu"]).lr
    0.01
    >>> settle(Settings, {}, ["stepps=50"])
    Traceback (most recent call last):
    regard.errors.ConfigError: There is no setting 'stepps'; did you mean steps or eps?
    """
    hints = get_type_hints(kind)
    chosen = {name: given(kind, name, value, hints) for name, value in defaults.items()}
    for name, value in map(parted, words):
        chosen[name] = read(name, value, hint_of(kind, name, hints))
    try:
        return kind(**chosen)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from None


def parted(word: str) -> tuple[str, str]:
    """The name and the value of a setting as it is typed."""
    name, equals, value = word.partition("=")
    if not equals:
        raise ConfigError(f"{word!r} is not a setting; settings are written key=value, such as lr=0.001")
    return name.strip().replace("-", "_"), value.strip()


def written(value: Any) -> str:
    """A value as it is typed: on, off, none, a,b.

    >>> written(True), written(None), written(["a.en", "a.de"]), written(1)
    ('on', 'none', 'a.en,a.de', '1')
    """
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)


def given(kind: type[Any], name: str, value: Any, hints: Mapping[str, Any]) -> Any:
    """A value that comes from Python: the same refusals as for words, and nothing is guessed."""
    hint = hint_of(kind, name, hints)
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if any(_is(value, choice) for choice in choices):
        return value
    raise ConfigError(f"{name}={value!r} is not possible; {name} is {' or '.join(map(_called, choices))}")


def hint_of(kind: type[Any], name: str, hints: Mapping[str, Any]) -> Any:
    """The type of a setting; a name that there is not is refused."""
    known = [field.name for field in fields(kind)]
    if name not in known:
        raise ConfigError(f"There is no setting {name!r}; {nearest(name, known)}")
    return hints[name]


def _is(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint) and isinstance(value, str)
    if get_origin(hint) is tuple:
        return isinstance(value, tuple | list) and all(isinstance(part, str) for part in value)
    if hint is bool or isinstance(value, bool):
        return hint is bool and isinstance(value, bool)
    if hint is float:
        return isinstance(value, int | float)
    return isinstance(value, hint)


def _called(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of {', '.join(get_args(hint))}"
    if get_origin(hint) is tuple:
        return "a tuple of texts"
    named = {
        bool: "True or False",
        int: "a whole number",
        float: "a number",
        str: "a text",
        type(None): "None",
    }
    return named[hint]


def restore(kind: type[Kind], record: Mapping[str, Any]) -> Kind:
    """Settings as JSON kept them; lists become the tuples they were."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(record) - known):
        raise ConfigError(
            f"the run has settings that this version of regard does not know: {', '.join(unknown)}"
        )
    hints = get_type_hints(kind)
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}
    return kind(**{key: given(kind, key, value, hints) for key, value in plain.items()})


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
            raise ConfigError(
                f"{name}={value} is not possible; {name} is one of {', '.join(map(str, choices))}"
            )
        return value
    if origin is tuple:
        return tuple(read(name, part.strip(), choices[0]) for part in value.split(",") if part.strip())
    if hint is bool:
        if value.lower() not in YES + NO:
            raise ConfigError(f"{name}={value} is not possible; {name} is on or off")
        return value.lower() in YES
    what = {int: "a whole number", float: "a number"}.get(hint)
    try:
        return _whole(value) if hint is int else hint(value)
    except (ValueError, OverflowError):
        shown = value if len(value) < 40 else value[:36] + " ..."
        raise ConfigError(f"{name}={shown} is not possible; {name} is {what}") from None


def _whole(value: str) -> int:
    """3000, 3_000, 3,000 and 3e3 are the same whole number."""
    if re.fullmatch(r"[-+]?\d{1,3}(,\d{3})+", value):
        value = value.replace(",", "")
    try:
        return int(value)
    except ValueError:
        number = float(value)
        if number != int(number):
            raise ValueError from None
        return int(number)
