"""`/v1/models`."""

from antwort.backends import ModelInfo, ModelRouter
from antwort.context.scopes import RESPONSES_WRITE
from antwort.errors import NotFoundError
from antwort.server.api.description import examples
from antwort.web.routes import Route
from antwort.wire.answers import Model, ModelList


class ModelEndpoints:
    """The endpoints of models."""

    def __init__(self, router: ModelRouter) -> None:
        self._router = router

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("GET", "/v1/models", self.list, scope=RESPONSES_WRITE, examples=examples.MODELS),
            Route(
                "GET",
                "/v1/models/{model:path}",
                self.retrieve,
                scope=RESPONSES_WRITE,
                examples=examples.MODEL,
            ),
        ]

    async def list(self) -> ModelList:
        """List the models that can be asked, aliases included."""
        return ModelList(data=[_model(info) for info in await self._router.models()])

    async def retrieve(self, model: str) -> Model:
        """Return one model.

        Args:
            model: The id of the model; it may have slashes.
        """
        info = await self._router.find(model)
        if info is not None:
            return _model(info)
        raise NotFoundError(f"The model '{model}' does not exist.", param="model", code="model_not_found")


def _model(info: ModelInfo) -> Model:
    return Model(id=info.id, created=info.created, owned_by=info.owned_by)
