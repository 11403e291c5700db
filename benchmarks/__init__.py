"""How fast, and how much memory: regard measured beside the textbook, PyTorch and other libraries."""

from importlib.util import find_spec

missing = [name for name in ("entmax", "x_transformers") if find_spec(name) is None]
if missing:
    raise SystemExit(f"{' and '.join(missing)} must be installed: pip install -e '.[bench]', or make bench")
