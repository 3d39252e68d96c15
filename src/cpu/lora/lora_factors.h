/* SPDX-License-Identifier: Apache-2.0
 *
 * lora_factors.h - single numbers of packed factors (lora_args.h), for code that does not care about speed: the oracle
 * and the check. The factors are in host memory.
 */
#ifndef MOX_CPU_LORA_FACTORS_H
#define MOX_CPU_LORA_FACTORS_H

#include "cpu/lora/lora_args.h"
#include "format/format.h"

/* A[i,k] and B[n,i] of a slot's expert, for code that reads one at a time. `cols`: columns of A. */
static inline double mox_lora_a(const mox_lora_matrix *m, int64_t slot, int64_t cols, int64_t i, int64_t k)
{
    const char *a = (const char *)m->a + slot * m->a_expert_bytes;
    return mox_load(m->a_dtype, a + (i * mox_lora_padded(cols) + k) * mox_dtype_bytes(m->a_dtype));
}

static inline double mox_lora_b(const mox_lora_matrix *m, int64_t slot, int64_t n, int64_t i)
{
    const char *b = (const char *)m->b + slot * m->b_expert_bytes;
    const int64_t at = (n / MOX_LORA_LANES * m->rank + i) * MOX_LORA_LANES + n % MOX_LORA_LANES;
    return mox_load(m->b_dtype, b + at * mox_dtype_bytes(m->b_dtype));
}

#endif
