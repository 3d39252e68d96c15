/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.c - the beginning and the end of a run on the workers' clocks (clock.h).
 */
#include "base/clock.h"

const char *mox_phase_name(mox_phase phase)
{
    static const char *const names[] = {
#define MOX_PHASE(id, name) name,
#include "base/phases.def"
#undef MOX_PHASE
    };
    return names[phase];
}

void mox_clock_start(mox_clock *clocks, int32_t workers, mox_phase phase)
{
    const uint64_t now = mox_clock_now();
    for (int32_t w = 0; w < workers; w++) {
        clocks[w].since = now;
        clocks[w].phase = w == 0 ? phase : MOX_PHASE_IDLE;
    }
}

void mox_clock_stop(mox_clock *clocks, int32_t workers)
{
    const uint64_t now = mox_clock_now();
    for (int32_t w = 0; w < workers; w++) {
        clocks[w].ns[clocks[w].phase] += now - clocks[w].since;
        clocks[w].since = now;
    }
}

void mox_clock_move(mox_clock *clock, mox_phase from, mox_phase to, uint64_t ns)
{
    const uint64_t moved = ns < clock->ns[from] ? ns : clock->ns[from];
    clock->ns[from] -= moved;
    clock->ns[to] += moved;
}
