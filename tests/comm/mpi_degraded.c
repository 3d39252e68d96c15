/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_degraded.c - one rank of a program of mpirun in which rank 1 is killed or stopped, and the others go on:
 *
 *     runs with options.degraded, in one of which rank 1 is lost
 *       -> a run without it, compared with one rank that skips the choices of rank 1's experts
 *       -> a communicator, a comm, a slot map, a layer and a plan without rank 1
 *       -> a run, compared with one rank
 *
 *     mpi_degraded killed | stopped [MICROSECONDS [shrink]]    when, from the first run on
 *
 * The communicator without rank 1: MPI_Comm_create_group; `shrink`: MPIX_Comm_shrink, of an MPI with ULFM.
 *
 * Prints "rank N: fine", or what is wrong.
 */
#include <dlfcn.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <mpi.h>

#include <moxie/moxie_parallel.h>

#include "test_ranks.h"

enum { TOKENS = 24, TOP_K = 3, EXPERTS = 8, DEAD = 1, DEADLINE = 4000, RUNS = 40, PAUSE_MS = 3 };

static int ranks, rank;
static test_layer layer;
static int32_t ids[TOKENS * TOP_K];
static float weights[TOKENS * TOP_K];

static _Noreturn void wrong(const char *what, const char *text)
{
    printf("rank %d, line 0: %s: %s\n", rank, what, text);
    fflush(stdout);
    _exit(1);
}

