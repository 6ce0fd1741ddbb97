"""What the linter finds."""

from collections.abc import Iterable
from dataclasses import dataclass

from typing_extensions import override

_LONGEST = 160


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that is broken, and where."""

    rule: str
    where: str
    message: str

    @override
    def __str__(self) -> str:
        return f"[{self.rule}] {self.where}: {self.message}"


class LintError(AssertionError):
    """A response breaks the rules of the protocol; `violations` has all of them."""

    def __init__(self, violations: Iterable[Violation]) -> None:
        self.violations = tuple(violations)
        lines = "\n".join(f"- {violation}" for violation in self.violations)
        super().__init__(f"{len(self.violations)} violations of the protocol:\n{lines}")


class LintReport:
    """Collects violations; `where` is the place that is being looked at."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.where = "stream"

    def broken(self, rule: str, message: str) -> None:
        """Note a violation at the present place."""
        self.violations.append(Violation(rule, self.where, message))

    def check(self, rule: str, holds: object, message: str) -> bool:
        """Note a violation unless the rule holds; return whether it does."""
        if not holds:
            self.broken(rule, message)
        return bool(holds)

    def equal(self, rule: str, what: str, value: object, expected: object) -> bool:
        """Note a violation unless two values are the same JSON; return whether they are."""
        return self.check(rule, value == expected, f"{what} is {shown(value)}, expected {shown(expected)}")

    def raise_if_broken(self) -> None:
        """Raise a LintError if anything was noted."""
        if self.violations:
            raise LintError(self.violations)


def shown(value: object) -> str:
    """Return a value in one line, cut if it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
