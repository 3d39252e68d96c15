/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_groups.c - the weights of a matrix before quantization, and the scales and zero points of its groups.
 *
 *     z[n,k]   deviate of (layer, expert, projection), element n * K + k          w = mox_fill_unit * z
 *     group    group_rows x group_cols of them: smallest, largest z -> scale and zero point by the format's rule
 *
 * Threads work on bands: all rows of a group, or 128 rows of a taller one, over all columns.
 *
 *     group rows     band 0 |low high|low high|low high|      one pair for each column of the scale grid
 *     0 .. 383       band 1 |low high|low high|low high|
 *     group 0        band 2 |low high|low high|low high|  ->  reduced: scale[0, 0..3), zero[0, 0..3)
 */
#include "ckpt/synth/synth_groups.h"

#include "base/sizes.h"

enum {
    SCAN_RUN = 1024,         /* elements on the stack */
    BAND_ROWS = 128,         /* largest number of rows in a band */
    SCAN_ELEMENTS = 64 << 10 /* smallest number of elements in a task */
};

const float mox_fill_unit = (float)(MOX_SYNTH_SIGMA * MOX_DEVIATE_UNIT);

typedef struct origin {
    mox_stream stream;
    uint64_t first; /* element of the row's first column */
} origin;

static int source_of_kind(mox_tensor_kind kind)
{
    switch (kind) {
    case MOX_TENSOR_UP: return MOX_SOURCE_UP;
    case MOX_TENSOR_DOWN: return MOX_SOURCE_DOWN;
    case MOX_TENSOR_SHARED_GATE: return MOX_SOURCE_SHARED_GATE;
    case MOX_TENSOR_SHARED_UP: return MOX_SOURCE_SHARED_UP;
    case MOX_TENSOR_SHARED_DOWN: return MOX_SOURCE_SHARED_DOWN;
    default: return MOX_SOURCE_GATE;
    }
}

/* The stream of row r of the stored matrix: stacked gate and up have the numbers of the separate projections. */
static origin origin_of_row(const mox_fill_view *m, int64_t r)
{
    const bool shared = m->spec->kind == MOX_TENSOR_SHARED_GATE_UP;
    int source = source_of_kind(m->spec->kind);
    if (m->spec->kind == MOX_TENSOR_GATE_UP || shared) {
        const int64_t half = m->rows / 2;
        const bool up = m->spec->interleaved ? r % 2 == 1 : r >= half;
        source = shared ? (up ? MOX_SOURCE_SHARED_UP : MOX_SOURCE_SHARED_GATE) : up ? MOX_SOURCE_UP : MOX_SOURCE_GATE;
        r = m->spec->interleaved ? r / 2 : r - (up ? half : 0);
    }
    return (origin) { mox_synth_stream(m->filler->model->seed, m->layer, m->expert, source),
                      (uint64_t)r * (uint64_t)m->cols };
}

void mox_fill_deviates(const mox_fill_view *m, int64_t r, int64_t c, int64_t n, int32_t *z)
{
    const origin from = origin_of_row(m, r);
    mox_deviates(&from.stream, from.first + (uint64_t)c, n, z);
}

/* Bands of a matrix. A group of up to BAND_ROWS rows is one band; a taller one is several, which are reduced
 * afterwards. */
typedef struct bands {
    const mox_fill_view *m;
    mox_fill_groups *groups;
    int64_t per_group; /* bands of a group */
    int64_t count;     /* of all */
    int64_t per_task;
} bands;

static int64_t band_rows(const mox_fill_view *m)
{
    return mox_min_i64(m->group_rows, BAND_ROWS);
}

static void scan_row(const mox_fill_view *m, int64_t r, int32_t *low, int32_t *high)
{
    int32_t z[SCAN_RUN];
    for (int64_t c = 0; c < m->cols; c += SCAN_RUN) {
        const int64_t n = mox_min_i64(SCAN_RUN, m->cols - c);
        mox_fill_deviates(m, r, c, n, z);
        for (int64_t i = 0; i < n;) {
            const int64_t g = (c + i) / m->group_cols;
            const int64_t end = mox_min_i64(n, (g + 1) * m->group_cols - c);
            int32_t lo = low[g], hi = high[g];
            for (; i < end; i++) {
                lo = z[i] < lo ? z[i] : lo;
                hi = z[i] > hi ? z[i] : hi;
            }
            low[g] = lo;
            high[g] = hi;
        }
    }
}

