"""Documents, and which class each belongs to."""

__all__ = []
