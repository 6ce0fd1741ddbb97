/* A Chat Completions backend, and a Responses one (mock_responses.h), that costs next to nothing: one thread, epoll,
 * HTTP/1.1 with keep-alive.
 *
 *   mock [SECONDS]      prints the address it listens on, and ends after SECONDS (3600) or with its parent
 *
 * The model named in the request decides how a streamed answer of N content chunks is sent:
 *   burst-N             all at once, in as few writes as fit
 *   paced-N             one chunk per write, 1 ms apart, so that a proxy reads them one by one
 *   paced-N-MS          the same, MS milliseconds apart
 * Every SSE frame is an HTTP chunk of its own, as model servers send them. Without `stream` any model answers in JSON;
 * the model `call` calls the first function of the request, or `calculate`, as long as there is no output of a
 * call; the model `call-with` does so with what the input has as arguments, the text of a JSON object, if there is one.
 * GET /stats tells how many completions were asked for so far, how many paced streams are under way, and how many bytes
 * the first request and the last one had since it was asked before.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define MAX_REQUEST (8u << 20)
#define MAX_CHUNKS 100000L
#define CREATED 1700000000
#define NAME_SIZE 64
#define ANSWER "The capital of France is Paris. It lies on the Seine, and about two million people live there."

struct buffer {
    char *data;
    size_t used, size;
};

struct connection {
    int fd;
    struct buffer in, out;
    size_t sent;      /* of out */
    bool waits;       /* for the socket to take more of out */
    bool streams;     /* a paced answer is under way */
    bool usage;       /* the request asked for a usage chunk */
    bool responds;    /* with the events of the Responses API */
    long number;      /* of the next of them */
    unsigned long serial; /* of the response: whoever stores it must not find its id taken */
    long next, total; /* steps of the stream */
    uint64_t due, pace;
    size_t slot; /* in paced */
    char model[NAME_SIZE], function[NAME_SIZE];
    const char *arguments; /* of the function, as a JSON string */
    size_t arguments_size;
};

static int poller, timer;
static struct connection **paced;
static size_t paced_used, paced_size;
static unsigned long asked;
static size_t first, last; /* bytes of requests since the last look */
static bool rearm; /* a paced answer has started, and the timer does not know */

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void reserve(struct buffer *b, size_t more) {
    if (b->used + more <= b->size) return;
    size_t size = b->size ? b->size : 4096;
    while (size < b->used + more) size *= 2;
    if (!(b->data = realloc(b->data, size))) fail("memory");
    b->size = size;
}

static void append(struct buffer *b, const char *data, size_t length) {
    reserve(b, length);
    memcpy(b->data + b->used, data, length);
    b->used += length;
}

__attribute__((format(printf, 2, 3))) static void print(struct buffer *b, const char *format, ...) {
    va_list arguments;
    reserve(b, 1024);
    va_start(arguments, format);
    int length = vsnprintf(b->data + b->used, 1024, format, arguments);
    va_end(arguments);
    if (length < 0 || length >= 1024) exit(1);
    b->used += (size_t)length;
}

/* ---- the request ---- */

/* Return where the value of a key starts, or NULL. Good enough for machine-written JSON. */
static const char *value_of(const char *body, const char *end, const char *key) {
    size_t length = strlen(key);
    for (const char *at = body; (at = memmem(at, (size_t)(end - at), key, length)); at += length) {
        const char *value = at + length;
        while (value < end && isspace((unsigned char)*value)) value++;
        if (value == end || *value++ != ':') continue;
        while (value < end && isspace((unsigned char)*value)) value++;
        return value;
    }
    return NULL;
}

static bool is_true(const char *body, const char *end, const char *key) {
    const char *value = value_of(body, end, key);
    return value && end - value >= 4 && !memcmp(value, "true", 4);
}

/* Read the name that is the value of a key. */
static void read_name(char name[NAME_SIZE], const char *body, const char *end, const char *key) {
    const char *value = value_of(body, end, key);
    size_t used = 0;
    if (value && value < end && *value++ == '"')
        while (value < end && *value != '"' && used < NAME_SIZE - 1) {
            bool plain = isalnum((unsigned char)*value) || strchr("-._:/", *value);
            name[used++] = plain ? *value : '_';
            value++;
        }
    name[used] = 0;
}

#define ARGUMENTS "\"{\\\"expression\\\":\\\"12*7\\\"}\""

/* Read with what the model calls functions; return false if it calls none. */
static bool read_arguments(struct connection *c, const char *body, const char *end) {
    const char *at = ARGUMENTS;
    c->arguments = at;
    c->arguments_size = strlen(at);
    if (!strcmp(c->model, "call")) return true;
    if (strcmp(c->model, "call-with")) return false;
    at = c->arguments = memmem(body, (size_t)(end - body), "\"{\\\"", 4); /* a string that begins like an object */
    if (!at) return false;
    while (++at < end && *at != '"')
        if (*at == '\\') at++;
    c->arguments_size = (size_t)(at - c->arguments) + 1;
    return at < end;
}