static void scan_band(const bands *b, int64_t band)
{
    const mox_fill_view *m = b->m;
    int32_t *low = b->groups->low + band * m->scale_cols, *high = b->groups->high + band * m->scale_cols;
    for (int64_t g = 0; g < m->scale_cols; g++) {
        low[g] = INT32_MAX;
        high[g] = INT32_MIN;
    }
    const int64_t group = band / b->per_group;
    const int64_t first = group * m->group_rows + band % b->per_group * band_rows(m);
    const int64_t end = mox_min_i64(mox_min_i64(first + band_rows(m), (group + 1) * m->group_rows), m->rows);
    for (int64_t r = first; r < end; r++)
        scan_row(m, r, low, high);
}

static void scan_task(void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const bands *b = context;
    const int64_t end = mox_min_i64((task + 1) * b->per_task, b->count);
    for (int64_t band = task * b->per_task; band < end; band++)
        scan_band(b, band);
}

static void scan_bands(const moxie_executor *executor, const mox_fill_view *m, mox_fill_groups *groups,
                       int64_t per_group)
{
    bands b = { .m = m, .groups = groups, .per_group = per_group };
    b.count = mox_scale_rows(&m->rule.quant, m->rows) * per_group;
    b.per_task = mox_max_i64(1, SCAN_ELEMENTS / (band_rows(m) * m->cols));
    mox_parallel(executor, mox_ceil_div(b.count, b.per_task), scan_task, &b);
}

static void set_group(const mox_fill_view *m, mox_fill_groups *g, int64_t r, int64_t c, int64_t per_group)
{
    int32_t low = 0, high = 0;
    for (int64_t b = r * per_group; b < (r + 1) * per_group; b++) {
        low = g->low[b * m->scale_cols + c] < low ? g->low[b * m->scale_cols + c] : low;
        high = g->high[b * m->scale_cols + c] > high ? g->high[b * m->scale_cols + c] : high;
    }
    const int64_t at = r * m->scale_cols + c;
    mox_group_scale(&m->rule, (float)low * mox_fill_unit, (float)high * mox_fill_unit, m->global, &g->scale[at],
                    &g->zero[at]);
}

static moxie_status groups_room(mox_fill_groups *g, uint64_t count, uint64_t band_count, moxie_error *error)
{
    if (count <= g->room && band_count <= g->band_room)
        return MOXIE_OK;
    mox_fill_groups_free(g);
    g->scale = mox_calloc(count, sizeof *g->scale);
    g->zero = mox_calloc(count, sizeof *g->zero);
    g->low = mox_calloc(band_count, sizeof *g->low);
    g->high = mox_calloc(band_count, sizeof *g->high);
    MOX_FAIL_IF(!g->scale || !g->zero || !g->low || !g->high, MOXIE_ERR_MEMORY, error,
                "no memory for %llu quantization groups", (unsigned long long)count);
    g->room = count;
    g->band_room = band_count;
    return MOXIE_OK;
}

moxie_status mox_fill_make_groups(mox_synth_filler *filler, const mox_fill_view *m, moxie_error *error)
{
    mox_fill_groups *g = &filler->groups;
    if (g->format == m->spec->format && g->kind == m->spec->kind && g->layer == m->layer && g->expert == m->expert)
        return MOXIE_OK;
    g->format = NULL;
    const int64_t rows = mox_scale_rows(&m->rule.quant, m->rows);
    const int64_t per_group = mox_ceil_div(m->group_rows, band_rows(m));
    MOX_TRY(groups_room(g, (uint64_t)(rows * m->scale_cols), (uint64_t)(rows * per_group * m->scale_cols), error));
    scan_bands(filler->executor, m, g, per_group);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < m->scale_cols; c++)
            set_group(m, g, r, c, per_group);
    g->format = m->spec->format;
    g->kind = m->spec->kind;
    g->layer = m->layer;
    g->expert = m->expert;
    g->rows = rows;
    g->cols = m->scale_cols;
    return MOXIE_OK;
}
