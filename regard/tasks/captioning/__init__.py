"""Pictures, and what is said of each."""

__all__ = []
