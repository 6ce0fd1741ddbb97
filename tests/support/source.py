"""The source, read once for all tests of a process that look at it: to parse it takes seconds."""

import functools

from scripts.structure import ROOT, Source


@functools.cache
def own_source() -> Source:
    """Return what there is in `src`."""
    return Source(ROOT)
