"""Model servers that speak Chat Completions: vLLM, Ollama, llama.cpp, LM Studio, LiteLLM, OpenAI and many more."""
