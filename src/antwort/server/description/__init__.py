"""The API described: OpenAPI, with schemas, meanings and examples, and the reference made from it."""
