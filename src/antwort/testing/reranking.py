"""What `ScriptServer` answers to a request for a ranking: made up, and always the same for the same texts."""

import re
from collections.abc import Mapping
from typing import Any

from antwort.errors import BadRequestError
from antwort.types import JSON

_FIELDS = frozenset({"model", "query", "documents", "top_n", "return_documents"})
_WORD = re.compile(r"\w+")


def ranking(body: Mapping[str, Any]) -> JSON:
    """Return the documents of a request, best first: a score is the share of the query's words that a document has.

    BadRequestError for whatever is not as Cohere, Jina and vLLM want it.
    """
    query, documents = body.get("query"), body.get("documents")
    if unknown := sorted(body.keys() - _FIELDS):
        raise BadRequestError(f"unknown field: {unknown[0]}", param=unknown[0])
    if not isinstance(query, str) or not query.strip():
        raise BadRequestError("query must be a text", param="query")
    if not isinstance(documents, list) or not documents or not all(isinstance(one, str) for one in documents):
        raise BadRequestError("documents must be texts, at least one", param="documents")
    top = body.get("top_n", len(documents))
    if not isinstance(top, int) or isinstance(top, bool) or top < 1:
        raise BadRequestError("top_n must be a number from 1 on", param="top_n")
    scores = [_score(query, document) for document in documents]
    best = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[:top]
    results = [{"index": index, "relevance_score": scores[index]} for index in best]
    return {"id": "rerank-0", "model": body.get("model"), "results": results}


def _score(query: str, document: str) -> float:
    wanted, there = (set(_WORD.findall(text.casefold())) for text in (query, document))
    return len(wanted & there) / max(1, len(wanted))
