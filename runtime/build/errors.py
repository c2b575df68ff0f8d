"""The error of this room."""


class BuildError(RuntimeError):
    """A library could not be built as it must be; the message quotes the compiler and names the library."""
