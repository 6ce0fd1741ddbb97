/* A load generator: sends one request over and over on keep-alive connections, and checks every answer.
 *
 *   load PORT PATH BODY_FILE [--connections C] [--requests M] [--seconds S] [--header 'Name: value']... [--keys K]
 *        [--websocket | --hold]
 *
 * It talks to 127.0.0.1 only. An answer counts if its status is 200, its framing is right, and, where it is a stream of events,
 * it ends in `data: [DONE]`, or with `message_stop` as Messages do. At the end, or after S seconds, it prints one line of JSON. With --hold it opens C streams,
 * prints a line once every one of them has sent something, and keeps them open until its standard input ends. With
 * --websocket the body is sent as a message, one after the other on each connection; an answer counts if it ends in the
 * event `response.completed`, and every message of it is an event. With --keys request number N has the key
 * `sk-NNNNNN` modulo K.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_HEAD 16384
#define BEGINNING 256 /* of a message, which has its type */
#define OPENING 64 /* streams being opened at a time with --hold, well below any backlog */

enum part { HEAD, LENGTH, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER, FRAME_HEAD, FRAME_DATA };

struct connection {
    int fd;
    size_t sent;
    enum part part;
    int status;
    bool events, failed, heard;
    uint64_t left; /* of the body, or of the chunk */
    size_t used;   /* of head, which later holds the line of the chunk, or how a message begins */
    char head[MAX_HEAD];
    char tail[14]; /* the end of the body, to find the end mark */
};

static const char end_mark[14] = "data: [DONE]\n\n", message_mark[14] = "ssage_stop\"}\n\n";
static int poller;
static uint16_t port;
static char *request;
static size_t request_size;
static long started, finished, errors, wanted = 100, answered;
static uint64_t frames, bytes;
static char problem[128];
static bool hold, websocket;
static long keys;
static char *key; /* its digits, in the request */
static const char *target;
static char headers[4096];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void blame(struct connection *c, const char *what, int number) {
    c->failed = true;
    if (!*problem) snprintf(problem, sizeof problem, number ? "%s %d" : "%s", what, number);
}

/* Ask for a WebSocket and wait for the answer; what it is worth was computed before, and is not looked at. */
static void shake_hands(struct connection *c) {
    char text[8192];
    int size = snprintf(text, sizeof text,
                        "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n%s\r\n",
                        target, port, headers);
    if (send(c->fd, text, (size_t)size, MSG_NOSIGNAL) != size) fail("handshake");
    size_t used = 0;
    while (used < 4 || memcmp(text + used - 4, "\r\n\r\n", 4))
        if (used == sizeof text || recv(c->fd, text + used++, 1, 0) != 1) fail("handshake");
    if (strncmp(text, "HTTP/1.1 101 ", 13)) {
        fprintf(stderr, "the server refused the handshake: %.*s", (int)used, text);
        exit(1);
    }
}

static void connect_to_server(struct connection *c) {
    int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (websocket) shake_hands(c);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event)) fail("epoll_ctl");
}

static void send_request(struct connection *c) {
    while (c->sent < request_size) {
        ssize_t sent = send(c->fd, request + c->sent, request_size - c->sent, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno != EAGAIN) break; /* the read will say why */
            struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
            epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
            return;
        }
        c->sent += (size_t)sent;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
}

static void start(struct connection *c) {
    if (started == wanted) return;
    if (key) { /* requests with keys are small: none is half sent when its key changes */
        char digits[24];
        snprintf(digits, sizeof digits, "%06ld", started % keys);
        memcpy(key, digits, 6);
    }
    started++;
    c->sent = c->used = 0;
    c->part = websocket ? FRAME_HEAD : HEAD;
    c->failed = c->events = c->heard = false;
    memset(c->tail, 0, sizeof c->tail);
    send_request(c);
}

static void finish(struct connection *c) {
    if (!websocket && c->status != 200) blame(c, "status", c->status);
    if (c->events && memcmp(c->tail, end_mark, sizeof end_mark) && memcmp(c->tail, message_mark, sizeof message_mark))
        blame(c, "a stream without its end mark", 0);
    finished++;
    errors += c->failed;
}

static void keep_tail(struct connection *c, const char *data, size_t length) {
    size_t size = sizeof c->tail;
    if (length >= size) {
        memcpy(c->tail, data + length - size, size);
        return;
    }
    memmove(c->tail, c->tail + length, size - length);
    memcpy(c->tail + size - length, data, length);
}

static void take(struct connection *c, const char *data, size_t length) {
    if (!length) return;
    bytes += length;
    if (!c->heard) answered++;
    c->heard = true;
    if (c->events) {
        /* Two line ends end a frame; the first may have come with the read before. */
        if (c->tail[sizeof c->tail - 1] == '\n' && data[0] == '\n') frames++;
        const char *end = data + length - 1;
        for (const char *at = data; at < end && (at = memchr(at, '\n', (size_t)(end - at))); at++)
            if (at[1] == '\n') frames++;
    }
    keep_tail(c, data, length);
}

