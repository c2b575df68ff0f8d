"""The error of this room."""


class ToolchainError(RuntimeError):
    """No usable compiler; the message names the variable or folder, what was looked for and what was found."""
