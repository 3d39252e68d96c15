/* SPDX-License-Identifier: Apache-2.0
 *
 * test_slow_disk.h - a disk of a known rate: what the reader has read is held back until such a disk would have it.
 *
 *     a read ends at max(now, end of the read before) + bytes * ns_per_byte
 *
 * So how near a store comes to the rate of its disk does not depend on the disk that the test runs on.
 */
#ifndef TEST_SLOW_DISK_H
#define TEST_SLOW_DISK_H

#include <pthread.h>

#include "store/record_reader.h"

typedef struct test_slow_disk {
    pthread_mutex_t lock;
    double ns_per_byte;
    uint64_t free_at; /* mox_clock_now() when it has read all it was asked for */
} test_slow_disk;

/* A disk that reads `bytes` in so many ms. */
test_slow_disk test_slow_disk_of(uint64_t bytes, double ms);
/* A reader of files on it. Both live as long as the reader. */
mox_reader_options test_slow_reader(test_slow_disk *disk);

#endif
