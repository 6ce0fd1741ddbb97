"""Typed settings, loaded from a file, the environment and flags, each value with its origin."""

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
from antwort.config.engine import (
    AgentConfig,
    BackendConfig,
    EncryptionConfig,
    EngineConfig,
    KeepConfig,
    OutboundConfig,
    StorageConfig,
)
from antwort.config.load import LoadedConfig, Override, load_config, validate_settings
from antwort.config.model import Config, FunctionsConfig, ObservabilityConfig, ProviderConfig
from antwort.config.origins import Origin, ShownValue
from antwort.config.secrets import MASK, is_secret_name, mask_urls, secret_values
from antwort.config.server import (
    ApiKeyConfig,
    AuthConfig,
    ConnectionsConfig,
    JwtConfig,
    LimitsConfig,
    RateConfig,
    ServerConfig,
    TenantLimitsConfig,
    WebSocketConfig,
)
from antwort.config.settings import Settings
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
    "ShownValue",
    "StorageConfig",
    "TenantLimitsConfig",
    "WebSocketConfig",
    "commented_config",
    "is_duration",
    "is_secret_name",
    "load_config",
    "mask_urls",
    "read_age",
    "read_duration",
    "secret_values",
    "short_duration",
    "validate_settings",
    "written_duration",
]
