"""Machines with a memory: the algorithms of the Neural Turing Machine."""

__all__ = []
