"""Model servers that speak Anthropic's Messages API."""
