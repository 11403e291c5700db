"""Image captioning."""

__all__ = []
