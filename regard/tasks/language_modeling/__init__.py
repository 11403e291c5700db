"""Language models: text generation with a decoder, fill-mask with an encoder."""

__all__ = []
