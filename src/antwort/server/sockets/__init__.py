"""WebSocket connections to /v1/responses: who may connect, what they send and remember, how they end."""
