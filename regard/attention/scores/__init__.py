"""Scores: from query and key to scores. ``+`` and ``*`` combine them."""
