"""Optional dependencies, and names that are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from importlib import import_module
from types import ModuleType
from typing import Any

from regard.errors import MissingDependencyError


def require_extra(module: str, extra: str) -> ModuleType:
    """Import a module that belongs to an extra.

    Args:
        module: its name
        extra: the extra of regard that installs it

    Returns:
        The module. If it is not installed, MissingDependencyError says which extra to install.

    Example:
        >>> require_extra("json", extra="draw").__name__
        'json'
        >>> require_extra("no_such_module", extra="draw")
        Traceback (most recent call last):
        regard.errors.MissingDependencyError: no_such_module is not installed; run: pip install "regard[draw]"
    """
    top = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != top:
            raise  # installed, but broken: the traceback says what it misses
        message = f'{top} is not installed; run: pip install "regard[{extra}]"'
        raise MissingDependencyError(message, name=top) from None


def resolve(target: str) -> Any:
    """Import what a text names.

    Args:
        target: "module:name" or "module:Class.name"

    Example:
        >>> resolve("json:dumps")([1])
        '[1]'
    """
    module, _, name = target.partition(":")
    return reduce(getattr, name.split("."), import_module(module))


def lazy_names(
    package: str, names: Mapping[str, Iterable[str]], subpackages: Iterable[str] = ()
) -> Callable[[str], object]:
    """Return the function `__getattr__` of a package whose names are imported when they are first used.

    Args:
        package: its name
        names: the names that each of its modules provides
        subpackages: modules that are names of the package themselves

    Example:
        >>> lazy_names("regard", {"errors": ["RegardError"]})("RegardError").__name__
        'RegardError'
    """
    homes = {name: module for module, provided in names.items() for name in provided}
    subpackages = tuple(subpackages)

    def __getattr__(name: str) -> object:
        if name in subpackages:
            return import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)  # so that the next access does not call this function
        return value

    return __getattr__
