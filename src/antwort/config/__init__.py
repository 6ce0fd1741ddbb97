"""Typed settings, loaded from a file, the environment and flags, each value with its origin."""

from antwort.config.durations import (
    Duration,
    is_duration,
    read_age,
    short_duration,
    written_duration,
)
from antwort.config.engine import (
    BLOB_STORES,
    DEMO,
    DIALECTS,
    AgentConfig,
    Approval,
    ApprovalPolicy,
    BackendConfig,
    EngineConfig,
    KeepConfig,
    OutboundConfig,
    RunConfig,
    S3Config,
    StorageConfig,
)
from antwort.config.extensions import ExtensionKind
from antwort.config.load import LoadedConfig, Override, load_config, load_right_parts, validate_settings
from antwort.config.model import Config, FunctionsConfig, ObservabilityConfig, ProviderConfig, SandboxConfig
from antwort.config.secrets import mask_urls, secret_values
from antwort.config.server import (
    ApiKeyConfig,
    AuthConfig,
    ConnectionsConfig,
    JwtConfig,
    LimitsConfig,
    RateConfig,
    ServerConfig,
    TenantLimitsConfig,
)
from antwort.config.settings import Choice, Extension, Settings, named_paths
from antwort.config.template import commented_config

__all__ = [
    "BLOB_STORES",
    "DEMO",
    "DIALECTS",
    "AgentConfig",
    "ApiKeyConfig",
    "Approval",
    "ApprovalPolicy",
    "AuthConfig",
    "BackendConfig",
    "Choice",
    "Config",
    "ConnectionsConfig",
    "Duration",
    "EngineConfig",
    "Extension",
    "ExtensionKind",
    "FunctionsConfig",
    "JwtConfig",
    "KeepConfig",
    "LimitsConfig",
    "LoadedConfig",
    "ObservabilityConfig",
    "OutboundConfig",
    "Override",
    "ProviderConfig",
    "RateConfig",
    "RunConfig",
    "S3Config",
    "SandboxConfig",
    "ServerConfig",
    "Settings",
    "StorageConfig",
    "TenantLimitsConfig",
    "commented_config",
    "is_duration",
    "load_config",
    "load_right_parts",
    "mask_urls",
    "named_paths",
    "read_age",
    "secret_values",
    "short_duration",
    "validate_settings",
    "written_duration",
]
