"""What a call has in its hands: who is calling, what it may do, and the services that it reaches."""

from antwort.context.context import ANONYMOUS_TENANT, Agent, Context, Fence, Principal, Progress, Source, Sources
from antwort.context.values import Place

__all__ = ["ANONYMOUS_TENANT", "Agent", "Context", "Fence", "Place", "Principal", "Progress", "Source", "Sources"]
