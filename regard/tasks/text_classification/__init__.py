"""Classification of documents."""

__all__ = []
