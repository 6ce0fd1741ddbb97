"""antwort beside other gateways that serve the Responses API, in one run: `make bench-peers`."""
