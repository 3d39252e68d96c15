/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_table.c - the launch table without a GPU (test_cuda_table.h) as a library. libmoxie opens it in place of
 * libmoxie_cuda. So scripts can run every command of the tool without a GPU:
 *
 *     MOXIE_CUDA_LIBRARY=libmoxie_cuda_plain.so moxie bench --backend cuda ...       all kernels in plain C, as sm_80
 *     MOXIE_CUDA_LIBRARY=libmoxie_cuda_emulated.so ...                               those of sm_90 by the GPU emulator
 *
 * MOXIE_PLAIN_DEVICES: how many devices there are; else one. A device has an L2 cache of 1 MiB, so that a few copies of
 * a layer are larger than the cache.
 */
#include <stdlib.h>

#include "test_cuda_table.h"

const mox_cuda_table *mox_cuda_table_get(void);

__attribute__((visibility("default"))) const mox_cuda_table *mox_cuda_table_get(void)
{
    const mox_cuda_table *table = NULL;
    const char *devices = getenv("MOXIE_PLAIN_DEVICES");
    (void)test_cuda_begin(NULL);
#ifdef MOX_TEST_EMULATED
    test_cuda_set_device("sm_90");
#endif
    test_cuda_set_l2(1 << 20);
    test_cuda_set_devices(devices != NULL ? atoi(devices) : 1);
    return mox_cuda_open(&table, NULL) == MOXIE_OK ? table : NULL;
}
