"""Model servers that speak the Responses API: OpenAI, vLLM, llama.cpp, another antwort."""
