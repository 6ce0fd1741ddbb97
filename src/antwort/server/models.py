"""`/v1/models`."""

from antwort.backends import ModelInfo, ModelRouter
from antwort.errors import NotFoundError
from antwort.scopes import RESPONSES_WRITE
from antwort.server.description import examples
from antwort.server.description.shapes import Model, ModelList
from antwort.types import JSON
from antwort.web.routes import Route

__all__ = ["Models"]


class Models:
    """The endpoints of models."""

    def __init__(self, router: ModelRouter) -> None:
        self._router = router

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("GET", "/v1/models", self.list, scope=RESPONSES_WRITE, returns=ModelList, examples=examples.MODELS),
            Route(
                "GET",
                "/v1/models/{model:path}",
                self.retrieve,
                scope=RESPONSES_WRITE,
                returns=Model,
                examples=examples.MODEL,
            ),
        ]

    async def list(self) -> JSON:
        """List the models that can be asked, aliases included."""
        return {"object": "list", "data": [_model(info) for info in await self._router.models()]}

    async def retrieve(self, model: str) -> JSON:
        """Return one model.

        Args:
            model: The id of the model; it may have slashes.
        """
        for info in await self._router.models():
            if info.id == model:
                return _model(info)
        raise NotFoundError(f"The model '{model}' does not exist.", param="model", code="model_not_found")


def _model(info: ModelInfo) -> JSON:
    return {"id": info.id, "object": "model", "created": info.created, "owned_by": info.owned_by}
