/* SPDX-License-Identifier: Apache-2.0
 *
 * test_slow_disk.c - a disk of a known rate (test_slow_disk.h).
 */
#include "test_slow_disk.h"

#include <time.h>

#include "base/clock.h"

test_slow_disk test_slow_disk_of(uint64_t bytes, double ms)
{
    return (test_slow_disk) { .lock = PTHREAD_MUTEX_INITIALIZER, .ns_per_byte = 1e6 * ms / (double)bytes };
}

/* A mox_read_fault. */
static int64_t hold_back(void *user, int32_t file, int32_t copy, uint64_t offset, int64_t result)
{
    test_slow_disk *disk = user;
    (void)file, (void)copy, (void)offset;
    if (result <= 0)
        return result;
    pthread_mutex_lock(&disk->lock);
    const uint64_t now = mox_clock_now();
    disk->free_at = (disk->free_at > now ? disk->free_at : now) + (uint64_t)(disk->ns_per_byte * (double)result);
    const uint64_t until = disk->free_at;
    pthread_mutex_unlock(&disk->lock);
    const struct timespec left = { .tv_sec = (time_t)((until - now) / 1000000000),
                                   .tv_nsec = (long)((until - now) % 1000000000) };
    nanosleep(&left, NULL);
    return result;
}

mox_reader_options test_slow_reader(test_slow_disk *disk)
{
    return (mox_reader_options) { .engine = "pread", .depth = 4, .threads = 4, .fault = hold_back, .fault_user = disk };
}
