/* SPDX-License-Identifier: Apache-2.0
 *
 * limits_tmpl.h - the probes of every vector width: reading, and f32 multiply-adds. A template: each ISA file includes
 * it once, after it has defined
 *
 *     LIMITS_VECTOR         bytes of a vector: 16, 32 or 64
 *     LIMITS_FMA(a, b, c)   a * b + c on vectors of floats
 *     LIMITS_CHAINS         accumulators of the f32 probe: at least latency times units, and few enough that
 *                           they and two factors stay in registers
 *
 * Reading: the part is cut into `streams` runs, and blocks of 512 bytes are read from each in turn. This uses several
 * DRAM pages and hardware prefetchers at once:
 *
 *     streams = 4:   | run 0: 1 5 9 ... | run 1: 2 6 10 ... | run 2: 3 7 11 ... | run 3: 4 8 12 ... |
 */
#include <string.h>

#define LIMITS_BLOCK 512

typedef uint64_t limits_words __attribute__((vector_size(LIMITS_VECTOR), may_alias));
typedef float limits_floats __attribute__((vector_size(LIMITS_VECTOR)));

static inline void read_block(const char *block, limits_words sum[4])
{
    const limits_words *v = (const limits_words *)(const void *)block;
    for (int i = 0; i < LIMITS_BLOCK / LIMITS_VECTOR; i += 4) {
        sum[0] |= v[i];
        sum[1] |= v[i + 1];
        sum[2] |= v[i + 2];
        sum[3] |= v[i + 3];
    }
}

/* `prefetch` and `streams` are constants after inlining, so the loop has no branch. */
static inline __attribute__((always_inline)) void read_passes(mox_limit_part *part, int streams, int prefetch)
{
    const uint64_t run = part->bytes / (uint64_t)streams;
    limits_words sum[4] = { { 0 }, { 0 }, { 0 }, { 0 } };
    for (uint64_t round = 0; round < part->rounds; round++)
        for (uint64_t at = 0; at < run; at += LIMITS_BLOCK)
            for (int s = 0; s < streams; s++) {
                const char *block = part->data + (uint64_t)s * run + at;
                for (int line = 0; prefetch && line < LIMITS_BLOCK; line += 64)
                    __builtin_prefetch(block + prefetch + line, 0, 3); /* may point past the end: harmless */
                read_block(block, sum);
            }
    sum[0] |= sum[1] | sum[2] | sum[3];
    part->sink = sum[0][0] | sum[0][1];
}

static void probe_read(const mox_limit_probe *probe, mox_limit_part *part)
{
    enum { AHEAD = 2048 };
    const bool ahead = probe->prefetch == AHEAD;
    switch (probe->streams) {
    case 4: ahead ? read_passes(part, 4, AHEAD) : read_passes(part, 4, 0); break;
    case 8: ahead ? read_passes(part, 8, AHEAD) : read_passes(part, 8, 0); break;
    default: ahead ? read_passes(part, 1, AHEAD) : read_passes(part, 1, 0); break;
    }
}

/* One round: 64 multiply-adds of each chain. x = 0.5 x + 0.5 stays a normal number. */
static void probe_f32(const mox_limit_probe *probe, mox_limit_part *part)
{
    static const volatile float half = 0.5f; /* unknown to the compiler */
    const limits_floats factor = (limits_floats) { 0 } + half;
    limits_floats x[LIMITS_CHAINS];
    (void)probe;
    for (int c = 0; c < LIMITS_CHAINS; c++)
        x[c] = factor;
    for (uint64_t round = 0; round < part->rounds; round++)
        for (int i = 0; i < 64; i++)
#pragma GCC unroll 16 /* else the accumulators are an array in memory, at -O2 */
            for (int c = 0; c < LIMITS_CHAINS; c++)
                x[c] = LIMITS_FMA(x[c], factor, factor);
    for (int c = 1; c < LIMITS_CHAINS; c++)
        x[0] += x[c];
    uint64_t bits = 0;
    memcpy(&bits, &x[0], sizeof bits);
    part->sink = bits;
}

#define LIMITS_READ_PROBE(isa_, streams_, prefetch_, name_)                                                            \
    {                                                                                                                  \
        .limit = MOX_LIMIT_READ, .name = name_, .isa = isa_, .run = probe_read, .streams = streams_,                   \
        .prefetch = prefetch_                                                                                          \
    }
/* The list entries of the functions above. */
#define LIMITS_COMMON_PROBES(isa_)                                                                                     \
    LIMITS_READ_PROBE(isa_, 1, 0, "1 stream"), LIMITS_READ_PROBE(isa_, 4, 0, "4 streams"),                             \
        LIMITS_READ_PROBE(isa_, 8, 0, "8 streams"), LIMITS_READ_PROBE(isa_, 1, 2048, "1 stream, prefetch 2 KB ahead"), \
        LIMITS_READ_PROBE(isa_, 4, 2048, "4 streams, prefetch 2 KB ahead"),                                            \
        LIMITS_READ_PROBE(isa_, 8, 2048, "8 streams, prefetch 2 KB ahead"),                                            \
        { .limit = MOX_LIMIT_L2_READ, .name = "1 stream", .isa = isa_, .run = probe_read, .streams = 1 },              \
    {                                                                                                                  \
        .limit = MOX_LIMIT_F32, .name = "f32 multiply-add", .isa = isa_, .run = probe_f32,                             \
        .ops = 2.0 * 64 * LIMITS_CHAINS * LIMITS_VECTOR / 4                                                            \
    }
