"""Time and memory of regard compared with textbook code, PyTorch and other libraries."""
