/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_stub.c - libnccl.so.2 without a GPU: ranks are threads of one process, "device" memory is the host's, and
 * messages are really exchanged. It holds the transport to NCCL's rules: one group in progress at a time. Making a
 * communicator and ending it block; groups are as with NCCL_COMM_BLOCKING=0.
 *
 * A group is in progress until all its messages have been matched. So an event that is recorded afterwards is done at
 * once, as the launch table of the tests has it. nccl_stub_counts() tells what was called.
 *
 * A group that is enqueued while a stream is captured (test_stream.h) becomes a part of the graph. Each launch submits
 * it again and waits for its messages, at most WAIT seconds.
 *
 * After nccl_stub_connect_ranks(true) a communicator's first group waits on the host until each of its peers has begun
 * one or has aborted, at most WAIT seconds, as NCCL does when it connects ranks.
 *
 * After nccl_stub_fail_ids(true) there is no id for a new communicator.
 *
 * A group on a lazy stream (test_lazy.h) is the stream's work: it begins when it is the stream's first and all groups
 * of its communicator before it have ended, as NCCL does, and ends when its messages have been matched.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test_stream.h"

enum { SUCCESS, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, IN_PROGRESS = 7 };
enum { RANKS = 64, MESSAGES = 2 * RANKS, WAIT = 20 };

typedef struct unique_id {
    char bytes[128];
} unique_id;

typedef struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
} config;

typedef struct message {
    const void *from;
    void *to;
    size_t bytes;
    int peer;
    bool done;
} message;

struct world;

/* A group of a graph. */
typedef struct kept {
    struct communicator *of;
    int n;
    message group[MESSAGES];
    struct kept *next;
} kept;

/* A group on a lazy stream. They are never freed: streams and graphs may hold one when its communicator is gone. */
typedef struct later_group {
    struct communicator *of; /* NULL: it was aborted */
    uint64_t number;         /* of the communicator's groups; 0: of a graph, whose streams order it */
    struct later_group *next;
    int n;
    message group[];
} later_group;

typedef struct communicator {
    struct world *world;
    int rank, n;
    message group[MESSAGES];
    kept *kept;
    const later_group *current; /* the group on lazy streams that has begun */
    uint64_t enqueued, ended;   /* of those */
    bool lazy, begun;
    bool finalizing, failed;
} communicator;

/* All communicators of one id. */
typedef struct world {
    unique_id id;
    int ranks, joined, left;
    bool aborted; /* some rank has */
    communicator *of[RANKS];
    struct world *next;
} world;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static world *worlds;
static uint64_t ids;
static int64_t groups, messages, bytes, aborts;
static later_group *later_groups;
static bool connects;                     /* nccl_stub_connect_ranks() */
static bool has_no_ids;                   /* nccl_stub_fail_ids() */
static const test_stream *default_stream; /* NULL: work on it is done at once */
static _Thread_local message building[MESSAGES];
static _Thread_local int built;
static _Thread_local communicator *builder;
static _Thread_local const test_stream *built_on;

int ncclGetVersion(int *version);
int ncclGetUniqueId(unique_id *id);
int ncclCommInitRankConfig(communicator **out, int ranks, unique_id id, int rank, config *c);
int ncclCommFinalize(communicator *c);
int ncclCommDestroy(communicator *c);
int ncclCommAbort(communicator *c);
int ncclCommGetAsyncError(communicator *c, int *state);
const char *ncclGetErrorString(int result);
const char *ncclGetLastError(communicator *c);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclSend(const void *from, size_t count, int type, int peer, communicator *c, void *stream);
int ncclRecv(void *to, size_t count, int type, int peer, communicator *c, void *stream);
void nccl_stub_counts(int64_t counts[4]);
void nccl_stub_set_default(const test_stream *stream);
void nccl_stub_connect_ranks(bool on);
void nccl_stub_fail_ids(bool on);

void nccl_stub_set_default(const test_stream *stream)
{
    default_stream = stream;
}

void nccl_stub_connect_ranks(bool on)
{
    connects = on;
}

void nccl_stub_fail_ids(bool on)
{
    has_no_ids = on;
}

int ncclGetVersion(int *version)
{
    *version = 22803;
    return SUCCESS;
}

int ncclGetUniqueId(unique_id *id)
{
    if (has_no_ids)
        return SYSTEM_ERROR;
    memset(id, 0x5a, sizeof *id);
    const uint64_t number = __atomic_add_fetch(&ids, 1, __ATOMIC_RELAXED);
    memcpy(id, &number, sizeof number);
    return SUCCESS;
}

const char *ncclGetErrorString(int result)
{
    return result == INVALID_USAGE ? "invalid usage" : result == INVALID_ARGUMENT ? "invalid argument" : "an error";
}

const char *ncclGetLastError(communicator *c)
{
    (void)c;
    return "the stub says so";
}

void nccl_stub_counts(int64_t counts[4])
{
    pthread_mutex_lock(&lock);
    const int64_t all[4] = { groups, messages, bytes, aborts };
    memcpy(counts, all, sizeof all);
    pthread_mutex_unlock(&lock);
}

