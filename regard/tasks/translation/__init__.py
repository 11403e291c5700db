"""Translation: from one text to another."""

__all__ = []
