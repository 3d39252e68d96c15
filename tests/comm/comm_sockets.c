/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_sockets.c - a transport over stream sockets (comm_sockets.h).
 *
 * Each operation sends one frame to every other rank: its number, its kind, its bytes. A rank reads a frame's bytes
 * straight into the memory of its own operation of that number; until that is started, it reads no further.
 */
#include "comm_sockets.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNTS = 1, ALLTOALLV, ALLGATHERV, REDUCE_SCATTER, ALLREDUCE, BARRIER, OPEN = 8 };

typedef struct frame {
    uint64_t number, kind, bytes;
} frame;

typedef struct piece {
    char *data;
    uint64_t bytes;
} piece;

typedef struct request {
    uint64_t number; /* 0: free */
    uint64_t kind;
    piece *in;     /* [ranks]; bytes: what is still to come */
    uint64_t *end; /* [ranks]: where this operation ends in what is sent to that rank */
    bool *got;     /* [ranks]: all of the frame is read */
    char *parts;   /* what is summed, one after another; or NULL */
    uint64_t part;
    void *result;
    int64_t n;
    moxie_comm_sum how;
} request;

typedef struct peer {
    int fd;
    bool closed;
    char *out; /* not sent yet: bytes [sent, queued) of all that is sent to it */
    uint64_t sent, queued;
    frame head;
    uint64_t head_bytes;
} peer;

typedef struct sockets {
    int32_t ranks, rank;
    uint64_t started;
    peer *peers;
    request open[OPEN];
} sockets;

/* ---- sending and receiving ---------------------------------------------------------------------------- */

static void queue(peer *p, const void *data, uint64_t bytes)
{
    const uint64_t there = p->queued - p->sent;
    p->out = realloc(p->out, there + bytes + 1);
    if (!p->out)
        abort();
    if (bytes > 0)
        memcpy(p->out + there, data, bytes);
    p->queued += bytes;
}

static void send_some(peer *p)
{
    while (p->sent < p->queued && !p->closed) {
        const ssize_t n = send(p->fd, p->out, p->queued - p->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) {
            p->closed = errno != EAGAIN && errno != EINTR;
            return;
        }
        p->sent += (uint64_t)n;
        memmove(p->out, p->out + n, p->queued - p->sent);
    }
}

