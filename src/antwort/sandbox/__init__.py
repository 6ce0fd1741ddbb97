"""Where code runs that a model wrote."""

from antwort.sandbox.limits import Ending, Finished, SandboxLimits
from antwort.sandbox.process import SandboxProcess
from antwort.sandbox.sandbox import BareHost, Sandbox

__all__ = ["BareHost", "Ending", "Finished", "Sandbox", "SandboxLimits", "SandboxProcess"]
