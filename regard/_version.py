"""The version of the package, read by its metadata and the command line."""

__version__ = "0.2.0"
