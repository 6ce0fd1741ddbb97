"""Code interpreter: named in configurations; the function itself is not part of this release."""

from typing import ClassVar

from antwort.provider import ConfigError, Provider, Settings


class CodeInterpreterSettings(Settings):
    """None yet."""


class CodeInterpreter(Provider[CodeInterpreterSettings]):
    """Run programs that a model wrote."""

    planned: ClassVar = True
    """It is known by name only: `antwort providers list` does not call it available."""

    def __init__(self, settings: CodeInterpreterSettings | None = None) -> None:
        super().__init__(settings)
        raise ConfigError("the code interpreter is not part of this release; set enabled: false, or remove the entry")
