"""From a kernel description to CUDA text, build.json and a verdict; never imports torch."""

if not __name__.startswith("kernwright."):
    raise ImportError("import kernwright.generator (a second copy of this package would have a state of its own)")
