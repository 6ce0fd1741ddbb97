/* The other face of the mock backend: POST /v1/responses, for gateways that pass the Responses API on to a model server
 * which serves it, as vLLM does, and do not translate it. The models are those of mock.c; a part of it, which includes it.
 */

/* Begin an event of the stream; its further fields, each with a comma before it, and finish() follow. */
static void begin(struct connection *c, struct buffer *event, const char *type) {
    event->used = 0;
    print(event, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%ld", type, type, c->number++);
}

static void finish(struct connection *c, struct buffer *event) {
    append(event, "}\n\n", 3);
    print(&c->out, "%zx\r\n", event->used);
    append(&c->out, event->data, event->used);
    append(&c->out, "\r\n", 2);
}

static void write_words(struct buffer *b, long count) {
    for (long i = 1; i <= count; i++) print(b, " word%ld", i);
}

static void write_part(struct buffer *b, long words) {
    print(b, "{\"type\":\"output_text\",\"text\":\"");
    write_words(b, words);
    print(b, "\",\"annotations\":[],\"logprobs\":[]}");
}

static void begin_message(struct connection *c, struct buffer *b, const char *status) {
    print(b, "{\"id\":\"msg_%08lx\",\"type\":\"message\",\"role\":\"assistant\",\"status\":\"%s\",\"content\":[", c->serial,
          status);
}

static void write_message(struct connection *c, struct buffer *b, const char *status, long words) {
    begin_message(c, b, status);
    if (words) write_part(b, words);
    print(b, "]}");
}

static void write_head(struct connection *c, struct buffer *b, const char *status) {
    print(b,
          "{\"id\":\"resp_%08lx\",\"object\":\"response\",\"created_at\":%d,\"status\":\"%s\",\"background\":false,\"error\":null,"
          "\"incomplete_details\":null,\"instructions\":null,\"max_output_tokens\":null,\"max_tool_calls\":null,"
          "\"metadata\":{},\"model\":\"%s\",\"parallel_tool_calls\":true,\"previous_response_id\":null,"
          "\"service_tier\":\"auto\",\"store\":false,\"temperature\":1.0,\"text\":{\"format\":{\"type\":\"text\"}},",
          c->serial, CREATED, status, c->model);
    print(b, "\"tool_choice\":\"auto\",\"tools\":[],\"top_logprobs\":0,\"top_p\":1.0,\"truncation\":\"disabled\",\"output\":[");
}

static void write_tail(struct buffer *b, long tokens) {
    if (!tokens) {
        print(b, "],\"usage\":null}");
        return;
    }
    print(b,
          "],\"usage\":{\"input_tokens\":12,\"input_tokens_details\":{\"cached_tokens\":0},\"output_tokens\":%ld,"
          "\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":%ld}}",
          tokens, tokens + 12);
}

static void write_response(struct connection *c, struct buffer *b, const char *status, long words) {
    write_head(c, b, status);
    if (words) write_message(c, b, "completed", words);
    write_tail(b, words);
}

static void write_place(struct connection *c, struct buffer *b) {
    print(b, ",\"item_id\":\"msg_%08lx\",\"output_index\":0,\"content_index\":0", c->serial);
}

static void open_response(struct connection *c, struct buffer *event) {
    static const char *const types[] = {"response.created", "response.in_progress"};
    c->number = 0;
    for (size_t i = 0; i < 2; i++) {
        begin(c, event, types[i]);
        print(event, ",\"response\":");
        write_response(c, event, "in_progress", 0);
        finish(c, event);
    }
    begin(c, event, "response.output_item.added");
    print(event, ",\"output_index\":0,\"item\":");
    write_message(c, event, "in_progress", 0);
    finish(c, event);
    begin(c, event, "response.content_part.added");
    write_place(c, event);
    print(event, ",\"part\":");
    write_part(event, 0);
    finish(c, event);
}

static void close_response(struct connection *c, struct buffer *event) {
    begin(c, event, "response.output_text.done");
    write_place(c, event);
    print(event, ",\"logprobs\":[],\"text\":\"");
    write_words(event, c->total);
    append(event, "\"", 1);
    finish(c, event);
    begin(c, event, "response.content_part.done");
    write_place(c, event);
    print(event, ",\"part\":");
    write_part(event, c->total);
    finish(c, event);
    begin(c, event, "response.output_item.done");
    print(event, ",\"output_index\":0,\"item\":");
    write_message(c, event, "completed", c->total);
    finish(c, event);
    begin(c, event, "response.completed");
    print(event, ",\"response\":");
    write_response(c, event, "completed", c->total);
    finish(c, event);
}

/* Write what is next in the stream of a response; return whether more follows. */
static bool step_of_response(struct connection *c) {
    static struct buffer event;
    long at = c->next++;
    if (at == 0)
        open_response(c, &event);
    else if (at <= c->total) {
        begin(c, &event, "response.output_text.delta");
        write_place(c, &event);
        print(&event, ",\"logprobs\":[],\"delta\":\" word%ld\"", at);
        finish(c, &event);
    } else {
        close_response(c, &event);
        frame(c, "[DONE]");
        append(&c->out, "0\r\n\r\n", 5);
        return false;
    }
    return true;
}

/* Answer whole: with a call of a function, or with a text. */
static void respond(struct connection *c, bool calls) {
    static struct buffer body;
    body.used = 0;
    write_head(c, &body, "completed");
    if (calls) {
        print(&body,
              "{\"id\":\"fc_%08lx\",\"type\":\"function_call\",\"call_id\":\"call_%08lx\",\"name\":\"%s\","
              "\"status\":\"completed\",\"arguments\":",
              c->serial, c->serial, c->function);
        append(&body, c->arguments, c->arguments_size);
        append(&body, "}", 1);
    } else {
        begin_message(c, &body, "completed");
        print(&body, "{\"type\":\"output_text\",\"text\":\"" ANSWER "\",\"annotations\":[],\"logprobs\":[]}]}");
    }
    write_tail(&body, 20);
    append(&body, "", 1);
    answer(c, 200, "OK", body.data);
}
