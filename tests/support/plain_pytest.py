"""Options for a pytest that a test starts: without the plug-ins of packages that only our own tests need.

To import those takes several times as long as the tests that it is started for.
"""

__all__ = ["PLAIN"]

_OTHERS = (
    "benchmark",
    "codspeed",
    "hypothesispytest",
    "langsmith_plugin",
    "platformdirs",
    "recording",
    "schemathesis",
    "socket",
    "syrupy",
    "xdist",
    "xdist.looponfail",
)
PLAIN = ["-p", "no:cacheprovider", *(option for name in _OTHERS for option in ("-p", f"no:{name}"))]
