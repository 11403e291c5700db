"""Optional dependencies, and names that are imported when they are first used."""

from __future__ import annotations

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
