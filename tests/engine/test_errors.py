"""Errors that end a response take along what it held: when garbage is collected, to free much at once takes long."""

import gc
import weakref
from pathlib import Path

import pytest

from antwort import Antwort
from antwort.config import Config
from antwort.context import Context
from antwort.errors import APIError
from antwort.testing import ScriptedBackend, fail, turn
from antwort.wire.requests import CreateResponse


async def test_a_response_that_failed_is_gone_without_a_collection(tmp_path: Path) -> None:
    app = Antwort(Config(data_dir=tmp_path), backend=ScriptedBackend([turn(error=fail(500, "Broken."))]))
    async with app:
        create = CreateResponse(input="Hi", store=False)
        plan = await app.engine.plan(create, Context("tenant", scopes=frozenset({"*"})))
        loop = app.engine.loop(plan, app.engine.journal(plan), None)
        alive = weakref.ref(loop)
        gc.collect()
        gc.disable()
        try:
            with pytest.raises(APIError):
                await loop.run()
            del loop
            assert alive() is None
        finally:
            gc.enable()
