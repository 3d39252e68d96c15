/* SPDX-License-Identifier: Apache-2.0
 *
 * avx2_plan.h - what a plan knows of the AVX2 kernels: their functions, and how a call cuts its scratch. Plain C: a
 * plan may be made on a processor without AVX2, so the functions here are compiled without its flags (avx2_plan.c).
 *
 *     avx2_plan.c           which problems the kernels accept, bytes of scratch         no flags
 *     expert_gemm_*_avx2.c  the kernels                                                 flags of AVX2
 */
#ifndef MOX_CPU_AVX2_PLAN_H
#define MOX_CPU_AVX2_PLAN_H

#include "base/carver.h"
#include "cpu/expert_gemm/panel_kernel.h"

/* The kernels' functions. NULL: not in this build. */
extern const mox_panel_multiply_fn mox_avx2_fma_multiply, mox_avx2_bytes_multiply, mox_avx2_int8_multiply,
    mox_avx2_block_int8_multiply, mox_avx2_block_bytes_multiply;

/* ---- avx2_fma, avx2_bytes ------------------------------------------------------------------------ */

enum {
    MOX_YMM_NARROW = 2,
    MOX_YMM_HALF_ROWS = 5,     /* one half panel's chains for so many rows fit the registers */
    MOX_YMM_NARROW_HALVES = 8, /* rows */
    MOX_YMM_BLOCK = 6,
    MOX_YMM_SLAB = 4,
    MOX_YMM_HALF = MOX_PANEL_STEP * 8,  /* floats of half a panel's step */
    MOX_YMM_WIDTH = 2 * MOX_PANEL_ROWS, /* of c */
    MOX_YMM_PREFETCH_BYTES = 2048,      /* how far ahead of their use codes are prefetched */
    MOX_YMM_PREFETCH_L2_BYTES = 6144    /* likewise, to the second-level cache */
};

enum { MOX_YMM_INT_DOT_LINE = 32, MOX_COUNTS_LINE = 256, MOX_YMM_BYTES_LINE = 64 };

/* Bytes of a step in `order` (int_dot_avx2.h). */
static inline int64_t mox_ymm_int_dot_order_bytes(int64_t rows)
{
    return rows + 2;
}

/* The integer products by AVX-VNNI; NULL: not in this build. */
struct mox_ymm_job;
typedef void (*mox_ymm_int_dot_fn)(const struct mox_ymm_job *job);
extern const mox_ymm_int_dot_fn mox_ymm_int_dot_avxvnni;
/* True when the processor has AVX-VNNI, and the build, too. */
bool mox_ymm_has_vnni(void);
/* Up to how many rows integers are faster than floats. */
int64_t mox_ymm_int_dot_max_rows(bool bytes);

/* What a kernel does with activations. */
typedef enum mox_ymm_acts {
    MOX_YMM_ACTS_EXACT,   /* avx2_fma */
    MOX_YMM_ACTS_ROUNDED, /* to bytes: avx2_bytes, avx2_block_bytes */
    MOX_YMM_ACTS_CODES    /* they are int8 codes: avx2_block_int8 */
} mox_ymm_acts;

/* At the start of scratch. */
typedef struct mox_ymm_int_dot_head {
    int64_t floats; /* number of (row, step) that are multiplied as floats */
} mox_ymm_int_dot_head;

/* int_dot_avx2.h and panel_fma_avx2.h describe the arrays. */
typedef struct mox_ymm_scratch {
    mox_ymm_int_dot_head *head;
    int8_t *limbs; /* of block types and 8-bit integers: lines of block_bytes.h */
    uint8_t *order;
    float *slab, *part;  /* part: [MOX_PANEL_BLOCK][32] */
    float *scale, *zero; /* [2][groups][16] */
} mox_ymm_scratch;
/* element: of the weights, whose matrix has `cols` columns in `groups` groups; a call has `rows` rows at most. */
void mox_ymm_lay_out(mox_carver *carver, mox_ymm_acts acts, moxie_dtype element, int64_t cols, int64_t groups,
                     int64_t rows, mox_ymm_scratch *out);

/* ---- avx2_int8 ----------------------------------------------------------------------------------- */

typedef struct mox_int8_scratch {
    float *scale;         /* [2][groups][16] */
    int32_t *zero, *sums; /* likewise; [MOX_PANEL_BLOCK][segments] */
} mox_int8_scratch;
void mox_int8_lay_out(mox_carver *carver, int64_t groups, int64_t segments, mox_int8_scratch *out);

/* ---- AVX-VNNI ------------------------------------------------------------------------------------ */

/* sum += a . b, in each lane four unsigned bytes by four signed ones. In assembly so that the result stays in the
 * register of `sum`: gcc otherwise copies sums around, and then spills. Tests emulate it (tests/avx512_emulator). */
#ifndef MOX_YMM_DPBUSD
#define MOX_YMM_DPBUSD(sum, a, b) __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b))
#endif

#endif
