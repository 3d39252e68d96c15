/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_threads.c - runs a function as every rank of a local comm (comm_threads.h).
 */
#include "comm_threads.h"

#include <pthread.h>

typedef struct starter {
    comm_thread thread;
    comm_thread_fn *fn;
} starter;

static void *begin(void *context)
{
    starter *s = context;
    s->fn(&s->thread);
    return NULL;
}

void comm_run_threads(int32_t ranks, int32_t deadline_ms, comm_thread_fn *fn, void *user)
{
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    moxie_error error;
    options.deadline_ms = deadline_ms;
    moxie_comm **comms = calloc((size_t)ranks, sizeof *comms);
    starter *starters = calloc((size_t)ranks, sizeof *starters);
    pthread_t *threads = calloc((size_t)ranks, sizeof *threads);
    assert_true(comms && starters && threads);
    assert_ok(moxie_comm_local_create(ranks, &options, comms, &error), &error);
    for (int32_t r = 0; r < ranks; r++) {
        starters[r] = (starter) { .thread = { .comm = comms[r], .ranks = ranks, .rank = r, .user = user }, .fn = fn };
        assert_int_equal(pthread_create(&threads[r], NULL, begin, &starters[r]), 0);
    }
    for (int32_t r = 0; r < ranks; r++)
        pthread_join(threads[r], NULL);
    char failure[sizeof starters->thread.failure] = "";
    for (int32_t r = 0; r < ranks; r++) {
        const char *one = starters[r].thread.failure; /* the cause rather than what followed from it */
        if (one[0] != 0 && (failure[0] == 0 || (strstr(failure, "gave up") && !strstr(one, "gave up"))))
            memcpy(failure, one, sizeof failure);
    }
    free(threads);
    free(starters);
    free(comms);
    if (failure[0] != 0)
        fail_msg("%s", failure);
}
