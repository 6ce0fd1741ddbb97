"""A function as the registry holds it: what it takes to execute its calls."""

from collections.abc import Mapping
from dataclasses import dataclass

from antwort.concurrency.contained_tasks import TimeLimit
from antwort.concurrency.slots import Slots
from antwort.concurrency.threads import WorkerThreads
from antwort.context import Agent
from antwort.functions.audit import FunctionAudit
from antwort.functions.hanging import HangingCalls
from antwort.functions.metrics import Recorder
from antwort.functions.provider import FunctionProvider
from antwort.functions.spec import FunctionSpec, Scope
from antwort.observability.spans import Attribute

# To look up a member of an enum takes some hundred nanoseconds in Python 3.11.
_USER, _AGENT = Scope.USER, Scope.AGENT


@dataclass(slots=True, eq=False)
class RegisteredFunction:
    """One function of the registry, with its provider and its state."""

    spec: FunctionSpec
    provider: FunctionProvider
    slots: Slots | None
    threads: WorkerThreads
    hanging: HangingCalls
    recorder: Recorder
    audit: FunctionAudit | None
    time_limit: TimeLimit | None
    """How long a call may take."""
    max_output: int
    """Characters of a result that reach the model."""
    short_output: int
    """Characters of a result that is neither cut nor kept."""
    task_name: str
    """What its tasks are called, for whoever looks for a culprit."""
    span: tuple[str, Mapping[str, Attribute]]
    """The name and the attributes of a call's span."""
    enabled: bool = True
    """False while the function was taken out of service by itself."""
    provider_enabled: bool = True
    ready: bool = True
    """False while the provider has a lifespan that was not entered yet."""
    shadowed_by: str | None = None
    """The provider whose function of the same name was registered first; a shadowed function is never offered."""

    @property
    def offered(self) -> bool:
        """Tell whether models may see and call it."""
        return self.in_service and self.shadowed_by is None

    @property
    def in_service(self) -> bool:
        """Tell whether neither the function nor its provider is disabled."""
        return self.enabled and self.provider_enabled


def permits(spec: FunctionSpec, agent: Agent) -> bool:
    """Tell whether a function's scope admits an agent."""
    if spec.scope is _USER and not agent.is_root:
        return False
    if spec.scope is _AGENT and not agent.can_spawn:
        return False
    return spec.agents is None or agent.name in spec.agents
