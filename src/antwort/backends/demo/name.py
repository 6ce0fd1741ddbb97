"""The name of the demo model."""

DEMO_MODEL = "antwort-demo"
