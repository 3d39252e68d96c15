/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h - where the time of a run goes: a stopwatch for each worker, which is in one phase at a time (phases.def).
 *
 *     start          enter(W13)           enter(W2)        stop
 *       |-- ROUTE ------|------- W13 ---------|----- W2 -----|        ns[W13] += the time between the two
 *
 * So the phases of a worker add up to the time of the run. To enter the phase that a worker is in costs nothing.
 * Another one costs a reading of the system's clock: about 30 ns, a few times a run. Worker 0's is also the calling
 * thread's. It times the stages outside the workers' regions. A worker writes its own clock only.
 */
#ifndef MOX_BASE_CLOCK_H
#define MOX_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

typedef enum mox_phase {
#define MOX_PHASE(id, name) MOX_PHASE_##id,
#include "base/phases.def"
#undef MOX_PHASE
    MOX_PHASES
} mox_phase;

/* Two cache lines, so that workers do not write to one line. */
typedef struct mox_clock {
    _Alignas(128) uint64_t ns[MOX_PHASES];
    uint64_t since; /* when the phase was entered */
    mox_phase phase;
} mox_clock;

const char *mox_phase_name(mox_phase phase);

static inline uint64_t mox_clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* Ends the present phase and begins another; returns the one that ended. `clock` may be NULL. */
static inline mox_phase mox_clock_enter(mox_clock *clock, mox_phase phase)
{
    if (clock == NULL)
        return phase;
    const mox_phase before = clock->phase;
    if (phase == before)
        return before;
    const uint64_t now = mox_clock_now();
    clock->ns[before] += now - clock->since;
    clock->since = now;
    clock->phase = phase;
    return before;
}

/* Begins and ends a run of `workers` workers. Worker 0 begins in `phase`, the others are idle. A run that failed need
 * not be ended. */
void mox_clock_start(mox_clock *clocks, int32_t workers, mox_phase phase);
void mox_clock_stop(mox_clock *clocks, int32_t workers);

/* Counts `ns` of what was counted to `from` to `to` instead. */
void mox_clock_move(mox_clock *clock, mox_phase from, mox_phase to, uint64_t ns);

#endif
