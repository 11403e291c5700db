"""Configuration: frozen dataclasses whose fields carry help, bounds, choices and flags, and `key=value` overrides."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from regard._synonyms import nearest_options
from regard.errors import ConfigError, closest

__all__ = ["Config", "Option", "load_translations", "option"]

ConfigT = TypeVar("ConfigT", bound="Config")
TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
TYPE_NAMES = {bool: "on or off", int: "an integer", float: "a number", str: "a text", type(None): "none"}
BOUNDS = {
    "ge": ("at least", lambda value, bound: value >= bound),
    "gt": ("above", lambda value, bound: value > bound),
    "le": ("at most", lambda value, bound: value <= bound),
    "lt": ("below", lambda value, bound: value < bound),
}
MAX_LISTED = 12  # options in an error message
NOT_PATHS = ("download",)  # values of an option with `path=True` that name no file


def option(
    default: Any,
    help: str,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    choices: Iterable[str] = (),
    infinite: bool = False,
    when: Mapping[str, object] | None = None,
    inherit: bool = False,
    resumable: bool = False,
    neutral: bool = False,
    path: bool = False,
    auto: bool = False,
) -> Any:
    """A field of a `Config`.

    Args:
        default: the value if none is given
        help: one line for `--show` and the docs
        ge, gt, le, lt: bounds of a number; checked whenever a config is made
        choices: the allowed values of a text whose type is not a Literal
        infinite: whether a number may be infinite
        when: other options with the values under which this one is read; elsewhere it is reported as unused
        inherit: copied from the run given by `--init-from`
        resumable: may be changed by `regard resume`
        neutral: does not change what is learned (device, logging), so that runs that differ in it can be compared
        path: a file or folder; kept as an absolute path in run.json
        auto: None, or no file, means a value that follows from other options, and is written "auto"

    Example:
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Sizes(Config):
        ...     layers: int = option(2, "number of layers", ge=1)
        >>> Sizes.from_overrides(["layers=4"]).layers
        4
        >>> Sizes(layers=0)
        Traceback (most recent call last):
        regard.errors.ConfigError: invalid value '0' for layers: must be at least 1
    """
    bounds = {"ge": ge, "gt": gt, "le": le, "lt": lt}
    metadata: dict[str, Any] = {"help": help, "choices": tuple(choices), "when": dict(when or {})}
    metadata |= {"bounds": {name: bound for name, bound in bounds.items() if bound is not None}}
    metadata |= {"infinite": infinite, "inherit": inherit, "resumable": resumable}
    metadata |= {"neutral": neutral, "path": path, "auto": auto}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Option:
    """What is known of one field: for the command line, the docs, the HTTP schema and error messages.

    Args:
        name: the name of the field
        type: its type annotation
        default: the default value
        group: the class that defines it; key of the translations
        help: one line for the command line and the docs
        bounds: limits of a number: ge, gt, le, lt
        choices: allowed strings
        infinite, when, inherit, resumable, neutral, path, auto: as for `option`

    Example:
        >>> from regard.training import TrainingConfig
        >>> TrainingConfig.option("steps").bounds
        {'ge': 1}
    """

    name: str
    type: Any
    default: Any
    group: str
    help: str = ""
    bounds: Mapping[str, float] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    infinite: bool = False
    when: Mapping[str, object] = field(default_factory=dict)
    inherit: bool = False
    resumable: bool = False
    neutral: bool = False
    path: bool = False
    auto: bool = False

    @property
    def allowed(self) -> tuple[str, ...]:
        """The allowed values, as they are typed; empty if they cannot be listed."""
        kinds = _alternatives(self.type)
        values = self.choices or tuple(
            str(value) for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)
        )
        return (*values, self.format(None)) if values and type(None) in kinds else values

    def localized_help(self, language: str) -> str:
        """The help in a language ("en", "zh"); in English where there is no translation."""
        return load_translations(language).get(f"{self.group}.{self.name}", self.help)

    def format(self, value: Any) -> str:
        """A value of this option as it is typed."""
        return "auto" if self.auto and value in (None, (), []) else format_value(value)

    def parse(self, text: str) -> Any:
        """The value of what was typed."""
        return _parse(self, text, self.type)

    def check(self, value: Any) -> None:
        """Raise ConfigError if the option cannot have this value."""
        kinds = _alternatives(self.type)
        if not any(_matches(value, kind) for kind in kinds):
            raise self.error(value, "expected " + " or ".join(map(_type_name, kinds)) + self._closest(value))
        if self.choices and isinstance(value, str) and value not in self.choices:
            raise self.error(value, f"expected one of {', '.join(self.choices)}{self._closest(value)}")
        if isinstance(value, int | float) and not isinstance(value, bool):
            unbounded = isinstance(value, float) and not math.isfinite(value)
            if unbounded and (math.isnan(value) or not self.infinite):
                raise self.error(value, "must be a finite number")
            for name, bound in self.bounds.items():
                words, holds = BOUNDS[name]
                if not holds(value, bound):
                    form = "," if isinstance(bound, int) else "g"
                    raise self.error(value, f"must be {words} {bound:{form}}")

    def error(self, value: Any, why: str) -> ConfigError:
        """The error for a value of this option."""
        text = format_value(value)
        text = text if len(text) < 40 else text[:36] + " ..."
        return ConfigError(f"invalid value {text!r} for {self.name}: {why}", option=self.name)

    def _closest(self, value: Any) -> str:
        names = closest(value, self.allowed) if isinstance(value, str) else []
        return f"; did you mean {' or '.join(names)}?" if names else ""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Base class of every configuration; subclasses declare fields with `option` and may override `validate`.

    Example:
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Sizes(Config):
        ...     layers: int = option(2, "number of layers", ge=1)
        >>> Sizes.from_overrides(["layers=4"]).to_dict()
        {'layers': 4}
    """

    def __new__(cls: type[ConfigT], *args: Any, **values: Any) -> ConfigT:
        for name in set(values).difference(item.name for item in cls.options()):
            cls.option(name)  # an error that names the nearest option, where Python names none
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for item in self.options():
            item.check(getattr(self, item.name))
        self.validate()

    def validate(self) -> None:
        """Check what involves several fields; raise ConfigError."""

    def resolve(self: ConfigT) -> ConfigT:
        """The same with None replaced by the value that goes with the other options."""
        return self

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """The options in the order of their definition."""
        return _options(cls)  # type: ignore[arg-type]

    @classmethod
    def option(cls, name: str) -> Option:
        """The option of that name; ConfigError with suggestions if there is none."""
        items = {item.name: item for item in cls.options()}
        if name not in items:
            known = list(items)
            names, all_names = nearest_options(name, known), f"; choose from {', '.join(known)}"
            all_names = "; `regard train RECIPE --show` lists them all" if len(known) > MAX_LISTED else all_names
            hint = f"; did you mean {' or '.join(names)}?" if names else all_names
            raise ConfigError(f"no option {name!r}{hint}", option=name, suggestions=names)
        return items[name]

    def error(self, name: str, why: str) -> ConfigError:
        """The error for the value of an option that does not fit the other options."""
        return self.option(name).error(getattr(self, name), why)

    @classmethod
    def from_overrides(cls: type[ConfigT], overrides: Iterable[str] = (), **values: Any) -> ConfigT:
        """A resolved configuration: defaults, then `values`, then `key=value` texts."""
        values = {name: _tuples(value) for name, value in values.items() if cls.option(name)}
        for text in overrides:
            name, value = split_override(text)
            values[name] = cls.option(name).parse(value)
        return cls(**values).resolve()

    @classmethod
    def from_dict(cls: type[ConfigT], values: Mapping[str, Any]) -> ConfigT:
        """Restore a configuration from the dict of `to_dict`, also after JSON."""
        if unknown := sorted(set(values) - {item.name for item in cls.options()}):
            raise ConfigError(f"this version of regard has no option {', '.join(unknown)}")
        return cls.from_overrides((), **values)

    def to_dict(self) -> dict[str, Any]:
        """The values by name."""
        return dataclasses.asdict(self)

    def replace(self: ConfigT, **changes: Any) -> ConfigT:
        """The same with other values."""
        return dataclasses.replace(self, **changes)

    def select(self, *names: str) -> dict[str, Any]:
        """Some options, as the arguments of the same names that a model or a loss takes."""
        return {name: getattr(self, name) for name in names}

    def differences(self, other: Config) -> dict[str, tuple[Any, Any]]:
        """Return the options that differ, each with its own and the other value."""
        values, others = self.to_dict(), other.to_dict()
        return {name: (value, others.get(name)) for name, value in values.items() if value != others.get(name)}

    def unused(self, names: Iterable[str]) -> dict[str, Mapping[str, object]]:
        """Of these options, those that nothing reads, each with the condition under which it is read."""
        conditions = ((name, self.option(name).when) for name in names)
        return {name: when for name, when in conditions if any(getattr(self, key) != one for key, one in when.items())}

    def refuse_unused(self, *names: str) -> None:
        """Raise ConfigError if one of these options was changed where nothing reads it."""
        for name, when in self.unused(names).items():
            if getattr(self, name) != self.option(name).default:
                raise self.error(name, f"needs {format_conditions(when)}")

    def inherit_from(self: ConfigT, other: Config | Mapping[str, Any]) -> ConfigT:
        """The same with the values of another run for options marked `inherit`."""
        other = other.to_dict() if isinstance(other, Config) else other
        names = [item.name for item in self.options() if item.inherit and item.name in other]
        return self.replace(**{name: _tuples(other[name]) for name in names})

    def resolve_paths(self: ConfigT) -> ConfigT:
        """The same with absolute paths for options marked `path`."""
        changes: dict[str, Any] = {}
        for item in self.options():
            value = getattr(self, item.name)
            if item.path and value is not None and value not in NOT_PATHS:
                changes[item.name] = tuple(map(_absolute, value)) if isinstance(value, tuple) else _absolute(value)
        return self.replace(**changes)


