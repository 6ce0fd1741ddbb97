"""Fields that model servers have beyond the API, and that requests may have if a backend takes them."""

from antwort.config import BackendConfig

_SAMPLING = frozenset({"ignore_eos", "logit_bias", "min_p", "seed", "stop", "top_k"})

_VLLM = _SAMPLING | {
    "add_generation_prompt",
    "allowed_token_ids",
    "bad_words",
    "best_of",
    "chat_template_kwargs",
    "continue_final_message",
    "documents",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "guided_whitespace_pattern",
    "include_reasoning",
    "include_stop_str_in_output",
    "length_penalty",
    "min_tokens",
    "repetition_penalty",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stop_token_ids",
    "structural_tag",
    "structured_outputs",
    "thinking_token_budget",
    "truncate_prompt_tokens",
    "use_beam_search",
}

_LLAMA_CPP = _SAMPLING | {
    "cache_prompt",
    "chat_template_kwargs",
    "dry_allowed_length",
    "dry_base",
    "dry_multiplier",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "dynatemp_exponent",
    "dynatemp_range",
    "grammar",
    "json_schema",
    "min_keep",
    "mirostat",
    "mirostat_eta",
    "mirostat_tau",
    "repeat_last_n",
    "repeat_penalty",
    "samplers",
    "t_max_predict_ms",
    "top_n_sigma",
    "typical_p",
    "xtc_probability",
    "xtc_threshold",
}

# What says whose turn it is, runs templates or code of strangers, or reads other people's caches is in neither:
# `priority`, `chat_template`, `logits_processors`, `id_slot`, `lora`, …
PRESETS = {"vllm": _VLLM, "llama.cpp": _LLAMA_CPP}
"""Names that stand for all that a kind of server takes."""


def taken_parameters(config: BackendConfig) -> frozenset[str]:
    """Return the fields beyond the API that a backend takes."""
    return frozenset[str]().union(*(PRESETS.get(name, {name}) for name in config.parameters))