/* Reads up to `bytes`; returns how many. */
static uint64_t read_some(peer *p, void *to, uint64_t bytes)
{
    if (bytes == 0 || p->closed)
        return 0;
    const ssize_t n = recv(p->fd, to, bytes, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        p->closed = true;
    return n > 0 ? (uint64_t)n : 0;
}

static moxie_status say(moxie_error *error, moxie_status code, const char *text, int32_t a, int32_t b)
{
    if (error) {
        memset(error, 0, sizeof *error);
        error->code = code;
        error->offset = -1;
        snprintf(error->text, sizeof error->text, text, a, b);
    }
    return code;
}

static request *started(sockets *s, uint64_t number)
{
    for (int i = 0; i < OPEN; i++)
        if (s->open[i].number == number)
            return &s->open[i];
    return NULL;
}

static bool waits_for_start(sockets *s, const peer *p)
{
    return p->head_bytes == sizeof p->head && !started(s, p->head.number);
}

static moxie_status receive(sockets *s, int32_t r, moxie_error *error)
{
    peer *p = &s->peers[r];
    for (;;) {
        p->head_bytes += read_some(p, (char *)&p->head + p->head_bytes, sizeof p->head - p->head_bytes);
        if (p->head_bytes < sizeof p->head)
            return MOXIE_OK;
        request *q = started(s, p->head.number);
        if (!q)
            return MOXIE_OK;
        piece *in = &q->in[r];
        if (p->head.kind != q->kind)
            return say(error, MOXIE_ERR_MISMATCH, "ranks %d and %d do different operations", s->rank, r);
        if (p->head.bytes != in->bytes)
            return say(error, MOXIE_ERR_MISMATCH, "ranks %d and %d state different sizes", s->rank, r);
        const uint64_t n = read_some(p, in->data, in->bytes);
        in->data += n;
        in->bytes -= n;
        p->head.bytes -= n;
        if (in->bytes > 0)
            return MOXIE_OK;
        q->got[r] = true;
        p->head_bytes = 0;
    }
}

/* ---- starting ----------------------------------------------------------------------------------------- */

static request *begin(sockets *s, uint64_t kind, uint64_t part)
{
    request *q = started(s, 0);
    const size_t n = (size_t)s->ranks;
    if (!q)
        abort();
    *q = (request) { .kind = kind, .part = part };
    q->number = ++s->started;
    q->in = calloc(n, sizeof *q->in);
    q->end = calloc(n, sizeof *q->end);
    q->got = calloc(n, sizeof *q->got);
    q->parts = part > 0 ? malloc(n * part) : NULL;
    for (int32_t r = 0; r < s->ranks && part > 0; r++)
        q->in[r] = (piece) { q->parts + (uint64_t)r * part, part };
    return q;
}

static void push(sockets *s, request *q, int32_t r, const void *data, uint64_t bytes)
{
    const frame head = { q->number, q->kind, bytes };
    peer *p = &s->peers[r];
    if (r != s->rank) {
        queue(p, &head, sizeof head);
        queue(p, data, bytes);
        q->end[r] = p->queued;
        send_some(p);
        return;
    }
    if (bytes > 0)
        memcpy(q->in[r].data, data, bytes);
    q->got[r] = true;
}

static int64_t number_of(const sockets *s, const request *q)
{
    return q - s->open;
}

static moxie_status sockets_counts(void *self, const int64_t *to, int64_t *from, int64_t each, int64_t *out,
                                   moxie_error *error)
{
    sockets *s = self;
    request *q = begin(s, COUNTS, 0);
    (void)error;
    for (int32_t r = 0; r < s->ranks; r++)
        q->in[r] = (piece) { (char *)(from + r * each), 8 * (uint64_t)each };
    for (int32_t r = 0; r < s->ranks; r++)
        push(s, q, r, to + r * each, 8 * (uint64_t)each);
    *out = number_of(s, q);
    return MOXIE_OK;
}

static moxie_status move_rows(sockets *s, uint64_t kind, const moxie_comm_rows *m, int64_t *out)
{
    request *q = begin(s, kind, 0);
    for (int32_t r = 0; r < s->ranks; r++)
        if (m->recv_rows[r] > 0)
            q->in[r] = (piece) { (char *)m->recv + (uint64_t)m->recv_at[r] * m->row_bytes,
                                 (uint64_t)m->recv_rows[r] * m->row_bytes };
    for (int32_t r = 0; r < s->ranks; r++) {
        const int32_t i = kind == ALLGATHERV ? 0 : r;
        if (m->send_rows[i] > 0)
            push(s, q, r, (const char *)m->send + (uint64_t)m->send_at[i] * m->row_bytes,
                 (uint64_t)m->send_rows[i] * m->row_bytes);
        else
            push(s, q, r, NULL, 0);
    }
    *out = number_of(s, q);
    return MOXIE_OK;
}

static moxie_status sockets_alltoallv(void *self, const moxie_comm_rows *m, int64_t *out, moxie_error *error)
{
    (void)error;
    return move_rows(self, ALLTOALLV, m, out);
}

static moxie_status sockets_allgatherv(void *self, const moxie_comm_rows *m, int64_t *out, moxie_error *error)
{
    (void)error;
    return move_rows(self, ALLGATHERV, m, out);
}

static moxie_status sockets_reduce_scatter(void *self, const moxie_comm_rows *m, int64_t *out, moxie_error *error)
{
    sockets *s = self;
    request *q = begin(s, REDUCE_SCATTER, (uint64_t)m->recv_rows[s->rank] * m->row_bytes);
    (void)error;
    q->result = m->recv;
    for (int32_t r = 0; r < s->ranks; r++)
        push(s, q, r, (const char *)m->send + (uint64_t)m->recv_at[r] * m->row_bytes,
             (uint64_t)m->recv_rows[r] * m->row_bytes);
    *out = number_of(s, q);
    return MOXIE_OK;
}

static moxie_status sockets_allreduce(void *self, void *values, int64_t n, moxie_comm_sum how, int64_t *out,
                                      moxie_error *error)
{
    sockets *s = self;
    const uint64_t bytes = (uint64_t)n * (how == MOXIE_COMM_MAX_F32 ? 4 : 8);
    request *q = begin(s, ALLREDUCE, bytes);
    (void)error;
    q->result = values;
    q->n = n;
    q->how = how;
    for (int32_t r = 0; r < s->ranks; r++)
        push(s, q, r, values, bytes);
    *out = number_of(s, q);
    return MOXIE_OK;
}

static moxie_status sockets_barrier(void *self, int64_t *out, moxie_error *error)
{
    sockets *s = self;
    request *q = begin(s, BARRIER, 0);
    (void)error;
    for (int32_t r = 0; r < s->ranks; r++)
        push(s, q, r, NULL, 0);
    *out = number_of(s, q);
    return MOXIE_OK;
}

/* ---- finishing ---------------------------------------------------------------------------------------- */

static void sum_parts(const sockets *s, request *q)
{
    memcpy(q->result, q->parts, q->part);
    for (int32_t r = 1; r < s->ranks; r++) {
        const char *part = q->parts + (uint64_t)r * q->part;
        for (uint64_t i = 0; i < q->part / 4 && q->kind == REDUCE_SCATTER; i++)
            ((float *)q->result)[i] += ((const float *)(const void *)part)[i];
        for (int64_t i = 0; i < q->n && q->how == MOXIE_COMM_MAX_F32; i++)
            ((float *)q->result)[i] = fmaxf(((float *)q->result)[i], ((const float *)(const void *)part)[i]);
        for (int64_t i = 0; i < q->n && q->how != MOXIE_COMM_MAX_F32; i++) {
            uint64_t *sum = (uint64_t *)q->result + i, value = ((const uint64_t *)(const void *)part)[i];
            const bool larger = (int64_t)value > (int64_t)*sum;
            *sum = q->how == MOXIE_COMM_SUM_I64 ? *sum + value : larger ? value : *sum;
        }
    }
}

static void release(request *q)
{
    free(q->in);
    free(q->end);
    free(q->got);
    free(q->parts);
    *q = (request) { 0 };
}

static bool waits_for(const sockets *s, const request *q, int32_t r)
{
    return !q->got[r] || s->peers[r].sent < q->end[r];
}

static moxie_status sockets_progress(void *self, int64_t number, int32_t *done, moxie_error *error)
{
    sockets *s = self;
    request *q = &s->open[number];
    *done = 1;
    for (int32_t r = 0; r < s->ranks; r++) {
        if (r == s->rank)
            continue;
        send_some(&s->peers[r]);
        const moxie_status status = receive(s, r, error);
        if (status != MOXIE_OK)
            return status;
        if (waits_for(s, q, r)) {
            *done = 0;
            if (s->peers[r].closed)
                return say(error, MOXIE_ERR_TIMEOUT, "rank %d has closed its connection to rank %d", r, s->rank);
        }
    }
    if (*done && q->part > 0)
        sum_parts(s, q);
    if (*done)
        release(q);
    return MOXIE_OK;
}

static int32_t sockets_late(void *self, int64_t number)
{
    const sockets *s = self;
    for (int32_t r = 0; r < s->ranks; r++)
        if (waits_for(s, &s->open[number], r))
            return r;
    return -1;
}

static void sockets_wait(void *self, int64_t number, int32_t ms)
{
    sockets *s = self;
    struct pollfd polled[64];
    nfds_t n = 0;
    (void)number;
    for (int32_t r = 0; r < s->ranks; r++) {
        const peer *p = &s->peers[r];
        if (r == s->rank || p->closed)
            continue;
        const short in = waits_for_start(s, p) ? 0 : POLLIN, out = p->sent < p->queued ? POLLOUT : 0;
        polled[n++] = (struct pollfd) { .fd = p->fd, .events = (short)(in | out) };
    }
    poll(polled, n, ms);
}

/* ---- the end and the beginning ------------------------------------------------------------------------ */

static void sockets_cancel(void *self)
{
    sockets *s = self;
    for (int i = 0; i < OPEN; i++)
        if (s->open[i].number != 0)
            release(&s->open[i]);
    for (int32_t r = 0; r < s->ranks; r++)
        if (r != s->rank)
            shutdown(s->peers[r].fd, SHUT_RDWR);
}

static void sockets_destroy(void *self)
{
    sockets *s = self;
    for (int32_t r = 0; r < s->ranks; r++) {
        if (r != s->rank)
            close(s->peers[r].fd);
        free(s->peers[r].out);
    }
    free(s->peers);
    free(s);
}

moxie_transport comm_sockets_create(int32_t ranks, int32_t rank, const int *fds, bool sleeps)
{
    moxie_transport t = MOXIE_TRANSPORT_INIT;
    sockets *s = calloc(1, sizeof *s);
    if (!s || !(s->peers = calloc((size_t)ranks, sizeof *s->peers)))
        abort();
    s->ranks = t.ranks = ranks;
    s->rank = t.rank = rank;
    for (int32_t r = 0; r < ranks; r++)
        s->peers[r].fd = fds[r];
    t.name = "sockets";
    t.self = s;
    t.counts = sockets_counts;
    t.alltoallv = sockets_alltoallv;
    t.allgatherv = sockets_allgatherv;
    t.reduce_scatter = sockets_reduce_scatter;
    t.allreduce = sockets_allreduce;
    t.barrier = sockets_barrier;
    t.progress = sockets_progress;
    t.late = sockets_late;
    t.cancel = sockets_cancel;
    t.destroy = sockets_destroy;
    t.wait = sleeps ? sockets_wait : NULL;
    return t;
}

/* ---- processes ---------------------------------------------------------------------------------------- */

static int run_rank(int32_t ranks, int32_t rank, int *fds, int32_t deadline_ms, bool sleeps, comm_wrap_fn *wrap,
                    comm_process_fn *fn, void *user)
{
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    moxie_comm *comm;
    moxie_error error;
    options.deadline_ms = deadline_ms;
    for (int32_t i = 0; i < ranks * ranks; i++) /* other ranks' ends */
        if (i / ranks != rank && fds[i] >= 0)
            close(fds[i]);
    moxie_transport t = comm_sockets_create(ranks, rank, fds + rank * ranks, sleeps);
    if (wrap != NULL)
        t = wrap(t, user);
    if (moxie_comm_create(&t, &options, &comm, &error) != MOXIE_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    return fn(comm, user);
}

int comm_run_processes(int32_t ranks, int32_t deadline_ms, bool sleeps, comm_process_fn *fn, void *user)
{
    return comm_run_faulty_processes(ranks, deadline_ms, sleeps, NULL, fn, user);
}

int comm_run_faulty_processes(int32_t ranks, int32_t deadline_ms, bool sleeps, comm_wrap_fn *wrap, comm_process_fn *fn,
                              void *user)
{
    int *fds = malloc((size_t)(ranks * ranks) * sizeof *fds);
    pid_t *pids = malloc((size_t)ranks * sizeof *pids);
    int bad = 0;
    for (int32_t a = 0; a < ranks; a++)
        for (int32_t b = 0; b <= a; b++) {
            int pair[2] = { -1, -1 };
            if (a != b)
                assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
            fds[a * ranks + b] = pair[0];
            fds[b * ranks + a] = pair[1];
        }
    fflush(NULL);
    for (int32_t r = 0; r < ranks; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0) {
            alarm(300);
            _exit(run_rank(ranks, r, fds, deadline_ms, sleeps, wrap, fn, user));
        }
    }
    for (int32_t i = 0; i < ranks * ranks; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    for (int32_t r = 0; r < ranks; r++) {
        int status = -1;
        waitpid(pids[r], &status, 0);
        bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    free(pids);
    free(fds);
    return bad;
}
