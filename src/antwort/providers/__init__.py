"""The providers that come with antwort; each is a folder of its own and uses only what any provider can use."""
