"""Look at attention: watch a model, keep the weights, measure and draw them."""

from regard.viewing.terminal import heat

__all__ = ["heat"]
