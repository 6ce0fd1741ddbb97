"""What spans tell about responses and model turns, by OpenTelemetry's conventions for generative AI."""

from antwort.engine.emitter import Emitter
from antwort.engine.plan import Plan
from antwort.observability import Span
from antwort.observability.tracing import Attribute
from antwort.wire.responses import ResponseObject

__all__ = ["agent", "answered", "ended", "turn"]

Described = tuple[str, dict[str, Attribute]]


def agent(plan: Plan) -> Described:
    """Return the name and the attributes of the span of a response."""
    response = plan.response
    name = plan.ctx.agent.name
    attributes: dict[str, Attribute] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": name,
        "gen_ai.request.model": response.model,
        "antwort.response.id": response.id,
        "antwort.tenant": plan.ctx.tenant,
        "antwort.background": response.background,
    }
    if plan.conversation is not None:
        attributes["gen_ai.conversation.id"] = plan.conversation
    return f"invoke_agent {name}", attributes


def ended(span: Span, response: ResponseObject) -> None:
    """Tell how a response ended."""
    span.set("antwort.response.status", response.status)
    if response.usage is not None:
        span.set("gen_ai.usage.input_tokens", response.usage.input_tokens)
        span.set("gen_ai.usage.output_tokens", response.usage.output_tokens)


def turn(plan: Plan) -> Described:
    """Return the name and the attributes of the span of a model turn."""
    model = plan.response.model
    attributes: dict[str, Attribute] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
    if plan.max_output_tokens is not None:
        attributes["gen_ai.request.max_tokens"] = plan.max_output_tokens
    if plan.create.temperature is not None:
        attributes["gen_ai.request.temperature"] = plan.create.temperature
    if plan.create.top_p is not None:
        attributes["gen_ai.request.top_p"] = plan.create.top_p
    return f"chat {model}", attributes


def answered(span: Span, emitter: Emitter) -> None:
    """Tell what a turn has used, and why it ended."""
    if emitter.finish_reason is not None:
        span.set("gen_ai.response.finish_reasons", [emitter.finish_reason])
    if emitter.turn_usage is not None:
        span.set("gen_ai.usage.input_tokens", emitter.turn_usage.input_tokens)
        span.set("gen_ai.usage.output_tokens", emitter.turn_usage.output_tokens)
