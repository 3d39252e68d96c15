/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_ranks_pool.c - one pool of threads for all local ranks, which take turns.
 *
 *     rank 0 \
 *     rank 1  > a loop at a time -> driver -> executor: the driver is worker 0
 *     rank 2 /
 *
 * A rank sleeps while its loop runs. So as many threads compute as the pool has, and they stay on their processors.
 * Threads of the ranks themselves, more than processors, are not divided evenly by the system in the time of a step.
 */
#include "cli_ranks_pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "cli.h"

struct cli_ranks_pool {
    moxie_executor executor; /* what ranks hold */
    moxie_executor *inner;
    pthread_t driver;
    pthread_mutex_t lock;
    pthread_cond_t submitted, finished, vacant;
    bool taken, pending, quit; /* taken: a rank has its loop here; pending: the driver has not begun it */
    bool done;
    int64_t tasks;
    moxie_task_fn fn;
    void *context;
};

static void *drive(void *user)
{
    cli_ranks_pool *p = user;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->pending && !p->quit)
            pthread_cond_wait(&p->submitted, &p->lock);
        if (p->quit)
            break;
        p->pending = false;
        pthread_mutex_unlock(&p->lock);
        p->inner->run(p->inner->self, p->tasks, p->fn, p->context);
        pthread_mutex_lock(&p->lock);
        p->done = true;
        pthread_cond_signal(&p->finished);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void run(void *self, int64_t tasks, moxie_task_fn fn, void *context)
{
    cli_ranks_pool *p = self;
    pthread_mutex_lock(&p->lock);
    while (p->taken)
        pthread_cond_wait(&p->vacant, &p->lock);
    p->taken = p->pending = true;
    p->done = false;
    p->tasks = tasks;
    p->fn = fn;
    p->context = context;
    pthread_cond_signal(&p->submitted);
    while (!p->done)
        pthread_cond_wait(&p->finished, &p->lock);
    p->taken = false;
    pthread_cond_signal(&p->vacant);
    pthread_mutex_unlock(&p->lock);
}

moxie_status cli_ranks_pool_create(moxie_executor *inner, cli_ranks_pool **out, moxie_error *error)
{
    cli_ranks_pool *p = cli_alloc(sizeof *p);
    *p = (cli_ranks_pool) { .executor = { .self = p, .workers = inner->workers, .run = run }, .inner = inner };
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->submitted, NULL);
    pthread_cond_init(&p->finished, NULL);
    pthread_cond_init(&p->vacant, NULL);
    if (pthread_create(&p->driver, NULL, drive, p) != 0) {
        free(p);
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no thread for the pool of all ranks");
    }
    *out = p;
    return MOXIE_OK;
}

moxie_executor *cli_ranks_pool_executor(cli_ranks_pool *pool)
{
    return &pool->executor;
}

void cli_ranks_pool_destroy(cli_ranks_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->quit = true;
    pthread_cond_signal(&pool->submitted);
    pthread_mutex_unlock(&pool->lock);
    pthread_join(pool->driver, NULL);
    pthread_cond_destroy(&pool->vacant);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->submitted);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}
