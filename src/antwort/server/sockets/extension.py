"""What this server adds to the messages of ASGI for WebSockets."""

TEXTS = "antwort.texts"
"""An extension of `websocket.send`: several messages at once, each as the bytes of its text, leave in one write."""
