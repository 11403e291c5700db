"""Image classification and visual question answering."""

__all__ = []
