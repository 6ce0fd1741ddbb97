"""The API described: OpenAPI, with schemas, meanings and examples."""