/* ---- communicators ------------------------------------------------------------------------------------- */

static world *world_of(const unique_id *id, int ranks)
{
    for (world *w = worlds; w != NULL; w = w->next)
        if (memcmp(&w->id, id, sizeof *id) == 0)
            return w->ranks == ranks ? w : NULL;
    world *w = calloc(1, sizeof *w);
    w->id = *id;
    w->ranks = ranks;
    w->next = worlds;
    return worlds = w;
}

static void leave(communicator *c);
static bool in_progress(communicator *c);

/* Waits for the others, at most WAIT seconds. */
static bool all_join(communicator *c)
{
    const time_t begin = time(NULL);
    bool joined = false;
    while (!joined && time(NULL) - begin < WAIT) {
        pthread_mutex_lock(&lock);
        joined = c->world->joined == c->world->ranks;
        pthread_mutex_unlock(&lock);
        nanosleep(&(struct timespec) { .tv_nsec = 20000 }, NULL);
    }
    return joined;
}

int ncclCommInitRankConfig(communicator **out, int ranks, unique_id id, int rank, config *c)
{
    if (c->size < sizeof *c || c->magic != 0xcafebeefu || c->version < 21400 || c->blocking != 1 || ranks > RANKS)
        return INVALID_ARGUMENT;
    pthread_mutex_lock(&lock);
    world *w = world_of(&id, ranks);
    const bool wrong = w == NULL || rank < 0 || rank >= ranks || w->of[rank] != NULL;
    if (!wrong) {
        *out = calloc(1, sizeof **out);
        (*out)->world = w;
        (*out)->rank = rank;
        w->of[rank] = *out;
        w->joined++;
    }
    pthread_mutex_unlock(&lock);
    if (wrong || all_join(*out))
        return wrong ? INVALID_USAGE : SUCCESS;
    pthread_mutex_lock(&lock);
    leave(*out);
    pthread_mutex_unlock(&lock);
    return SYSTEM_ERROR;
}

/* The caller holds the lock. The last of a world frees it. */
static void leave(communicator *c)
{
    world *w = c->world;
    w->of[c->rank] = NULL;
    while (c->kept != NULL) {
        kept *k = c->kept;
        c->kept = k->next;
        free(k);
    }
    for (later_group *g = later_groups; g != NULL; g = g->next)
        if (g->of == c)
            g->of = NULL;
    free(c);
    for (int r = 0; r < w->ranks; r++)
        if (w->of[r] != NULL)
            return;
    for (world **at = &worlds; *at != NULL; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            free(w);
            return;
        }
}

int ncclCommFinalize(communicator *c)
{
    const time_t begin = time(NULL);
    bool waits = true, lost = false;
    pthread_mutex_lock(&lock);
    c->finalizing = true;
    c->world->left++;
    pthread_mutex_unlock(&lock);
    while (waits && !lost && time(NULL) - begin < WAIT) {
        pthread_mutex_lock(&lock);
        waits = in_progress(c);
        lost = waits && c->world->aborted;
        pthread_mutex_unlock(&lock);
        nanosleep(&(struct timespec) { .tv_nsec = 20000 }, NULL);
    }
    return waits ? SYSTEM_ERROR : SUCCESS;
}

