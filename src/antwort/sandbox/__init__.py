"""Where code runs that a model wrote."""

from antwort.sandbox.files import ConfinedFiles, FileProblemError, FoundFile, MissingFileError, NewFile
from antwort.sandbox.folders import FolderInUse, TenantFolders
from antwort.sandbox.limits import Ending, Finished, SandboxLimits
from antwort.sandbox.process import SandboxProcess
from antwort.sandbox.pythons import SandboxPython
from antwort.sandbox.rules import SandboxRules
from antwort.sandbox.runtimes import SandboxRuntime, sandbox_of
from antwort.sandbox.sandbox import BareHost, Sandbox
from antwort.sandbox.storing import store_file
from antwort.sandbox.trees import delete_tree
from antwort.sandbox.usage import DiskUsage, disk_usage

__all__ = [
    "BareHost",
    "ConfinedFiles",
    "DiskUsage",
    "Ending",
    "FileProblemError",
    "Finished",
    "FolderInUse",
    "FoundFile",
    "MissingFileError",
    "NewFile",
    "Sandbox",
    "SandboxLimits",
    "SandboxProcess",
    "SandboxPython",
    "SandboxRules",
    "SandboxRuntime",
    "TenantFolders",
    "delete_tree",
    "disk_usage",
    "sandbox_of",
    "store_file",
]