/* Read which function is to be called; return false if none is: there is an output already. */
static bool read_call(struct connection *c, const char *body, const char *end) {
    const char *tools = value_of(body, end, "\"tools\"");
    if (!read_arguments(c, body, end) || value_of(body, end, "\"tool_call_id\"") ||
        memmem(body, (size_t)(end - body), "\"function_call_output\"", 22))
        return false;
    strcpy(c->function, "calculate");
    if (tools) read_name(c->function, tools, end, "\"name\"");
    return true;
}

/* ---- the answer ---- */

static void answer(struct connection *c, int status, const char *reason, const char *body) {
    print(&c->out, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n", status, reason,
          strlen(body));
    append(&c->out, body, strlen(body));
}

static void complete(struct connection *c) {
    char body[1024];
    snprintf(body, sizeof body,
             "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":%d,\"model\":\"%s\",\"choices\":[{\"index\":0,"
             "\"message\":{\"role\":\"assistant\",\"content\":\"" ANSWER "\"},\"logprobs\":null,\"finish_reason\":\"stop\"}],"
             "\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":20,\"total_tokens\":32}}",
             CREATED, c->model);
    answer(c, 200, "OK", body);
}

static void call(struct connection *c) {
    static struct buffer body;
    body.used = 0;
    print(&body,
          "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":%d,\"model\":\"%s\",\"choices\":[{\"index\":0,"
          "\"message\":{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"call_1\",\"type\":\"function\","
          "\"function\":{\"name\":\"%s\",\"arguments\":",
          CREATED, c->model, c->function);
    append(&body, c->arguments, c->arguments_size);
    print(&body, "}}]},\"logprobs\":null,\"finish_reason\":\"tool_calls\"}],"
                 "\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":20,\"total_tokens\":32}}");
    append(&body, "", 1);
    answer(c, 200, "OK", body.data);
}

static void tell(struct connection *c) {
    char body[128];
    snprintf(body, sizeof body, "{\"asked\":%lu,\"streams\":%zu,\"first\":%zu,\"last\":%zu}", asked, paced_used, first, last);
    first = last = 0;
    answer(c, 200, "OK", body);
}

__attribute__((format(printf, 2, 3))) static void frame(struct connection *c, const char *format, ...) {
    char data[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(data, sizeof data, format, arguments);
    va_end(arguments);
    print(&c->out, "%x\r\ndata: %s\n\n\r\n", (unsigned)length + 8, data);
}

#define CHUNK "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":%d,\"model\":\"%s\",\"choices\":["

#include "mock_responses.h"

/* Write the next frame of the stream; return whether more follow. */
static bool step(struct connection *c) {
    if (c->responds) return step_of_response(c);
    long at = c->next++;
    if (at == 0)
        frame(c, CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}", CREATED,
              c->model);
    else if (at <= c->total)
        frame(c, CHUNK "{\"index\":0,\"delta\":{\"content\":\" word%ld\"},\"finish_reason\":null}]}", CREATED, c->model, at);
    else if (at == c->total + 1)
        frame(c, CHUNK "{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}", CREATED, c->model);
    else if (at == c->total + 2 && c->usage)
        frame(c,
              CHUNK "],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":%ld,\"total_tokens\":%ld}}",
              CREATED, c->model, c->total, c->total + 12);
    else {
        frame(c, "[DONE]");
        append(&c->out, "0\r\n\r\n", 5);
        return false;
    }
    return true;
}

static void start_stream(struct connection *c) {
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    char *rest = c->model + 6;
    bool burst = !strncmp(c->model, "burst-", 6), known = burst || !strncmp(c->model, "paced-", 6);
    long milliseconds = 1;
    c->total = known ? strtol(rest, &rest, 10) : 0;
    if (known && !burst && *rest == '-') milliseconds = strtol(rest + 1, &rest, 10);
    if (!known || *rest || c->total < 1 || c->total > MAX_CHUNKS || milliseconds < 1) {
        answer(c, 404, "Not Found",
               "{\"error\":{\"message\":\"to stream, name the model burst-N, paced-N or paced-N-MS\",\"type\":"
               "\"invalid_request_error\",\"param\":\"model\",\"code\":\"model_not_found\"}}");
        return;
    }
    c->next = 0;
    append(&c->out, head, sizeof head - 1);
    if (burst) {
        while (step(c)) continue;
        return;
    }
    step(c);
    c->streams = true;
    c->pace = (uint64_t)milliseconds * 1000000u;
    c->due = now() + c->pace;
    if (paced_used == paced_size && !(paced = realloc(paced, (paced_size += 1024) * sizeof *paced))) fail("memory");
    c->slot = paced_used;
    paced[paced_used++] = c;
    rearm = true;
}

static void end_stream(struct connection *c) {
    c->streams = false;
    paced[c->slot] = paced[--paced_used];
    paced[c->slot]->slot = c->slot;
}

/* ---- connections ---- */

static void drop(struct connection *c) {
    if (c->streams) end_stream(c);
    close(c->fd);
    free(c->in.data);
    free(c->out.data);
    free(c);
}