def split_override(text: str) -> tuple[str, str]:
    """The name and the value of a `key=value` text.

    Example:
        >>> split_override("batch-tokens = 10")
        ('batch_tokens', '10')
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{text!r} is not an option; write key=value, such as lr=0.001")
    return name.strip().replace("-", "_"), value.strip()


def format_value(value: Any) -> str:
    """A value as it is typed.

    Example:
        >>> format_value(True), format_value(None), format_value(["a.en", "a.de"]), format_value(1)
        ('on', 'none', 'a.en,a.de', '1')
    """
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)


def format_conditions(when: Mapping[str, object]) -> str:
    """The conditions under which an option is read, as they are typed.

    Example:
        >>> format_conditions({"model": "ntm"})
        'model=ntm'
    """
    return " and ".join(f"{name}={format_value(value)}" for name, value in when.items())


@cache
def _options(cls: type[Config]) -> tuple[Option, ...]:
    hints = get_type_hints(cls)
    groups: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        groups |= dict.fromkeys(inspect.get_annotations(base), base.__name__)
    return tuple(
        Option(item.name, hints[item.name], item.default, groups[item.name], **item.metadata)
        for item in dataclasses.fields(cls)
    )


@cache
def load_translations(language: str) -> dict[str, str]:
    """Texts by key: of options `Group.option`, where a group is the class that declares it; `Mechanism.name`, ...

    Args:
        language: "en" has none
    """
    if language == "en":
        return {}
    path = files("regard") / "locale" / f"{language}.json"
    return cast("dict[str, str]", json.loads(path.read_text(encoding="utf-8")))


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _matches(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_matches(part, get_args(hint)[0]) for part in value)
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float) if hint is float else isinstance(value, get_origin(hint) or hint)


def _type_name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    return "texts separated by commas" if get_origin(hint) is tuple else TYPE_NAMES[hint]


def _parse(item: Option, text: str, hint: Any) -> Any:
    kinds = _alternatives(hint)
    if len(kinds) > 1:
        if text.lower() in ("none", item.format(None)) and type(None) in kinds:
            return None
        return _parse(item, text, next(kind for kind in kinds if kind is not type(None)))
    if get_origin(hint) is Literal:
        item.check(text)
        return text
    if get_origin(hint) is tuple:
        parts = [] if item.auto and text.lower() == "auto" else [part.strip() for part in text.split(",")]
        return tuple(_parse(item, part, get_args(hint)[0]) for part in parts if part)
    if hint is bool:
        if text.lower() not in TRUE + FALSE:
            raise item.error(text, "expected on or off")
        return text.lower() in TRUE
    try:
        return _integer(text) if hint is int else hint(text)
    except (ValueError, OverflowError):
        raise item.error(text, f"expected {_type_name(hint)}") from None


def _integer(text: str) -> int:
    """3000, 3_000, 3,000 and 3e3 are the same integer."""
    text = text.replace(",", "") if re.fullmatch(r"[-+]?\d{1,3}(,\d{3})+", text) else text
    try:
        return int(text)
    except ValueError:
        if (number := float(text)) != int(number):
            raise
        return int(number)


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _absolute(name: str) -> str:
    return str(Path(name).resolve())