int ncclCommDestroy(communicator *c)
{
    pthread_mutex_lock(&lock);
    leave(c);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int ncclCommAbort(communicator *c)
{
    pthread_mutex_lock(&lock);
    aborts++;
    c->world->aborted = true;
    leave(c);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

/* The first message of `c` that waits for `peer`, of one direction. */
static message *waiting(communicator *c, int peer, bool sends)
{
    for (int i = 0; c != NULL && i < c->n; i++)
        if (!c->group[i].done && c->group[i].peer == peer && (c->group[i].from != NULL) == sends)
            return &c->group[i];
    return NULL;
}

/* Returns whether all have been. */
static bool match(communicator *c)
{
    bool all = true;
    for (int i = 0; i < c->n; i++) {
        message *m = &c->group[i];
        message *other = m->done ? NULL : waiting(c->world->of[m->peer], c->rank, m->from == NULL);
        all = all && (m->done || other != NULL);
        if (other == NULL)
            continue;
        message *s = m->from != NULL ? m : other, *r = m->from != NULL ? other : m;
        memcpy(r->to, s->from, s->bytes < r->bytes ? s->bytes : r->bytes);
        bytes += (int64_t)s->bytes;
        s->done = r->done = true;
    }
    return all;
}

static bool in_progress(communicator *c)
{
    if (c->world->joined < c->world->ranks)
        return true;
    if (!c->lazy && !match(c))
        return true;
    return c->finalizing && c->world->left < c->world->ranks;
}

int ncclCommGetAsyncError(communicator *c, int *state)
{
    pthread_mutex_lock(&lock);
    *state = in_progress(c) ? IN_PROGRESS : SUCCESS;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int ncclGroupStart(void)
{
    built = 0;
    builder = NULL;
    built_on = NULL;
    return SUCCESS;
}

static int add(message m, int type, communicator *c, const void *stream)
{
    if (type != 0 || built == MESSAGES || m.peer < 0 || m.peer >= c->world->ranks || (builder != NULL && builder != c))
        return INVALID_ARGUMENT;
    builder = c;
    built_on = stream;
    building[built++] = m;
    return SUCCESS;
}

int ncclSend(const void *from, size_t count, int type, int peer, communicator *c, void *stream)
{
    return add((message) { .from = from, .bytes = count, .peer = peer }, type, c, stream);
}

int ncclRecv(void *to, size_t count, int type, int peer, communicator *c, void *stream)
{
    return add((message) { .to = to, .bytes = count, .peer = peer }, type, c, stream);
}

/* False: another group is in progress. */
static bool submit(communicator *c, const message *group, int n)
{
    pthread_mutex_lock(&lock);
    const bool busy = in_progress(c);
    if (!busy) {
        memcpy(c->group, group, (size_t)n * sizeof *group);
        c->n = n;
        groups++;
        messages += n;
    }
    pthread_mutex_unlock(&lock);
    return !busy;
}

/* The part of a graph: args is a pointer to what was kept. */
static moxie_status submit_and_wait(const void *args, moxie_error *error)
{
    const kept *k = *(const kept *const *)args;
    const time_t begin = time(NULL);
    int state = IN_PROGRESS;
    bool submitted = false;
    while (state == IN_PROGRESS && time(NULL) - begin < WAIT) {
        submitted = submitted || submit(k->of, k->group, k->n);
        ncclCommGetAsyncError(k->of, &state);
        state = submitted ? state : IN_PROGRESS;
        nanosleep(&(struct timespec) { .tv_nsec = 20000 }, NULL);
    }
    if (error != NULL && state != SUCCESS)
        error->code = MOXIE_ERR_TIMEOUT;
    return state == SUCCESS ? MOXIE_OK : MOXIE_ERR_TIMEOUT;
}

static int keep(communicator *c)
{
    kept *k = calloc(1, sizeof *k);
    *k = (kept) { .of = c, .n = built, .next = c->kept };
    memcpy(k->group, building, (size_t)built * sizeof building[0]);
    c->kept = k;
    return built_on->enqueue(submit_and_wait, &k, sizeof k, NULL) == MOXIE_OK ? SUCCESS : INVALID_USAGE;
}

/* The work of a lazy stream: args is a pointer to the group. */
static moxie_status begin_or_end(const void *args, moxie_error *error)
{
    later_group *g = *(later_group *const *)args;
    (void)error;
    pthread_mutex_lock(&lock);
    communicator *c = g->of;
    if (c != NULL && c->current == NULL && (g->number == 0 || g->number == c->ended + 1)) {
        memcpy(c->group, g->group, (size_t)g->n * sizeof g->group[0]);
        c->n = g->n;
        c->current = g;
    }
    const bool ends = c == NULL || (c->current == g && match(c));
    if (c != NULL && ends) {
        c->current = NULL;
        c->ended += g->number != 0;
    }
    pthread_mutex_unlock(&lock);
    return ends ? MOXIE_OK : MOXIE_ERR_TIMEOUT;
}

static int enqueue(communicator *c, const test_stream *stream)
{
    const size_t size = (size_t)built * sizeof building[0];
    later_group *g = calloc(1, sizeof *g + size);
    *g = (later_group) { .of = c, .n = built };
    memcpy(g->group, building, size);
    pthread_mutex_lock(&lock);
    c->lazy = true;
    if (stream->may_wait())
        g->number = ++c->enqueued;
    g->next = later_groups;
    later_groups = g;
    groups++;
    messages += built;
    pthread_mutex_unlock(&lock);
    return stream->later(stream, begin_or_end, &g, sizeof g) == MOXIE_OK ? SUCCESS : INVALID_USAGE;
}

static bool are_connected(communicator *c)
{
    bool all = true;
    for (int i = 0; i < built; i++) {
        const communicator *peer = c->world->of[building[i].peer];
        all = all && peer != NULL && peer->begun;
    }
    return all;
}

/* False: not all have come. */
static bool connect_ranks(communicator *c)
{
    const time_t begin = time(NULL);
    bool connected = c->begun, lost = false;
    pthread_mutex_lock(&lock);
    c->begun = true;
    pthread_mutex_unlock(&lock);
    while (!connected && !lost && time(NULL) - begin < WAIT) {
        pthread_mutex_lock(&lock);
        connected = are_connected(c);
        lost = c->world->aborted;
        pthread_mutex_unlock(&lock);
        nanosleep(&(struct timespec) { .tv_nsec = 20000 }, NULL);
    }
    return connected;
}

int ncclGroupEnd(void)
{
    communicator *c = builder;
    if (c == NULL)
        return SUCCESS;
    if (connects && !connect_ranks(c))
        return SYSTEM_ERROR;
    const test_stream *stream = built_on != NULL ? built_on : default_stream;
    if (stream != NULL && stream->later != NULL)
        return enqueue(c, stream);
    if (built_on != NULL && !built_on->may_wait())
        return keep(c);
    return submit(c, building, built) ? IN_PROGRESS : INVALID_USAGE;
}
