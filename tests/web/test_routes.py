"""Routes: what handlers get, what clients get, which route a path means."""

import socket
from typing import Annotated, Any, Literal

import httpx
import pytest
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from antwort import Antwort
from antwort.config import Config
from antwort.errors import DefinitionError
from antwort.functions import FunctionRegistry
from antwort.provider import ConflictError, Context, Provider, Request, Response, route
from antwort.server.api.description.openapi import openapi
from antwort.testing import running
from antwort.web.routes import Route, RouteTable

Word = Annotated[str, Field(max_length=5)]


class Box(BaseModel):
    size: int


class Item(BaseModel):
    name: str = Field(min_length=1)
    count: int = 1


class Order(BaseModel):
    wanted: Word | Annotated[list[Word], Field(max_length=2)]
    notes: dict[Annotated[str, Field(max_length=3)], int | str] = Field(default_factory=dict)
    box: Box | bool | None = None


class Shop(Provider):
    """Every kind of handler."""

    @route("POST", "/v1/shop", status=201)
    async def create(self, ctx: Context, item: Item) -> dict[str, Any]:
        """Create an item."""
        return {"tenant": ctx.tenant, **item.model_dump()}

    @route("POST", "/v1/shop/orders")
    async def order(self, order: Order) -> dict[str, Any]:
        """Order items."""
        return order.model_dump()

    @route("GET", "/v1/shop/{number}")
    async def get(self, number: int) -> Item:
        """Return an item."""
        if number == 404:
            raise HTTPException(404, "gone fishing")
        if number == 409:
            raise ConflictError("sold already", param="number")
        if number == 418:
            raise HTTPException(418, "short and stout")
        return Item(name=f"item {number}")

    @route("GET", "/v1/shop/featured")
    def featured(self) -> list[str]:
        """List what is featured; literal paths come before patterns, and a plain function will do."""
        return ["a", "b"]

    @route("DELETE", "/v1/shop/{number}")
    async def delete(self, number: str) -> None:
        """Delete an item."""

    @route("PUT", "/v1/shop/{number}", scope="shop:write")
    async def put(self, request: Request, number: str) -> Response:
        """Replace an item with whatever is sent."""
        return Response(await request.body(), media_type="text/plain")

    @route("GET", "/v1/shop/search")
    async def search(
        self,
        word: str,
        most: Annotated[int, Field(ge=1, le=9)] = 3,
        order: Literal["asc", "desc"] = "asc",
        tags: list[str] | None = None,
        sold: bool = Field(default=False),
    ) -> dict[str, Any]:
        """Search for items."""
        return {"word": word, "most": most, "order": order, "tags": tags, "sold": sold}

    @route("GET", "/v1/shop/broken/validation")
    async def broken(self) -> Item:
        """Have a bug that looks like bad input."""
        return Item.model_validate({})


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Any:
    config = Config(data_dir=tmp_path_factory.mktemp("data"))
    with running(Antwort(config, providers=[Shop()])) as server, httpx.Client(base_url=server.url) as client:
        yield client


def test_the_body_is_checked_against_its_model(client: httpx.Client) -> None:
    created = client.post("/v1/shop", json={"name": "nut"})
    assert (created.status_code, created.json()) == (201, {"tenant": "default", "name": "nut", "count": 1})
    missing = client.post("/v1/shop", json={})
    assert missing.status_code == 400
    assert missing.json()["error"] == {
        "message": "Missing required parameter: 'name'.",
        "type": "invalid_request_error",
        "param": "name",
        "code": "missing_required_parameter",
    }


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"name": ""}', b'{"name": "x", "count": "many"}'])
def test_a_bad_body_is_a_400_in_the_envelope(client: httpx.Client, body: bytes) -> None:
    response = client.post("/v1/shop", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [b"{", b"\xff", b"{'name': 1}"])
def test_a_body_that_is_no_json_is_told_as_everywhere(client: httpx.Client, body: bytes) -> None:
    error = client.post("/v1/shop", content=body).json()["error"]
    assert error["code"] == "invalid_json"
    assert error["message"].startswith("The body is not valid JSON: ")


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"wanted": "a nut too many"}, "wanted", "string_above_max_length"),
        ({"wanted": ["a", "b", "c"]}, "wanted", "array_above_max_length"),
        ({"wanted": ["a", "a nut too many"]}, "wanted[1]", "string_above_max_length"),
        ({"wanted": ["a", 5]}, "wanted[1]", "invalid_type"),
        ({"wanted": 5}, "wanted", "invalid_type"),
        ({"wanted": "a", "notes": {"a": []}}, "notes.a", "invalid_type"),
        ({"wanted": "a", "notes": {"abcd": 1}}, "notes.abcd", "property_name_above_max_length"),
        ({"wanted": "a", "box": {}}, "box.size", "missing_required_parameter"),
        ({"wanted": "a", "box": {"size": "x"}}, "box.size", "invalid_type"),
        ({}, "wanted", "missing_required_parameter"),
    ],
)
def test_a_field_of_several_types_is_named_without_them(client: httpx.Client, body: Any, param: str, code: str) -> None:
    error = client.post("/v1/shop/orders", json=body).json()["error"]
    assert (error["param"], error["code"]) == (param, code)
    assert f"'{param}'" in error["message"]


