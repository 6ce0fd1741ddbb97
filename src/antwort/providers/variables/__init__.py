"""Variables: values of any size that agents keep, hand on by reference, and read in parts."""

from antwort.providers.variables.provider import VariablesProvider

__all__ = ["VariablesProvider"]
