"""What credentials may do: the scopes of the API itself, and how credentials carry one.

A scope is a word such as `metrics`, or two with a colon such as `responses:read`. Routes of providers have more.
"""

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from antwort.errors import did_you_mean

EVERYTHING = "*"
RESPONSES_READ = "responses:read"
RESPONSES_WRITE = "responses:write"
CONVERSATIONS_READ = "conversations:read"
CONVERSATIONS_WRITE = "conversations:write"
FUNCTIONS_CALL = "functions:call"
METRICS = "metrics"
ADMIN = "admin"

OWN_SCOPES: Mapping[str, str] = {
    RESPONSES_READ: "fetch, list and continue stored responses",
    RESPONSES_WRITE: "create, cancel and delete responses; ask models in any other way, and list them",
    CONVERSATIONS_READ: "fetch conversations and their items, and continue them",
    CONVERSATIONS_WRITE: "create, change and delete conversations, and add to them",
    FUNCTIONS_CALL: "let models call the functions of the server, and list them",
    METRICS: "read the metrics, where they are protected",
    ADMIN: "see how the server is set up",
}
"""The scopes of the API itself, and what each opens."""


def granted(scopes: Collection[str], scope: str) -> bool:
    """Tell whether credentials with these scopes carry one: by its name, by `*`, or by `<its first word>:*`.

    No scope implies another: whoever may write may not read, unless both are carried.
    """
    return EVERYTHING in scopes or scope in scopes or f"{scope.partition(':')[0]}:{EVERYTHING}" in scopes


def owner_scope(owner_id: str, access: Literal["read", "write"]) -> str | None:
    """Return the scope that reads or writes what belongs to a conversation or a response; None if an id is neither's.

    What providers keep for one of them is a part of it: its variables, the folder that it works in.
    """
    if owner_id.startswith("conv_"):
        return CONVERSATIONS_READ if access == "read" else CONVERSATIONS_WRITE
    if owner_id.startswith("resp_"):
        return RESPONSES_READ if access == "read" else RESPONSES_WRITE
    return None


def is_one_scope(text: str) -> bool:
    """Tell whether a text can be a scope: neither nothing nor several, which blanks or commas would part."""
    return text.split() == [text] and "," not in text


def mistake_in(scope: str, known: Iterable[str] = ()) -> str | None:
    """Return what is wrong with a text that is not one scope, or begins like a known or own one and is none of them.

    Any other word may be asked for by a function or by a provider that is not here, so it is no mistake.
    """
    if not is_one_scope(scope):
        return f"'{scope}' is not a scope; give one scope each, without blanks and commas"
    names = [*OWN_SCOPES, *known]
    family, colon, _ = scope.partition(":")
    if scope == EVERYTHING or scope in names:
        return None
    relatives = [name for name in names if name.partition(":")[0] == family]
    if not relatives or scope == f"{family}:{EVERYTHING}":
        return None
    hint = did_you_mean(scope, relatives) if colon else ""
    return f"there is no scope '{scope}'{hint or '; there is ' + ', '.join(relatives)}"


def nearest_scope(scope: str) -> str:
    """Return `; did you mean 'x'?` if the first word of a scope is nearly that of one of the API's, or nothing."""
    families = dict.fromkeys(name.partition(":")[0] for name in OWN_SCOPES)
    near = difflib.get_close_matches(scope.partition(":")[0], families, n=1, cutoff=0.8)
    return did_you_mean(scope, [name for name in OWN_SCOPES if name.partition(":")[0] in near])
