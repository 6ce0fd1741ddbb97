"""Where code runs that a model wrote."""

from antwort.sandbox.limits import Ending, Finished, SandboxLimits
from antwort.sandbox.process import SandboxProcess
from antwort.sandbox.sandbox import BareHost, Sandbox
from antwort.sandbox.trees import delete_tree
from antwort.sandbox.usage import DiskUsage, disk_usage

__all__ = [
    "BareHost",
    "DiskUsage",
    "Ending",
    "Finished",
    "Sandbox",
    "SandboxLimits",
    "SandboxProcess",
    "delete_tree",
    "disk_usage",
]
