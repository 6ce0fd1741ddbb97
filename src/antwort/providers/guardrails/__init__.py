"""Checks of what is said and done: secrets and personal data by pattern, and whatever else by a model that judges."""

from antwort.providers.guardrails.provider import Guardrails

__all__ = ["Guardrails"]