def test_path_parameters_have_the_declared_type(client: httpx.Client) -> None:
    assert client.get("/v1/shop/7").json() == {"name": "item 7", "count": 1}
    wrong = client.get("/v1/shop/seven")
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "number")


def test_other_parameters_come_from_the_query_with_their_types_and_defaults(client: httpx.Client) -> None:
    plain = client.get("/v1/shop/search", params={"word": "nut"})
    assert plain.json() == {"word": "nut", "most": 3, "order": "asc", "tags": None, "sold": False}
    whole = client.get("/v1/shop/search?word=&most=9&order=desc&tags=a&tags=b&sold=true")
    assert whole.json() == {"word": "", "most": 9, "order": "desc", "tags": ["a", "b"], "sold": True}
    assert client.get("/v1/shop/search?word=x&tags[]=a&tags%5B%5D=b").json()["tags"] == ["a", "b"]


@pytest.mark.parametrize(
    ("query", "param", "message"),
    [
        ("", "word", "Missing required parameter: 'word'."),
        ("word=x&mst=2", "mst", "Unknown parameter: 'mst'; did you mean 'most'?"),
        ("word=x&word[]=y", "word[]", "Unknown parameter: 'word[]'; did you mean 'word'?"),
        (
            "word=x&most=10",
            "most",
            "Invalid 'most': integer above maximum value. Expected a value <= 9, but got 10 instead.",
        ),
        ("word=x&most=many", "most", "Invalid type for 'most': expected an integer, but got a string instead."),
        (
            "word=x&most=" + "9" * 5000,
            "most",
            "Invalid value for 'most': Unable to parse input string as an integer, exceeded maximum size.",
        ),
        ("word=x&order=up", "order", "Invalid value for 'order': Input should be 'asc' or 'desc'."),
        ("word=x&sold=perhaps", "sold", "Invalid type for 'sold': expected a boolean, but got a string instead."),
        ("word=%00", "word", "word: NUL characters are not possible."),
        ("word=x&tags=a&tags=%00", "tags", "tags: NUL characters are not possible."),
    ],
)
def test_a_value_of_the_query_that_does_not_fit_is_a_400(
    client: httpx.Client, query: str, param: str, message: str
) -> None:
    response = client.get(f"/v1/shop/search?{query}")
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["message"]) == (param, message)


def test_a_path_with_a_nul_character_is_a_400(client: httpx.Client) -> None:
    response = client.delete("/v1/shop/%00")
    assert (response.status_code, response.json()["error"]["param"]) == (400, "number")


def test_a_body_that_does_not_claim_to_be_json_is_a_415(client: httpx.Client) -> None:
    assert client.post("/v1/shop", data={"name": "nut"}).status_code == 415
    vendor = client.post("/v1/shop", content=b'{"name": "nut"}', headers={"content-type": "application/x+json"})
    assert vendor.status_code == 201


def test_literal_paths_come_before_patterns_whatever_the_order(client: httpx.Client) -> None:
    assert client.get("/v1/shop/featured").json() == ["a", "b"]


def test_none_is_204_and_responses_pass_as_they_are(client: httpx.Client) -> None:
    deleted = client.delete("/v1/shop/1")
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert client.put("/v1/shop/1", content=b"raw").text == "raw"


def test_errors_of_handlers_keep_their_status_in_the_envelope(client: httpx.Client) -> None:
    for number, message in ((404, "gone fishing"), (409, "sold already"), (418, "short and stout")):
        response = client.get(f"/v1/shop/{number}")
        assert (response.status_code, response.json()["error"]["message"]) == (number, message)


def test_a_bug_that_looks_like_bad_input_is_a_500_without_details(client: httpx.Client) -> None:
    response = client.get("/v1/shop/broken/validation")
    assert response.status_code == 500
    assert "name" not in response.json()["error"]["message"]


def test_the_wrong_method_is_a_405_that_lists_every_right_one(client: httpx.Client) -> None:
    response = client.patch("/v1/shop/1")
    assert response.status_code == 405
    assert response.headers["allow"] == "GET, DELETE, PUT"
    assert response.json()["error"]["code"] == "method_not_allowed"


def test_head_answers_like_get_without_a_body(client: httpx.Client) -> None:
    response = client.head("/v1/shop/7")
    assert (response.status_code, response.content) == (200, b"")


