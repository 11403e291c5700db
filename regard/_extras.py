"""Modules that not everybody needs, and what to say when one is missing."""

from importlib import import_module
from types import ModuleType


class MissingExtra(ImportError):
    """A module of an extra is not installed."""


def need(module: str, extra: str) -> ModuleType:
    """Import a module that belongs to an extra, or say which extra to install.

    >>> need("json", extra="draw").__name__
    'json'
    >>> need("no_such_module", extra="draw")
    Traceback (most recent call last):
    regard._extras.MissingExtra: no_such_module is not installed; it comes with: pip install "regard[draw]"
    """
    top = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != top:
            raise  # installed, but broken: hiding what it misses would help nobody
        sentence = f'{top} is not installed; it comes with: pip install "regard[{extra}]"'
        raise MissingExtra(sentence, name=top) from None