/* Read the head of an answer, which ends at `end`; return whether a body follows. */
static bool read_head(struct connection *c, const char *end) {
    bool chunked = false, sized = false;
    c->left = 0;
    c->status = !strncmp(c->head, "HTTP/1.1 ", 9) ? atoi(c->head + 9) : 0;
    for (const char *line = c->head; line < end; line++) {
        if (!strncasecmp(line, "content-length:", 15)) {
            c->left = strtoull(line + 15, NULL, 10);
            sized = true;
        } else if (!strncasecmp(line, "transfer-encoding: chunked", 26))
            chunked = true;
        else if (!strncasecmp(line, "content-type: text/event-stream", 31))
            c->events = true;
        if (!(line = memchr(line, '\n', (size_t)(end - line)))) break;
    }
    if (!chunked && !sized) blame(c, "an answer without a length", 0);
    c->part = chunked ? CHUNK_SIZE : LENGTH;
    return chunked || c->left;
}

/* Collect a line in the head buffer; return what is left of the data, or NULL if the line goes on. */
static const char *collect(struct connection *c, const char *data, const char *end, const char *mark) {
    size_t size = strlen(mark);
    while (data < end && c->used < MAX_HEAD - 1) {
        c->head[c->used++] = *data++;
        if (c->used >= size && !memcmp(c->head + c->used - size, mark, size)) {
            c->head[c->used] = 0;
            return data;
        }
    }
    if (c->used == MAX_HEAD - 1) blame(c, "a line that is too long", 0);
    return NULL;
}

/* Read the head of a frame; return what is left of the data. */
static const char *frame_head(struct connection *c, const char *data, const char *end) {
    while (data < end) {
        c->head[c->used++] = *data++;
        size_t code = c->used > 1 ? (size_t)c->head[1] & 127 : 0, extra = code == 127 ? 8 : code == 126 ? 2 : 0;
        if (c->used < 2 + extra) continue;
        c->left = extra ? 0 : code;
        for (size_t i = 2; i < 2 + extra; i++) c->left = c->left << 8 | (unsigned char)c->head[i];
        c->used = 0;
        c->status = c->head[0] & 15; /* the kind of the frame */
        if (c->left) c->part = FRAME_DATA;
        return data;
    }
    return data;
}

/* Look at a message, of which the head has the beginning; return whether it is the last of an answer. */
static bool last_message(struct connection *c) {
    c->head[c->used] = 0;
    c->used = 0;
    c->part = FRAME_HEAD;
    if (c->status == 8) blame(c, "the server closed the WebSocket", 0);
    if (c->status != 1) return c->failed;
    frames++;
    if (strstr(c->head, "\"type\":\"error\"") || strstr(c->head, "\"type\":\"response.failed\"")) blame(c, "an error", 0);
    return c->failed || strstr(c->head, "\"type\":\"response.completed\"");
}

/* Take in what was read; return whether the answer is whole. */
static bool parse(struct connection *c, const char *data, size_t length) {
    const char *end = data + length;
    while (data < end) {
        size_t share = (size_t)(end - data) < c->left ? (size_t)(end - data) : c->left;
        switch (c->part) {
        case HEAD:
            if (!(data = collect(c, data, end, "\r\n\r\n"))) return false;
            if (!read_head(c, c->head + c->used)) return true;
            c->used = 0;
            break;
        case LENGTH:
        case CHUNK_DATA:
            take(c, data, share);
            data += share;
            if (c->left -= share) break;
            if (c->part == LENGTH) return true;
            c->part = CHUNK_END;
            break;
        case CHUNK_END:
        case CHUNK_SIZE:
        case TRAILER:
            if (!(data = collect(c, data, end, "\r\n"))) return false;
            if (c->part == CHUNK_SIZE) {
                char *after;
                c->left = strtoull(c->head, &after, 16);
                if (after == c->head) blame(c, "a chunk without a size", 0);
                c->part = c->left ? CHUNK_DATA : TRAILER;
            } else if (c->part == CHUNK_END) {
                if (c->used != 2) blame(c, "a chunk longer than its size", 0);
                c->part = CHUNK_SIZE;
            } else if (c->used == 2)
                return true;
            c->used = 0;
            break;
        case FRAME_HEAD:
            data = frame_head(c, data, end);
            break;
        case FRAME_DATA:
            for (size_t i = 0; i < share && c->used < BEGINNING; i++) c->head[c->used++] = data[i];
            bytes += share;
            data += share;
            if (c->left -= share) break;
            if (last_message(c)) return true;
        }
    }
    return false;
}

