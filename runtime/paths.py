"""Where kernwright keeps what it makes: beside build.json, and for one user."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

LIBRARIES = Path("build") / "libraries"
"""The folder of the built libraries, beside build.json."""
WORK = ".work"
"""Inside a folder of libraries: what they were built from, such as `<symbol>.<arch>.cubin`."""


class NoHomeError(RuntimeError):
    """There is no folder for the user's cache; the message names the variables that would give one."""


def user_cache(environment: Mapping[str, str] | None = None) -> Path:
    """`$XDG_CACHE_HOME/kernwright`, or `~/.cache/kernwright` when the variable is unset or not an absolute path.

    The home directory is `$HOME`, else that of the user's account. Raises NoHomeError when neither names a folder, as for
    a container's user without an account.
    """
    values = os.environ if environment is None else environment
    text = values.get("XDG_CACHE_HOME", "").strip()
    return (Path(text) if text.startswith("/") else _home(values) / ".cache") / "kernwright"


def _home(values: Mapping[str, str]) -> Path:
    home = values.get("HOME", "").strip()
    if not home.startswith("/"):
        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            raise NoHomeError(
                f"no cache folder: user {os.getuid()} has no account, and neither XDG_CACHE_HOME nor HOME is an absolute path"
            ) from None
    return Path(home)