#define FINE(call)                                                                                                     \
    do {                                                                                                               \
        moxie_error error = { 0 };                                                                                     \
        if ((call) != MOXIE_OK)                                                                                        \
            wrong(#call, error.text);                                                                                  \
    } while (0)

static moxie_run_args args_of(int64_t first, int64_t count, const int32_t *of, void *output)
{
    moxie_run_args a = test_ranks_args(&layer, first, count);
    a.logits = NULL;
    a.padding = a.bias_choice = NULL;
    a.ids = of + first * TOP_K;
    a.weights = weights + first * TOP_K;
    a.output = output;
    return a;
}

static void begin(void)
{
    const test_layer_limits limits = { .tokens = TOKENS,
                                       .experts = EXPERTS,
                                       .top_k = TOP_K,
                                       .no_parallel = true,
                                       .plain_routing = true,
                                       .plain_acts = true };
    test_rng rng = { 1234 };
    moxie_options options = MOXIE_OPTIONS_INIT;
    test_layer_make(&layer, &rng, &limits);
    layer.config.routing.on_input = 0;
    options.max_tokens = TOKENS;
    test_layer_plan(&layer, &options);
    for (int i = 0; i < TOKENS * TOP_K; i++) {
        ids[i] = (int32_t)((i / TOP_K * 5 + i % TOP_K) % EXPERTS);
        weights[i] = (float)test_range(&rng, 1, 1000) / 700;
    }
}

/* One rank's output, with or without rank 1's experts. */
static char *alone(bool without)
{
    int32_t some[TOKENS * TOP_K], slot_of[EXPERTS], count;
    char *output = malloc(test_layer_output_bytes(&layer) + 1);
    moxie_expert_map(MOXIE_MAP_LINEAR, EXPERTS, ranks, DEAD, slot_of, &count, NULL);
    for (int i = 0; i < TOKENS * TOP_K; i++)
        some[i] = without && slot_of[ids[i]] >= 0 ? -1 : ids[i];
    moxie_run_args args = layer.args;
    args.logits = NULL;
    args.padding = args.bias_choice = NULL;
    args.ids = some;
    args.weights = weights;
    args.output = output;
    FINE(moxie_plan_run(layer.plan, &args, &error));
    return output;
}

typedef struct on_ranks {
    moxie_layer *layer;
    moxie_plan *plan;
    int64_t first, count;
    char *output; /* of the own tokens */
    void *workspace;
} on_ranks;

static void make(on_ranks *o, moxie_comm *comm, const moxie_slot_map *map, moxie_degraded degraded)
{
    moxie_layer_config config = layer.config;
    moxie_options options = MOXIE_OPTIONS_INIT;
    const int64_t of = moxie_comm_ranks(comm), r = moxie_comm_rank(comm);
    config.ep_size = (int32_t)of;
    config.ep_rank = (int32_t)r;
    config.ep_map = MOXIE_MAP_LINEAR;
    config.slot_map = map;
    options.comm = comm;
    options.max_tokens = TOKENS;
    options.degraded = degraded;
    FINE(moxie_layer_create(&config, &options, &o->layer, &error));
    FINE(moxie_layer_prepare(o->layer, &layer.weights, &options, &error));
    FINE(moxie_plan_create(o->layer, &options, &o->plan, &error));
    o->first = r * TOKENS / of;
    o->count = (r + 1) * TOKENS / of - o->first;
    o->output = malloc(test_layer_output_bytes(&layer) + 1);
    o->workspace = aligned_alloc(64, moxie_plan_workspace_bytes(o->plan));
}

static void run(on_ranks *o)
{
    moxie_run_args args = args_of(o->first, o->count, ids, o->output);
    args.workspace = o->workspace;
    args.workspace_bytes = moxie_plan_workspace_bytes(o->plan);
    FINE(moxie_plan_run(o->plan, &args, &error));
}

static void compare(const on_ranks *o, const char *want, const char *what)
{
    const int64_t row = layer.config.hidden * mox_dtype_bytes(layer.config.dtype);
    if (memcmp(o->output, want + o->first * row, (size_t)(o->count * row)) != 0)
        wrong(what, "other bytes than one rank's");
}

static void end_this(int signal_number)
{
    (void)signal_number;
    kill(getpid(), SIGKILL);
}

static void stop_this(int signal_number)
{
    (void)signal_number;
    kill(getpid(), SIGSTOP);
}

/* As many runs on each rank, for longer than rank 1 lives; then one that has lost it from its beginning. */
static void run_degraded(on_ranks *o, moxie_comm *comm)
{
    moxie_losses losses = MOXIE_LOSSES_INIT;
    for (int i = 0; i < RUNS; i++) {
        run(o);
        usleep(PAUSE_MS * 1000);
    }
    run(o);
    FINE(moxie_plan_losses(o->plan, &losses, &error));
    if (losses.ranks != 1 || !moxie_comm_lost(comm, DEAD))
        wrong("losses", "not rank 1 alone is lost");
    compare(o, alone(true), "a run without rank 1");
}

/* MPI_Comm_create_group is collective over the ranks that are left alone. Only headers with ULFM declare the other. */
static MPI_Comm without_dead(bool shrinks)
{
    MPI_Comm communicator = MPI_COMM_NULL;
    MPI_Group all, left;
    const int excluded[] = { DEAD };
    int (*shrink)(MPI_Comm, MPI_Comm *) = NULL;
    if (shrinks) {
        *(void **)&shrink = dlsym(RTLD_DEFAULT, "MPIX_Comm_shrink");
        if (shrink == NULL || shrink(MPI_COMM_WORLD, &communicator) != MPI_SUCCESS)
            wrong("MPIX_Comm_shrink", shrink == NULL ? "MPI has none" : "it failed");
        return communicator;
    }
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_excl(all, 1, excluded, &left);
    if (MPI_Comm_create_group(MPI_COMM_WORLD, left, 7, &communicator) != MPI_SUCCESS)
        wrong("MPI_Comm_create_group", "it failed");
    return communicator;
}

static void recover(bool shrinks)
{
    MPI_Comm communicator = without_dead(shrinks);
    moxie_comm *comm = NULL;
    int32_t map_of[EXPERTS], first[65], now_of[EXPERTS], now_first[65];
    const int32_t dead[] = { DEAD };
    moxie_slot_map map = MOXIE_SLOT_MAP_INIT, now;
    FINE(moxie_comm_mpi_create(&communicator, NULL, &comm, &error));
    FINE(moxie_slot_map_default(MOXIE_MAP_LINEAR, EXPERTS, EXPERTS, ranks, map_of, first, &error));
    map.ranks = ranks;
    map.experts = map.slots = EXPERTS;
    map.expert_of = map_of;
    map.first_slot = first;
    now = map;
    now.ranks--;
    now.generation++;
    now.expert_of = now_of;
    now.first_slot = now_first;
    FINE(moxie_slot_map_without(&map, dead, 1, NULL, now_of, now_first, &now.slots, &error));
    on_ranks anew;
    make(&anew, comm, &now, MOXIE_DEGRADED_NONE);
    run(&anew);
    compare(&anew, alone(false), "a run of the ranks that are left");
    FINE(moxie_comm_barrier(comm, &error));
}

int main(int argc, char **argv)
{
    const bool stopped = argc > 1 && strcmp(argv[1], "stopped") == 0;
    const int moment = argc > 2 ? atoi(argv[2]) : 0;
    const bool shrinks = argc > 3 && strcmp(argv[3], "shrink") == 0;
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    moxie_comm *comm = NULL;
    int64_t pids[64], send[64];
    signal(SIGPIPE, SIG_IGN); /* of a TCP connection to a dead rank */
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    setvbuf(stdout, NULL, _IOLBF, 0);
    options.deadline_ms = DEADLINE;
    FINE(moxie_comm_mpi_create(NULL, &options, &comm, &error));
    for (int r = 0; r < ranks; r++)
        send[r] = getpid();
    FINE(moxie_comm_counts(comm, send, pids, 1, &error));
    begin();
    on_ranks o;
    make(&o, comm, NULL, MOXIE_DEGRADED_KEEP);
    run(&o);
    compare(&o, alone(false), "a run of all ranks");
    if (rank == DEAD) {
        signal(SIGALRM, stopped ? stop_this : end_this);
        setitimer(ITIMER_REAL, &(struct itimerval) { .it_value.tv_usec = 1 + moment }, NULL);
        for (;;)
            run(&o);
    }
    run_degraded(&o, comm);
    recover(shrinks);
    printf("rank %d: fine\n", rank);
    fflush(stdout);
    if (rank == 0 && stopped) {
        usleep(300000); /* the others end meanwhile */
        kill((pid_t)pids[DEAD], SIGKILL);
    }
    _exit(0); /* MPI_Finalize may wait for a rank that is dead */
}
