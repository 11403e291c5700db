"""The version, in one place: the package, its metadata and the command line read it from here."""

__version__ = "0.1.0"
