"""What an operator can set."""

from pydantic import PositiveInt

from antwort.provider import Duration, Field, SecretStr, Settings


class ImageGenerationSettings(Settings):
    """Which server makes the pictures, and within which limits."""

    url: str = Field(
        pattern=r"^https?://",
        description="Base URL of an OpenAI-compatible image server, such as http://localhost:8188/v1.",
    )
    api_key: SecretStr | None = Field(default=None, description="The key that it wants, as a bearer token.")
    model: str | None = Field(default=None, description="The model that is asked; the server's own if not given.")
    models: list[str] = Field(default_factory=list, description="Other models that requests may name.")
    sizes: list[str] = Field(
        default_factory=list, description="Sizes that requests may name, such as 1024x1024; any if not given."
    )
    timeout: Duration = Field(default=180.0, description="Time that a picture may take.")
    max_bytes: PositiveInt = Field(
        default=20 * 1024**2, description="Bytes of a picture, and of those it is made from."
    )
    concurrency: PositiveInt = Field(default=4, description="Pictures at the same time; further ones wait.")
