/* SPDX-License-Identifier: Apache-2.0
 *
 * block_bytes.h - the activations of kernels *_block_int8 and *_block_bytes: bytes, and what their products with block
 * types need besides. panel_kernel.h has the arithmetic (sums INT32_RUNS and BYTE_RUNS). avx2_bytes takes them for
 * 8-bit integers, in one run a step.
 *
 *     bytes     [step][row] lines of 64:  | d [32] | unit | first [2] | kind | ..
 *                   first    of each run of the step: D as a float where there is a minimum, else offset D, an integer
 *                   kind     1: multiply this step as floats (NaN, infinity, far from 1)
 */
#ifndef MOX_CPU_BLOCK_BYTES_H
#define MOX_CPU_BLOCK_BYTES_H

#include "cpu/expert_gemm/panel_kernel.h"
#include "format/block_parts.h"

/* The activations of one row and step. */
typedef struct mox_bytes_line {
    int8_t d[MOX_PANEL_STEP];
    float unit;
    union {
        float minimum[2];  /* D of each run */
        int32_t offset[2]; /* offset D */
    } run;
    int32_t floats;
    int32_t unused[4];
} mox_bytes_line;
_Static_assert(sizeof(mox_bytes_line) == 64, "a line is a cache line");

/* Runs with scales of their own in a step. */
MOX_KERNEL_INLINE int mox_bytes_runs(const mox_block_fields *f)
{
    return f->run >= MOX_PANEL_STEP ? 1 : MOX_PANEL_STEP / f->run;
}

/* Stores the lines of `a`, activations of order F32 in `steps` steps, and returns how many must be multiplied as
 * floats. `codes`: the activations are int8 codes already. In expert_gemm_block_bytes_avx2.c: needs AVX2. */
int64_t mox_block_bytes_prepare(const mox_panel_rows *a, int64_t steps, const mox_block_fields *f, bool codes,
                                mox_bytes_line *line);

#endif
