"""From an exception to one sentence and an exit code."""

from __future__ import annotations

from regard.errors import RegardError, UsageError, as_out_of_memory


def to_regard_error(error: Exception) -> RegardError | None:
    """The error that a user can act on; None for a bug, which keeps its traceback.

    Example:
        >>> error = to_regard_error(FileNotFoundError(2, "No such file or directory", "a.txt"))
        >>> str(error), error.exit_code
        ('a.txt: no such file or directory', 2)
        >>> to_regard_error(KeyError("a bug")) is None
        True
    """
    if isinstance(error, RegardError):
        return error
    if (memory_error := as_out_of_memory(error)) is not None:
        return memory_error
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return UsageError(f"{error.filename}: {error.strerror.lower()}")
    return None
