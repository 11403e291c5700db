"""How fast, and how much memory: regard measured beside the textbook, PyTorch and other libraries."""
