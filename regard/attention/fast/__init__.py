"""Exact shortcuts: each is an identity, chosen by itself, with the definition beside it."""