static void watch(struct connection *c, bool waits) {
    if (c->waits == waits) return;
    c->waits = waits;
    struct epoll_event event = {.events = EPOLLIN | (waits ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event)) fail("epoll_ctl");
}

/* Send what is to be sent; return false if the peer is gone. */
static bool flush(struct connection *c) {
    while (c->sent < c->out.used) {
        ssize_t sent = send(c->fd, c->out.data + c->sent, c->out.used - c->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            watch(c, true);
            return true;
        }
        if (sent <= 0) return false;
        c->sent += (size_t)sent;
    }
    c->sent = c->out.used = 0;
    watch(c, false);
    return true;
}

static void dispatch(struct connection *c, const char *body, const char *end) {
    const char *line = c->in.data;
    if (!strncmp(line, "GET /v1/models ", 15))
        answer(c, 200, "OK", "{\"object\":\"list\",\"data\":[]}"); // any name is taken: it says how to answer
    else if (!strncmp(line, "GET /stats ", 11))
        tell(c);
    else if (strncmp(line, "POST /v1/chat/completions ", 26) && strncmp(line, "POST /v1/responses ", 19))
        answer(c, 404, "Not Found", "{\"error\":{\"message\":\"no such route\",\"type\":\"invalid_request_error\"}}");
    else {
        c->serial = ++asked;
        last = (size_t)(end - body);
        if (!first) first = last;
        read_name(c->model, body, end, "\"model\"");
        c->usage = is_true(body, end, "\"include_usage\"");
        c->responds = line[9] == 'r';
        if (is_true(body, end, "\"stream\""))
            start_stream(c);
        else if (c->responds)
            respond(c, read_call(c, body, end));
        else if (read_call(c, body, end))
            call(c);
        else
            complete(c);
    }
}

/* Answer the request in the buffer once it is whole; return false to drop the connection. */
static bool consider(struct connection *c) {
    if (c->streams || c->in.used == 0) return true;
    char *end = memmem(c->in.data, c->in.used, "\r\n\r\n", 4);
    if (!end) return c->in.used < 65536;
    size_t head = (size_t)(end - c->in.data) + 4, length = 0;
    for (char *line = c->in.data; line < end; line++) {
        if (!strncasecmp(line, "content-length:", 15)) length = strtoul(line + 15, NULL, 10);
        if (!strncasecmp(line, "transfer-encoding:", 18)) {
            answer(c, 411, "Length Required", "{\"error\":{\"message\":\"send a Content-Length\"}}");
            flush(c);
            return false;
        }
        if (!(line = memchr(line, '\n', (size_t)(end - line)))) break;
    }
    if (length > MAX_REQUEST) return false;
    if (c->in.used < head + length) return true;
    dispatch(c, c->in.data + head, c->in.data + head + length);
    c->in.used -= head + length;
    memmove(c->in.data, c->in.data + head + length, c->in.used);
    return flush(c);
}

static bool receive(struct connection *c) {
    reserve(&c->in, 16384);
    /* The byte kept back holds the end mark that the string functions in consider() need. */
    ssize_t got = recv(c->fd, c->in.data + c->in.used, c->in.size - c->in.used - 1, 0);
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) return false;
    c->in.used += (size_t)got;
    c->in.data[c->in.used] = 0;
    return consider(c);
}

static void admit(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
        if (fd < 0) return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct connection *c = calloc(1, sizeof *c);
        if (!c) fail("memory");
        c->fd = fd;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
    }
}

/* Send the frames that are due, and set the timer to the next. */
static void pace(void) {
    uint64_t time = now(), next = 0;
    for (size_t i = 0; i < paced_used;) {
        struct connection *c = paced[i];
        if (c->due <= time) {
            bool more = step(c);
            c->due = time + c->pace;
            if (!more) end_stream(c);
            if (!flush(c)) {
                drop(c);
                continue;
            }
            if (!more) continue;
        }
        if (!next || c->due < next) next = c->due;
        i++;
    }
    struct itimerspec at = {.it_value = {.tv_sec = (time_t)(next / 1000000000u), .tv_nsec = (long)(next % 1000000000u)}};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
    rearm = false;
}

int main(int count, char **arguments) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    alarm(count > 1 ? (unsigned)atoi(arguments[1]) : 3600);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4096) ||
        getsockname(listener, (struct sockaddr *)&address, &size))
        fail("listen");
    poller = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &listener};
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    event.data.ptr = &timer;
    epoll_ctl(poller, EPOLL_CTL_ADD, timer, &event);
    printf("Listening on http://127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        struct epoll_event events[64];
        int ready = epoll_wait(poller, events, 64, -1);
        if (ready < 0 && errno != EINTR) fail("epoll_wait");
        for (int i = 0; i < ready; i++) {
            void *what = events[i].data.ptr;
            if (what == &listener)
                admit(listener);
            else if (what == &timer) {
                uint64_t ticks;
                rearm |= read(timer, &ticks, sizeof ticks) > 0;
            } else {
                struct connection *c = what;
                bool alive = !(events[i].events & EPOLLOUT) || flush(c);
                if (alive && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) alive = receive(c);
                if (!alive) drop(c);
            }
        }
        if (rearm) pace();
    }
}
