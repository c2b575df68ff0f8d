"""From generated texts to the tree and back: digests, the plan of a run, diffs, selection, and atomic writing.

Nothing here knows what a kernel is. It is given texts by path, compares them with the tree and with what `build.json`
recorded of the last run, and writes. It keeps no cache: a verdict is always about freshly generated texts.
"""
