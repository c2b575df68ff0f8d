"""The error of this room."""


class LoadError(RuntimeError):
    """A library cannot be served; the message names the library, what was found and how to get a good one."""
