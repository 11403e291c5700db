"""Check the shapes and types of every call of regard, at less than half the cost of `jaxtyping.jaxtyped`.

For each call, `jaxtyped(typechecker=...)` binds the arguments to the signature, and checks them before the call and
again after it, together with the result. Here they are checked once, in one scope of names of sizes; functions without
a shape need no scope.
"""

import dataclasses
import functools
import inspect
from types import SimpleNamespace
from typing import Any, get_type_hints

import jaxtyping

jaxtyped = jaxtyping.jaxtyped
# An int is a float to the checker, as it is to Python's type hints (PEP 484). A wrong shape is a TypeError.
CHECKER = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True, violation_type=TypeError))"


def install(package: str) -> None:
    """Check every call of the modules of a package that are imported from now on."""
    jaxtyping.install_import_hook(package, CHECKER)
    jaxtyping.jaxtyped = check_calls  # which the import hook makes a decorator of every function and class


def check_calls(function: Any = None, *, typechecker: Any) -> Any:
    """Check the calls of a function, or the construction of a dataclass."""
    if function is None:
        return functools.partial(check_calls, typechecker=typechecker)
    if inspect.isclass(function):
        if dataclasses.is_dataclass(function) and "__init__" in vars(function):
            function.__init__ = check_calls(function.__init__, typechecker=typechecker)
        return function
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return jaxtyped(function, typechecker=typechecker)  # whose body runs after the call
    hints, original = {}, function.__annotations__
    for name, hint in original.items():
        hints[name] = resolve(hint, function.__globals__)
    function.__annotations__ = hints
    typed = typechecker(function)
    function.__annotations__ = typed.__annotations__ = original
    shapes = repr(hints)
    if "jaxtyping" not in shapes:
        return typed
    if "{" in shapes[1:]:  # a size like {self.dim}: the arguments are needed
        return jaxtyped(typed, typechecker=None)

    @functools.wraps(function)
    def check(*args: Any, **kwargs: Any) -> Any:
        with jaxtyped("context"):
            return typed(*args, **kwargs)

    return check


def resolve(hint: Any, names: dict[str, Any]) -> Any:
    """A hint instead of its text. Names that are not there when the function is defined may be anything."""
    try:
        return get_type_hints(SimpleNamespace(__annotations__={"hint": hint}), names, include_extras=True)["hint"]
    except Exception:
        return Any
