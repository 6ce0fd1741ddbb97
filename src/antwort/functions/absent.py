"""Providers that are installed and not enabled: who asks for what they have is told so."""

from collections.abc import Mapping

from msgspec import Struct

from antwort.errors import NotFoundError


class AbsentProviders(Struct, frozen=True):
    """What providers declare to answer that are not there, without importing any of them."""

    paths: Mapping[str, str] = {}
    """The first parts of paths, such as `/v1/notes`, each with the name of its provider."""
    tools: Mapping[str, str] = {}
    """Types of hosted tools, each with the name of its provider."""

    def no_path(self, path: str) -> NotFoundError | None:
        """Return the error for a path that an absent provider has; None if none has it."""
        for prefix, name in self.paths.items():
            if path == prefix or path.startswith(f"{prefix}/"):
                return NotFoundError(
                    f"There is no {path} here, as the provider '{name}' is not enabled. The operator of this server "
                    f"can enable it ({_cure(name)}).",
                    code="provider_not_enabled",
                )
        return None

    def tool_cure(self, kind: str) -> str:
        """Return what an operator can do about a type of tools that nobody has."""
        name = self.tools.get(kind)
        if name is None:
            return "can enable a provider that has them (`providers` in antwort.yaml, docs/configuration.md)"
        return f"can enable the provider '{name}', which has them ({_cure(name)})"


NONE_ABSENT = AbsentProviders()


def _cure(name: str) -> str:
    return f"`providers.{name}.enabled: true` in antwort.yaml, docs/configuration.md#providers"
