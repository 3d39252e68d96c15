/* SPDX-License-Identifier: Apache-2.0
 *
 * sums.h - the order in which a product's terms are summed, and how far its rounding may go: sums.def as a table.
 * Kernels name their order (expert_gemm.def); the check takes its bound from it (layer/check), `moxie explain` its
 * words.
 */
#ifndef MOX_CPU_SUMS_H
#define MOX_CPU_SUMS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum mox_sum {
#define MOX_SUM(id, ...) MOX_SUM_##id,
#include "cpu/expert_gemm/sums.def"
#undef MOX_SUM
    MOX_SUMS
} mox_sum;

typedef struct mox_sum_traits {
    const char *words;
    bool flushes, bytes, chunks;
    int32_t mma_bits;
} mox_sum_traits;

/* Immutable. */
const mox_sum_traits *mox_sum_traits_of(mox_sum sum);

#endif
