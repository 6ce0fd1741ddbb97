"""The settings of the provider `user`."""

from antwort.provider import Duration, Field, Settings


class UserSettings(Settings):
    """What operators can set."""

    expires_in: Duration | None = Field(
        default=None,
        description="How long a question waits for its answer, such as 3d, unless the model says so; for ever if none.",
    )
