"""Typed settings, loaded from a file, the environment and flags, each value with its origin."""

from antwort.config.connections import ConnectionsConfig
from antwort.config.durations import (
    Age,
    Duration,
    Seconds,
    is_duration,
    read_age,
    read_duration,
    short_duration,
    written_duration,
)
from antwort.config.engine import AgentConfig, BackendConfig, EncryptionConfig, EngineConfig, KeepConfig, StorageConfig
from antwort.config.load import LoadedConfig, load_config, validate_settings
from antwort.config.masking import MASK, is_secret_name, mask_urls
from antwort.config.model import (
    ApiKeyConfig,
    AuthConfig,
    Config,
    FunctionsConfig,
    JwtConfig,
    LimitsConfig,
    ObservabilityConfig,
    ProviderConfig,
    RateConfig,
    ServerConfig,
    TenantLimitsConfig,
    WebSocketConfig,
)
from antwort.config.origins import Origin
from antwort.config.outbound import OutboundConfig
from antwort.config.reference import markdown_table, markdown_tables
from antwort.config.secrets import secret_values
from antwort.config.settings import Settings
from antwort.config.show import Entry
from antwort.config.sources import Override
from antwort.config.template import commented_config

__all__ = [
    "MASK",
    "Age",
    "AgentConfig",
    "ApiKeyConfig",
    "AuthConfig",
    "BackendConfig",
    "Config",
    "ConnectionsConfig",
    "Duration",
    "EncryptionConfig",
    "EngineConfig",
    "Entry",
    "FunctionsConfig",
    "JwtConfig",
    "KeepConfig",
    "LimitsConfig",
    "LoadedConfig",
    "ObservabilityConfig",
    "Origin",
    "OutboundConfig",
    "Override",
    "ProviderConfig",
    "RateConfig",
    "Seconds",
    "ServerConfig",
    "Settings",
    "StorageConfig",
    "TenantLimitsConfig",
    "WebSocketConfig",
    "commented_config",
    "is_duration",
    "is_secret_name",
    "load_config",
    "markdown_table",
    "markdown_tables",
    "mask_urls",
    "read_age",
    "read_duration",
    "secret_values",
    "short_duration",
    "validate_settings",
    "written_duration",
]
