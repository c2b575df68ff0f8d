"""Where kernwright keeps what it makes for one user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def user_cache(environment: Mapping[str, str] | None = None) -> Path:
    """`$XDG_CACHE_HOME/kernwright`, or `~/.cache/kernwright` when the variable is unset or not an absolute path."""
    text = (os.environ if environment is None else environment).get("XDG_CACHE_HOME", "").strip()
    return (Path(text) if text.startswith("/") else Path.home() / ".cache") / "kernwright"
