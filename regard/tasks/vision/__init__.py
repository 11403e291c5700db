"""Images: which class, and what is the answer to a question about one."""

__all__ = []