static void serve(struct connection *c, unsigned events) {
    static char data[1 << 18];
    if (events & EPOLLOUT) send_request(c);
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return;
    ssize_t got = recv(c->fd, data, sizeof data, 0);
    if (got < 0 && errno == EAGAIN) return;
    bool whole = got > 0 && parse(c, data, (size_t)got);
    if (got <= 0 || c->used == MAX_HEAD - 1) {
        blame(c, "the server closed the connection", 0);
        finished++;
        errors++;
        close(c->fd);
        if (started == wanted) return;
        connect_to_server(c);
        start(c);
    } else if (whole) {
        finish(c);
        start(c);
    }
}

static void build_request(const char *file) {
    FILE *body = fopen(file, "rb");
    if (!body) fail(file);
    size_t head = strlen(target) + strlen(headers) + 256, size;
    request = malloc(head + (8u << 20));
    char *content = malloc(8u << 20);
    if (!request || !content) fail("memory");
    size = fread(content, 1, 8u << 20, body);
    fclose(body);
    if (websocket) { /* one frame of text, masked with zeros */
        bool large = size > 65535;
        request[0] = (char)0x81;
        request[1] = (char)(0x80 | (large ? 127 : 126));
        for (int i = large ? 8 : 2; i; i--) request[request_size++ + 2] = (char)(size >> 8 * (i - 1));
        memset(request + 2 + request_size, 0, 4);
        request_size += 6;
    } else
        request_size = (size_t)snprintf(request, head,
                                        "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
                                        "Content-Length: %zu\r\n%s\r\n",
                                        target, port, size, headers);
    if (keys && (key = strstr(request, "Bearer sk-"))) key += 10;
    memcpy(request + request_size, content, size);
    request_size += size;
    free(content);
}

static void report(uint64_t since) {
    printf("{\"requests\": %ld, \"seconds\": %.6f, \"events\": %llu, \"bytes\": %llu, \"errors\": %ld, \"answered\": %ld, "
           "\"problem\": \"%s\"}\n",
           finished, (double)(now() - since) / 1e9, (unsigned long long)frames, (unsigned long long)bytes, errors, answered,
           problem);
    fflush(stdout);
}

/* Wait until everything is answered, or, with hold, until every stream has sent something; return false at the limit. */
static bool run(struct connection *all, long count, uint64_t limit) {
    long made = 0;
    while (hold ? answered + errors < count : finished < wanted) {
        while (made < count && (!hold || made - answered < OPENING)) {
            connect_to_server(&all[made]);
            start(&all[made++]);
        }
        struct epoll_event events[256];
        uint64_t time = now();
        if (time >= limit) return false;
        int ready = epoll_wait(poller, events, 256, (int)((limit - time) / 1000000u) + 1);
        if (ready < 0 && errno != EINTR) fail("epoll_wait");
        for (int i = 0; i < ready; i++) serve(events[i].data.ptr, events[i].events);
    }
    return true;
}

int main(int count, char **arguments) {
    long connections = 1;
    double seconds = 60;
    char nothing[64];
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    for (int i = 4; i < count; i++) {
        const char *option = arguments[i], *value = i + 1 < count ? arguments[i + 1] : "";
        if (!strcmp(option, "--hold") || !strcmp(option, "--websocket")) {
            *(option[2] == 'h' ? &hold : &websocket) = true;
            continue;
        }
        if (!strcmp(option, "--connections"))
            connections = atol(value);
        else if (!strcmp(option, "--requests"))
            wanted = atol(value);
        else if (!strcmp(option, "--seconds"))
            seconds = atof(value);
        else if (!strcmp(option, "--keys"))
            keys = atol(value);
        else if (!strcmp(option, "--header") && strlen(headers) + strlen(value) + 3 < sizeof headers)
            strcat(strcat(headers, value), "\r\n");
        else
            count = 0;
        i++;
    }
    if (count < 4 || connections < 1 || wanted < 1 || seconds <= 0 || keys < 0 || keys > 1000000) {
        fprintf(stderr, "usage: load PORT PATH BODY_FILE [--connections C] [--requests M] [--seconds S] [--header H]... "
                        "[--keys K] [--websocket | --hold]\n");
        return 2;
    }
    alarm((unsigned)seconds + 5); /* whatever happens */
    port = (uint16_t)atoi(arguments[1]);
    if (hold) wanted = connections;
    if (connections > wanted) connections = wanted;
    if (keys && !strstr(headers, "Bearer sk-") && strlen(headers) + 64 < sizeof headers)
        strcat(headers, "Authorization: Bearer sk-000000\r\n");
    target = arguments[2];
    build_request(arguments[3]);
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct connection *all = calloc((size_t)connections, sizeof *all);
    if (poller < 0 || !all) fail("start");
    uint64_t since = now();
    if (!run(all, connections, since + (uint64_t)(seconds * 1e9))) {
        if (!*problem) strcpy(problem, "the time limit was reached");
        errors += wanted - finished;
    }
    report(since);
    if (hold && !errors)
        while (read(STDIN_FILENO, nothing, sizeof nothing) > 0) continue;
    return errors ? 1 : 0;
}
