"""What an operator can set."""

from typing import Annotated, Literal

from pydantic import AfterValidator, PositiveInt

from antwort.provider import CheckStage, Duration, Field, Settings
from antwort.providers.guardrails.expressions import Expression

Action = Literal["mask", "refuse", "allow"]
STAGES: tuple[CheckStage, ...] = ("input", "output", "call", "result")


def _checked(pattern: str) -> str:
    Expression(pattern)
    return pattern


class OwnPattern(Settings):
    """Something of the operator's own that texts are searched for."""

    pattern: Annotated[str, AfterValidator(_checked)] = Field(
        description="A regular expression whose repetitions have an end, such as `EMP-[0-9]{4,8}`."
    )
    action: Action = Field(default="mask", description="What becomes of a text that has it.")


class PatternSettings(Settings):
    """Which secrets and personal data are found, and what becomes of texts that have them."""

    stages: list[CheckStage] = Field(
        default_factory=lambda: [*STAGES], description="Where to look: `input`, `output`, `call`, `result`."
    )
    api_key: Action = Field(default="mask", description="Keys of well-known services, by what they begin with.")
    private_key: Action = Field(default="mask", description="Private keys in PEM.")
    token: Action = Field(default="mask", description="JSON Web Tokens, and what stands behind `Bearer`.")
    password: Action = Field(default="mask", description="Passwords in URLs.")
    credit_card: Action = Field(default="mask", description="Numbers of credit cards whose check digit is right.")
    iban: Action = Field(default="mask", description="Numbers of bank accounts whose check digits are right.")
    email: Action = Field(default="allow", description="Addresses of email.")
    phone: Action = Field(default="allow", description="Telephone numbers.")
    own: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")], OwnPattern] = Field(
        default_factory=dict, description="Your own, by the names that stand in the place of what is masked."
    )


class JudgeSettings(Settings):
    """A model that is asked whether a text keeps to a policy."""

    policy: str = Field(min_length=1, description="What is allowed and what is not, in your words.")
    model: str | None = Field(default=None, description="The model that is asked; that of the response if not given.")
    stages: list[CheckStage] = Field(
        default_factory=lambda: [*STAGES[:2]],
        description="What it judges. Answers that it judges are held back until they are complete.",
    )
    timeout: Duration = Field(default=30.0, description="Time for one judgement.")
    on_error: Literal["refuse", "allow"] = Field(
        default="refuse", description="What becomes of that which could not be judged."
    )
    remembers: PositiveInt = Field(
        default=1000, description="Judgements that are kept in memory, for clients that send a conversation again."
    )


class GuardrailSettings(Settings):
    """What is checked, and by whom."""

    patterns: PatternSettings | None = Field(
        default_factory=PatternSettings, description="Secrets and personal data; null looks for none."
    )
    judge: JudgeSettings | None = Field(default=None, description="A model as judge.")
