/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_blocks.c - the numbers of a tensor of a block type: the weights that every format has, encoded by the type's
 * plain rule (quant/block_encode.h), row by row.
 */
#include "ckpt/synth/synth_blocks.h"

#include "base/sizes.h"
#include "ckpt/synth/synth_groups.h"
#include "quant/block_encode.h"

enum { RUN = 4 * MOX_BLOCK_MAX, CHUNK_BYTES = 4 << 20, TASK_ROWS = 8 };

/* Rows [first, first + count) of one expert's matrix. */
typedef struct chunk {
    const mox_fill_view *m;
    uint8_t *data;
    int64_t first, count;
    uint64_t row_bytes;
} chunk;

static void fill_task(void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const chunk *p = context;
    const moxie_dtype dtype = p->m->spec->dtype;
    const int64_t end = mox_min_i64((task + 1) * TASK_ROWS, p->count);
    int32_t z[RUN];
    float w[RUN];
    for (int64_t r = task * TASK_ROWS; r < end; r++) {
        uint8_t *out = p->data + (uint64_t)r * p->row_bytes;
        for (int64_t c = 0; c < p->m->cols; c += RUN) {
            const int64_t n = mox_min_i64(RUN, p->m->cols - c);
            mox_fill_deviates(p->m, p->first + r, c, n, z);
            for (int64_t i = 0; i < n; i++)
                w[i] = mox_fill_unit * (float)z[i];
            mox_block_encode_row(dtype, w, NULL, n, false, out);
            out += mox_block_row_bytes(dtype, n);
        }
    }
}

static moxie_status fill_expert(mox_synth_filler *filler, const mox_fill_view *m, mox_fill_sink sink,
                                moxie_error *error)
{
    chunk p = { .m = m, .row_bytes = mox_block_row_bytes(m->spec->dtype, m->cols) };
    const int64_t at_once = mox_max_i64(1, CHUNK_BYTES / (int64_t)p.row_bytes);
    for (p.first = 0; p.first < m->rows; p.first += p.count) {
        p.count = mox_min_i64(at_once, m->rows - p.first);
        p.data = mox_fill_buffer(filler, (uint64_t)p.count * p.row_bytes);
        MOX_FAIL_IF(!p.data, MOXIE_ERR_MEMORY, error, "no memory for a chunk of %s", m->spec->name);
        mox_parallel(filler->executor, mox_ceil_div(p.count, TASK_ROWS), fill_task, &p);
        MOX_TRY(sink.put(sink.user, p.data, (uint64_t)p.count * p.row_bytes, error));
    }
    return MOXIE_OK;
}

moxie_status mox_fill_blocks(mox_synth_filler *filler, int64_t layer, const mox_tensor_spec *spec, mox_fill_sink sink,
                             moxie_error *error)
{
    mox_fill_view m = { .filler = filler, .spec = spec, .layer = layer, .rows = spec->rows, .cols = spec->cols };
    for (m.expert = 0; m.expert < mox_max_i64(spec->stacked, 1); m.expert++)
        MOX_TRY(fill_expert(filler, &m, sink, error));
    return MOXIE_OK;
}
