"""The settings of the provider `user`."""

from antwort.provider import Duration, Field, SecretStr, Settings


class WebhookSettings(Settings):
    """Who is told about new questions."""

    url: str = Field(description="The URL that gets a POST for each new question.", pattern=r"^https?://")
    secret: SecretStr = Field(
        min_length=16,
        description="What messages are signed with: `whsec_` and base64, or another text of 16 characters or more.",
    )
    timeout: Duration = Field(default=10.0, description="Time it may take to answer.")
    retry: Duration = Field(
        default=15.0,
        description="Time after which it is told again if it has not taken a message; later the pauses grow to 1h.",
    )


class UserSettings(Settings):
    """What operators can set."""

    webhook: WebhookSettings | None = Field(default=None, description="Who is told about new questions.")

    expires_in: Duration | None = Field(
        default=None,
        description="How long a question waits for its answer, such as 3d, unless the model says so; for ever if none.",
    )
