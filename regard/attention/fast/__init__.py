"""Exact fast paths: each computes an identity of the definition, and is selected automatically."""
