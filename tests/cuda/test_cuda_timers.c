/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_timers.c - timers of libmoxie_cuda (device_timer.h) over events that note who made them.
 *
 *     threads   that make, use and destroy timers at the same time, as ranks do, never share an event
 *     limits    all timers in use, and an event that cannot be made: errors, and nothing stays taken
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "cuda/device/device_error.h"
#include "cuda/device/device_timer.h"
#include "test_support.h"

/* ---- the runtime ------------------------------------------------------------------------------------------ */

enum { SUCCESS, NO_EVENT, OTHERS_EVENT };

/* Events are never freed, so that one that was destroyed is known. */
struct emulated_event {
    pthread_t owner;
    atomic_bool alive;
};
enum { EVENTS = 1 << 16 };
static struct emulated_event all[EVENTS];
static atomic_int made, alive, wrong, fails_in;

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    if (atomic_load(&fails_in) > 0 && atomic_fetch_sub(&fails_in, 1) == 1)
        return NO_EVENT;
    const int i = atomic_fetch_add(&made, 1);
    assert_true(i < EVENTS);
    all[i].owner = pthread_self();
    atomic_store(&all[i].alive, true);
    atomic_fetch_add(&alive, 1);
    sched_yield(); /* the driver takes a while, too */
    *out = &all[i];
    return SUCCESS;
}

static cudaError_t check(cudaEvent_t event)
{
    const bool own = event != NULL && atomic_load(&event->alive) && pthread_equal(event->owner, pthread_self());
    atomic_fetch_add(&wrong, !own);
    return own ? SUCCESS : OTHERS_EVENT;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    const cudaError_t code = check(event);
    if (event != NULL && atomic_exchange(&event->alive, false))
        atomic_fetch_sub(&alive, 1);
    return code;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    return check(event);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return check(event);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t stop)
{
    *milliseconds = (float)(stop - start);
    return check(start) != SUCCESS ? OTHERS_EVENT : check(stop);
}

moxie_status mox_cuda_status(cudaError_t code, const char *what, moxie_error *error)
{
    return code == SUCCESS ? MOXIE_OK : mox_fail(MOXIE_ERR_IO, error, "%s: %d", what, code);
}

/* ---- tests ------------------------------------------------------------------------------------------------ */

enum { THREADS = 8, ROUNDS = 1000 };

static void *use_timers(void *user)
{
    moxie_error error;
    float ms;
    for (int i = 0; i < ROUNDS; i++) {
        void *timer = NULL;
        if (mox_device_timer_create(&timer, &error) != MOXIE_OK ||
            mox_device_timer_start(timer, NULL, &error) != MOXIE_OK ||
            mox_device_timer_stop(timer, NULL, &ms, &error) != MOXIE_OK)
            atomic_fetch_add(&wrong, 1);
        mox_device_timer_destroy(timer);
    }
    return user;
}

static void threads_share_no_timer(void **state)
{
    pthread_t threads[THREADS];
    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_timers, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(wrong, 0);
    assert_int_equal(alive, 0);
}

static void take_all(void **timers)
{
    moxie_error error = { 0 };
    void *none = NULL;
    for (int i = 0; i < MOX_DEVICE_TIMERS; i++)
        assert_int_equal(mox_device_timer_create(&timers[i], &error), MOXIE_OK);
    assert_int_equal(mox_device_timer_create(&none, &error), MOXIE_ERR_MEMORY);
    assert_non_null(strstr(error.text, "all 64 timers are in use"));
    assert_null(none);
}

static void failures_leave_nothing_taken(void **state)
{
    void *timers[MOX_DEVICE_TIMERS] = { NULL };
    moxie_error error = { 0 };
    (void)state;
    for (int nth = 1; nth <= 2; nth++) {
        atomic_store(&fails_in, nth);
        assert_int_equal(mox_device_timer_create(&timers[0], &error), MOXIE_ERR_IO);
        assert_non_null(strstr(error.text, "creating a timer"));
        assert_int_equal(alive, 0);
    }
    take_all(timers);
    for (int i = 0; i < MOX_DEVICE_TIMERS; i++)
        mox_device_timer_destroy(timers[i]);
    mox_device_timer_destroy(NULL);
    assert_int_equal(alive, 0);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_no_timer),
        cmocka_unit_test(failures_leave_nothing_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
