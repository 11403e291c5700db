"""Algorithms on sequences of bits, learned by a Neural Turing Machine or an LSTM."""

__all__ = []