def test_routes_are_described_with_body_answer_and_parameters(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    create = document["paths"]["/v1/shop"]["post"]
    assert create["tags"] == ["shop"]
    assert create["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Item2"}
    assert "201" in create["responses"]
    one = document["paths"]["/v1/shop/{number}"]
    assert one["get"]["parameters"][0]["name"] == "number"
    assert "204" in one["delete"]["responses"]
    assert "shop:write" in one["put"]["description"]


async def typed(
    number: int,
    code: Annotated[str, Field(pattern="^[a-z]{3}$", description="Three letters.")],
    order: Literal["asc", "desc"],
    plain_id: str,
    word: Word,
) -> None:
    """Take values of the path.

    Args:
        number: Which one.
    """


async def untyped(request: Request) -> Response:
    """Read the path by itself."""
    return Response(request.url.path)


def test_parameters_of_a_path_are_described_as_the_handler_or_the_path_declares_them() -> None:
    routes = [
        Route("GET", "/v1/a/{number}/{code}/{order}/{plain_id}/{word}", typed),
        Route("GET", "/v1/b/{page:int}/{share:float}/{name:path}/{id:uuid}", untyped),
    ]
    paths = openapi([("shop", routes)], public=())["paths"]
    by_hint, by_path = (next(iter(path.values()))["parameters"] for path in paths.values())
    assert {one["name"]: one["schema"] for one in by_hint} == {
        "number": {"type": "integer"},
        "code": {"type": "string", "pattern": "^[a-z]{3}$"},
        "order": {"type": "string", "enum": ["asc", "desc"]},
        "plain_id": {"type": "string", "minLength": 1},
        "word": {"type": "string", "minLength": 1, "maxLength": 5},
    }
    assert [one.get("description") for one in by_hint] == [
        "Which one.",
        "Three letters.",
        None,
        "The id of the plain.",
        None,
    ]
    assert {one["name"]: one["schema"] for one in by_path} == {
        "page": {"type": "integer", "minimum": 0},
        "share": {"type": "number", "minimum": 0},
        "name": {"type": "string", "minLength": 1},
        "id": {"type": "string", "format": "uuid"},
    }


def takes_anything(**other: int) -> None:
    """Take whatever there is."""


def takes_a_socket(other: socket.socket) -> None:
    """Take what no query can express."""


def takes_an_object(other: dict[str, int]) -> None:
    """Take an object."""


def misspelt(numer: str) -> None:
    """Take a path parameter by another name."""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Route("FETCH", "/x", lambda: None), "'FETCH' is not one of DELETE, GET"),
        (lambda: Route("GET", "x", lambda: None), "must start with '/'"),
        (lambda: Route("GET", "/{a}/{a}", lambda: None).check(), "[Dd]uplicate"),
        (
            lambda: Route("GET", "/x", lambda mystery: None).check(),
            "parameter 'mystery' cannot be filled: it has no type",
        ),
        (lambda: Route("GET", "/x", takes_anything).check(), "parameter 'other' cannot be filled: it has no type"),
        (
            lambda: Route("GET", "/x", takes_a_socket).check(),
            "parameter 'other' cannot be filled: its type has no JSON",
        ),
        (lambda: Route("GET", "/x", takes_an_object).check(), "parameter 'other' cannot be filled: a query has no obj"),
        (lambda: Route("GET", "/x/{number}", misspelt).check(), "no parameter of the handler is named 'number'"),
    ],
)
def test_a_route_that_cannot_be_served_is_refused_at_registration(make: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        make()


def test_a_provider_with_a_bad_route_is_refused_whole() -> None:
    class Bad(Provider):
        @route("GET", "/v1/bad")
        async def bad(self, mystery: dict[str, int]) -> None:
            """Ask for what nobody has."""

    registry = FunctionRegistry()
    with pytest.raises(DefinitionError, match="mystery"):
        registry.register(Bad())
    assert registry.registrations() == []


def test_the_table_finds_routes_by_method_and_path() -> None:
    table = RouteTable([Route("GET", "/a/{id}", print), Route("POST", "/a/{name}", print), Route("GET", "/a/b", print)])
    literal, by_id, by_name = table.find("GET", "/a/b"), table.find("GET", "/a/c"), table.find("POST", "/a/b")
    assert literal is not None
    assert by_id is not None
    assert by_name is not None
    assert (literal.route.path, by_id.parameters, by_name.parameters) == ("/a/b", {"id": "c"}, {"name": "b"})
    assert table.find("GET", "/a/b/c") is None
    assert table.find("DELETE", "/a/b") is None
    assert table.allowed("/a/b") == ["GET", "POST"]
    assert table.allowed("/b") == []
