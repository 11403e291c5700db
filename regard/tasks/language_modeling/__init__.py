"""Plain text: a decoder alone that writes on, an encoder alone that fills in."""

__all__ = []
