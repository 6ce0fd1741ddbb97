"""What an operator can set."""

from typing import Annotated, Literal

from pydantic import PositiveInt, field_validator

from antwort.extensions import SEARCH_ENGINES, Choice
from antwort.provider import Field, SecretStr, Settings
from antwort.providers.web_search.adapter import Retries, SafeSearch, SearchTime
from antwort.providers.web_search.options import domain


class WebSearchSettings(Settings):
    """Where to search, and how."""

    backend: Annotated[Choice, SEARCH_ENGINES] = Field(default="searxng", description="Who searches.")
    url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="Address of the SearXNG instance, such as http://localhost:8888; for Brave, its API if not given.",
    )
    api_key: SecretStr | None = Field(
        default=None, description="The key the backend wants; Brave needs one, SearXNG gets it as a bearer token."
    )
    max_results: int = Field(default=5, ge=1, le=50, description="Results that the model gets at most.")
    language: str | None = Field(
        default=None,
        pattern=r"^[a-z]{2,3}(-[A-Z]{2})?$",
        description="Language of the results, such as `en` or `de-CH`; the backend's own default if not given.",
    )
    safe_search: SafeSearch = "moderate"
    timeout: SearchTime = 10.0
    retries: Retries = 1
    concurrency: PositiveInt = Field(default=8, description="Searches at the same time; further ones wait.")
    categories: list[str] = Field(
        default_factory=lambda: ["general"], description="SearXNG: the categories that are searched."
    )
    allow_domains: list[str] = Field(
        default_factory=list, description="If given, only results and pages of these domains and those below them."
    )
    deny_domains: list[str] = Field(
        default_factory=list, description="No results and pages of these domains and those below them."
    )
    open_pages: Literal["any", "results", "none"] = Field(
        default="any",
        description="What `open_page` and `find_in_page` open: any public page, only results of a search in the same "
        "response or one that it continues, or nothing.",
    )
    page_length: PositiveInt = Field(default=20_000, description="Characters of a page that one call returns.")

    @field_validator("allow_domains", "deny_domains")
    @classmethod
    def _are_domains(cls, names: list[str]) -> list[str]:
        read = [domain(name) for name in names]
        for name, given in zip(read, names, strict=True):
            if name is None:
                raise ValueError(f"'{given}' is no domain; write it as example.org")
        return [name for name in read if name is not None]
