"""From build.json to a torch call; never imports the generator."""

if not __name__.startswith("kernwright."):
    raise ImportError("import kernwright.runtime (a second copy of this package would have a state of its own)")
