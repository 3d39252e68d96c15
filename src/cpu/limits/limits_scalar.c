/* SPDX-License-Identifier: Apache-2.0
 *
 * limits_scalar.c - probes in portable C, in vectors of 16 bytes, which every 64-bit processor has. On aarch64 they use
 * the fused multiply-add; elsewhere a product and a sum, which count as two operations, too.
 */
#include "cpu/limits/limits.h"

#include <string.h>

#define LIMITS_VECTOR 16
#define LIMITS_CHAINS 12
#if defined(__aarch64__)
#include <arm_neon.h>
#define LIMITS_FMA(a, b, c) ((limits_floats)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#else
#define LIMITS_FMA(a, b, c) ((a) * (b) + (c))
#endif
#include "cpu/limits/limits_tmpl.h"

static void probe_memcpy(const mox_limit_probe *probe, mox_limit_part *part)
{
    (void)probe;
    for (uint64_t round = 0; round < part->rounds; round++)
        memcpy(part->to, part->data, part->bytes);
    part->sink = (uint64_t)(unsigned char)part->to[0];
}

static const mox_limit_probe probes[] = {
    LIMITS_COMMON_PROBES(MOX_ISA_SCALAR),
    { .limit = MOX_LIMIT_COPY, .name = "memcpy", .isa = MOX_ISA_SCALAR, .run = probe_memcpy },
};

const mox_limit_list mox_limit_probes_scalar = { probes, sizeof probes / sizeof probes[0] };
