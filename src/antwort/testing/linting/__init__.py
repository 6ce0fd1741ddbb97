"""The parts of the linter of responses; use `antwort.testing.lint_stream` and `lint_response`."""
