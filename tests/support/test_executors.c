/* SPDX-License-Identifier: Apache-2.0
 *
 * test_executors.c - executors for tests (test_executors.h).
 */
#include "test_executors.h"

#include <pthread.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#ifndef UNDER_TSAN
#define UNDER_TSAN 0
#endif

enum { MAX_WORKERS = 256 };

typedef struct loop {
    const test_executor *executor;
    moxie_task_fn fn;
    void *context;
    int64_t tasks, next;
} loop;

typedef struct strand {
    loop *loop;
    int32_t worker;
    pthread_t thread;
} strand;

static void run_task(loop *l, int64_t task, int32_t worker)
{
    l->fn(l->context, task, worker);
    if (l->executor->after != NULL)
        l->executor->after(l->executor->after_user);
}

static void *run_strand(void *argument)
{
    const strand *s = argument;
    loop *l = s->loop;
    int64_t task;
    if (l->executor->order == TEST_LATE_THREADS)
        usleep((useconds_t)((s->worker * 7 + l->executor->regions * 3) % 5 * 300));
    while ((task = __atomic_fetch_add(&l->next, 1, __ATOMIC_RELAXED)) < l->tasks)
        run_task(l, task, s->worker);
    return NULL;
}

static void run(void *self, int64_t tasks, moxie_task_fn fn, void *context)
{
    test_executor *e = self;
    const int32_t workers = e->executor.workers;
    loop l = { .executor = e, .fn = fn, .context = context, .tasks = tasks };
    strand strands[MAX_WORKERS];
    e->regions++;
    if (e->order == TEST_IN_TURN || e->order == TEST_BACKWARDS) {
        for (int64_t i = 0; i < tasks; i++) {
            const int64_t task = e->order == TEST_IN_TURN ? i : tasks - 1 - i;
            run_task(&l, task, (int32_t)(task % workers));
        }
        return;
    }
    for (int32_t w = 0; w < workers; w++) {
        strands[w] = (strand) { .loop = &l, .worker = w };
        assert_int_equal(pthread_create(&strands[w].thread, NULL, run_strand, &strands[w]), 0);
    }
    for (int32_t w = 0; w < workers; w++)
        pthread_join(strands[w].thread, NULL);
}

void test_executor_init(test_executor *out, int32_t workers, test_order order)
{
    assert_true(workers >= 1 && workers <= MAX_WORKERS);
    *out = (test_executor) { .executor = { .self = out, .workers = workers, .run = run }, .order = order };
}

void test_skip_where_children_start_no_threads(void)
{
    if (UNDER_TSAN) {
        print_message("skipped: ThreadSanitizer cannot start threads after a fork\n");
        skip();
    }
    if (test_emulated()) {
        print_message("skipped: qemu's user mode fails in a child, forked from threads, that starts threads\n");
        skip();
    }
}
