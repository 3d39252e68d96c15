/* SPDX-License-Identifier: Apache-2.0
 *
 * limits.h - the limits of this machine, measured by short probes on all workers of an executor at once: bytes per
 * second from memory and from L2, multiply-adds per second in f32, bf16 and int8.
 *
 *     rate = work of all workers / (last end - first start),   median of a few loops
 *     limit = best rate among the probes of the highest instruction set that has one for it
 *
 * At most as many workers as processors take part. A loop is disturbed when one of them shared its processor with other
 * work; disturbed loops are repeated. If all are disturbed, the fastest one counts, and the result says so.
 *
 * A layer's time has a lower bound: max(bytes / read_gb_s, operations / bf16_tflop_s). Probes are no kernel family: no
 * plan chooses one. Each ISA file lists its own probes; a new probe is one function and one row there.
 */
#ifndef MOX_CPU_LIMITS_H
#define MOX_CPU_LIMITS_H

#include "base/cpu_features.h"

typedef enum mox_limit {
    MOX_LIMIT_READ,    /* GB/s: buffers of `bytes`, from memory */
    MOX_LIMIT_COPY,    /* GB/s copied: each byte is read once and written once, and counts once */
    MOX_LIMIT_L2_READ, /* GB/s: buffers that stay in each core's L2 */
    MOX_LIMIT_F32,     /* TFLOP/s: fused multiply-add, registers only; it counts two */
    MOX_LIMIT_BF16,    /* TFLOP/s: bf16 products added in f32 */
    MOX_LIMIT_INT8,    /* TOP/s: int8 products added in int32 */
    MOX_LIMITS
} mox_limit;

/* One worker's share of a probe. Parts of different workers lie on different cache lines. */
typedef struct mox_limit_part {
    _Alignas(64) const char *data; /* `bytes`, 4096-aligned; memory and L2 probes */
    char *to;                      /* `bytes`: copy probes */
    uint64_t bytes;                /* a multiple of 8 * 4096 */
    uint64_t rounds;               /* passes over the data, or units of arithmetic */
    volatile uint64_t sink;        /* receives the result, so that the compiler cannot drop the work */
    /* Measured: when the part began and ended, and the thread's processor time. */
    double begin, end, cpu;
    _Atomic bool claimed; /* by a worker: each part runs once per loop */
} mox_limit_part;

typedef struct mox_limit_probe {
    mox_limit limit;
    const char *name; /* for people: "4 streams, prefetch 2 KB ahead" */
    mox_isa isa;
    bool (*present)(void); /* tests a feature that the class does not include; NULL: none is needed */
    void (*run)(const struct mox_limit_probe *probe, mox_limit_part *part);
    int32_t streams;  /* READ, L2_READ: runs of the part that are read in turn: 1, 2, 4 or 8 */
    int32_t prefetch; /* READ: bytes ahead, 0: none */
    double ops;       /* arithmetic: operations in one round */
} mox_limit_probe;

/* The probes of one ISA file; none when it was compiled without that ISA. */
typedef struct mox_limit_list {
    const mox_limit_probe *probes;
    int32_t count;
} mox_limit_list;
extern const mox_limit_list mox_limit_probes_scalar, mox_limit_probes_avx2, mox_limit_probes_avx512,
    mox_limit_probes_amx;

/* Body of moxie_measure_limits. `cap` lowers the class further than MOXIE_MAX_ISA does. */
moxie_status mox_limits_measure(const moxie_executor *executor, mox_isa cap, moxie_limits *out, moxie_error *error);

#endif
