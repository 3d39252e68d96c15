/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_format.h - the bytes of a trace file, as docs/trace-file.md has them; little-endian, all sizes multiples of 8.
 *
 *     | header 128 | layer numbers u32 [L] | STEP | STEP | ... | END |
 *     STEP: | frame 32 | ids u16 [T,L,K] | weights f32 [T,L,K] | requests u64 [T] |      END: | frame 32 |
 *
 * Each part is padded with zeros to 8 bytes. A frame numbers its step, and END counts them, so that a lost, doubled or
 * swapped step is found, and a file whose writer died is.
 */
#ifndef MOX_STORE_TRACE_FORMAT_H
#define MOX_STORE_TRACE_FORMAT_H

#include <stdbool.h>

#include <moxie/moxie_trace.h>

#include "base/status.h"

enum {
    MOX_TRACE_VERSION = 1,
    MOX_TRACE_BYTE_ORDER = 0x01020304,
    MOX_TRACE_HAS_WEIGHTS = 1,
    MOX_TRACE_HAS_REQUESTS = 2,
    MOX_TRACE_NO_EXPERT = 0xffff,
    MOX_TRACE_NAME_BYTES = 72
};

typedef struct mox_trace_header {
    char magic[8]; /* "MOXTRACE" */
    uint32_t version, byte_order;
    uint32_t header_bytes; /* of the header and the layer numbers */
    uint32_t flags;
    uint32_t layers, experts, top_k, zero_experts;
    uint64_t fingerprint;
    char model[MOX_TRACE_NAME_BYTES];
    uint64_t checksum; /* of header_bytes bytes, with 0 here */
} mox_trace_header;
_Static_assert(sizeof(mox_trace_header) == 128, "the header of a trace has 128 bytes");

typedef struct mox_trace_frame {
    char magic[4]; /* "STEP" or "END " */
    uint32_t tokens, phase, reserved;
    uint64_t number;   /* of the step; of END: how many steps there are */
    uint64_t checksum; /* of frame and payload, with 0 here */
} mox_trace_frame;
_Static_assert(sizeof(mox_trace_frame) == 32, "the frame of a step has 32 bytes");

#define MOX_TRACE_MAGIC "MOXTRACE"
#define MOX_TRACE_STEP  "STEP"
#define MOX_TRACE_END   "END "

/* Where the parts of a step lie behind its frame, and what they are of. */
typedef struct mox_trace_parts {
    uint64_t choices; /* tokens * layers * top_k */
    uint64_t weights, requests, bytes;
} mox_trace_parts;

/* Of a checked info and at most MOXIE_TRACE_MAX_TOKENS tokens: less than 2^45 bytes. */
static inline mox_trace_parts mox_trace_parts_of(const moxie_trace_info *info, uint64_t tokens)
{
    mox_trace_parts p = { .choices = tokens * (uint64_t)info->layers * (uint64_t)info->top_k };
    p.weights = (2 * p.choices + 7) & ~(uint64_t)7;
    p.requests = p.weights + (info->has_weights ? (4 * p.choices + 7) & ~(uint64_t)7 : 0);
    p.bytes = p.requests + (info->has_requests ? 8 * tokens : 0);
    return p;
}

static inline uint64_t mox_trace_header_bytes(int64_t layers)
{
    return sizeof(mox_trace_header) + (((uint64_t)layers * 4 + 7) & ~(uint64_t)7);
}

/* Memory that grows; what it held goes. All zero is valid. mox_free(at). */
typedef struct mox_trace_buffer {
    unsigned char *at; /* aligned to 16 */
    uint64_t room;
} mox_trace_buffer;
moxie_status mox_trace_reserve(mox_trace_buffer *buffer, uint64_t bytes, moxie_error *error);

/* Whether numbers of an info are within limits and layer numbers (NULL: 0, 1, ...) ascend (trace_info.c). */
moxie_status mox_trace_check_info(const moxie_trace_info *info, moxie_status code, moxie_error *error);
/* The XXH3-64 of a block whose checksum at `at` counts as 0; the block is as before afterwards. */
uint64_t mox_trace_checksum(void *block, uint64_t bytes, uint64_t at);

#endif
