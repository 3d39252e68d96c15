/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_matrix.c - the tensors that store quantized matrices, from random weights and the scale rule of the format.
 *
 *     weights, groups   synth_groups.c            one pass over the numbers
 *     codes             each weight under the scale of its group, a second pass
 *     scales, zeros     of the groups; globals and input scales are calibrated ranges, see below
 *
 * A tensor is made expert by expert, in chunks of whole stored rows:
 *
 *     row major      stored row = one row of the matrix (or per_word of them)     GATE_UP [2I, H/32, 16], ...
 *     column major   stored row = one column (or per_word of them)                AWQ, GPTQ [K/8, N], fused [K, N]
 *
 * So chunks are neighbours in the file, and tasks, which make whole stored rows of a chunk, never write the same word.
 */
#include "ckpt/synth/synth_matrix.h"

#include "base/sizes.h"
#include "ckpt/synth/synth_groups.h"

enum {
    RUN = 1024,            /* elements that a task makes at once, on its stack; a multiple of every per_word */
    TASK_BYTES = 64 << 10, /* of the tensor */
    CHUNK_BYTES = 8 << 20  /* of the tensor, in memory at once */
};

/* ---- calibrated ranges -------------------------------------------------------------------------- *
 * The largest magnitude of a tensor is known in advance, because deviates are bounded. Each expert gets 1 to 1.5 times
 * that, so that swapped experts are noticed. Gate and up get the same range, as exporters ensure. */

/* Uniform in [1, 1.5), the same for gate and up of an expert. */
static double range_factor(const mox_fill_view *m, bool activations)
{
    const mox_tensor_kind kind = m->spec->kind;
    const bool shared = kind >= MOX_TENSOR_SHARED_GATE_UP && kind <= MOX_TENSOR_SHARED_DOWN;
    const bool second = kind == MOX_TENSOR_DOWN || kind == MOX_TENSOR_SHARED_DOWN;
    const mox_stream stream = mox_synth_stream(m->filler->model->seed, m->layer, m->expert, MOX_SOURCE_RANGE);
    return 1.0 + 0.5 * (double)mox_random_unit(&stream, (uint64_t)(4 * shared + 2 * second + activations));
}

/* The scale with which the largest code, times the largest block scale if there are blocks, reaches `amax`. */
static float range_scale(const moxie_quant *quant, double amax)
{
    const bool blocks = quant->global != MOXIE_GLOBAL_NONE && quant->scale != MOXIE_DTYPE_NONE;
    const double largest =
        (double)mox_format_of(quant->element)->max * (blocks ? (double)mox_format_of(quant->scale)->max : 1.0);
    return (float)(quant->global == MOXIE_GLOBAL_DIVIDE ? largest / amax : amax / largest);
}

static float weight_global(const mox_fill_view *m)
{
    if (m->rule.quant.global == MOXIE_GLOBAL_NONE)
        return 1;
    return range_scale(&m->rule.quant, MOX_DEVIATE_MAX * (double)mox_fill_unit * range_factor(m, false));
}

/* Hidden states of unit variance reach about 5. Gate and up then have variance s^2 = 0.02^2 K each, and the largest of
 * silu(g) u over an intermediate vector is about 8 s^2. */
static float input_scale(const mox_fill_view *m)
{
    const bool second = m->spec->kind == MOX_TENSOR_DOWN || m->spec->kind == MOX_TENSOR_SHARED_DOWN;
    const double width = (double)m->filler->model->dims.expert_width;
    const double amax = second ? 8 * MOX_SYNTH_SIGMA * MOX_SYNTH_SIGMA * width : 5;
    return range_scale(&m->spec->format->act, amax * range_factor(m, true));
}

/* ---- codes of a run [c, c + n) of row r ----------------------------------------------------------- */

typedef void (*run_fn)(const mox_fill_view *m, int64_t r, int64_t c, int64_t n, uint32_t *codes);

static void plain_run(const mox_fill_view *m, int64_t r, int64_t c, int64_t n, uint32_t *codes)
{
    int32_t z[RUN];
    mox_fill_deviates(m, r, c, n, z);
    for (int64_t i = 0; i < n; i++)
        codes[i] = m->rule.element->encode((float)z[i] * mox_fill_unit);
}

static void quantized_run(const mox_fill_view *m, int64_t r, int64_t c, int64_t n, uint32_t *codes)
{
    const mox_fill_groups *g = &m->filler->groups;
    const float *scale = g->scale + r / m->group_rows * g->cols, *zero = g->zero + r / m->group_rows * g->cols;
    int32_t z[RUN];
    mox_fill_deviates(m, r, c, n, z);
    for (int64_t i = 0; i < n;) {
        const int64_t group = (c + i) / m->group_cols;
        const int64_t end = mox_min_i64(n, (group + 1) * m->group_cols - c);
        for (; i < end; i++)
            codes[i] =
                mox_weight_code(&m->rule.quant, (float)z[i] * mox_fill_unit, scale[group], m->global, zero[group]);
    }
}

static const mox_format *part_format(const mox_fill_view *m)
{
    const mox_part *part = m->spec->part;
    return mox_format_of(part->value != MOXIE_DTYPE_NONE ? part->value : m->spec->dtype);
}

static void scale_run(const mox_fill_view *m, int64_t r, int64_t c, int64_t n, uint32_t *codes)
{
    const float *scale = m->filler->groups.scale + r * m->filler->groups.cols + c;
    for (int64_t i = 0; i < n; i++)
        codes[i] = part_format(m)->encode(scale[i]);
}

static void zero_run(const mox_fill_view *m, int64_t r, int64_t c, int64_t n, uint32_t *codes)
{
    const float *zero = m->filler->groups.zero + r * m->filler->groups.cols + c;
    for (int64_t i = 0; i < n; i++)
        codes[i] = part_format(m)->encode(zero[i] - m->spec->format->zero_add);
}

static void global_run(const mox_fill_view *m, int64_t r, int64_t c, int64_t n, uint32_t *codes)
{
    (void)r, (void)c;
    for (int64_t i = 0; i < n; i++)
        codes[i] = part_format(m)->encode(m->global);
}

static void input_run(const mox_fill_view *m, int64_t r, int64_t c, int64_t n, uint32_t *codes)
{
    (void)r, (void)c;
    for (int64_t i = 0; i < n; i++)
        codes[i] = part_format(m)->encode(input_scale(m));
}

static void group_index_run(const mox_fill_view *m, int64_t r, int64_t c, int64_t n, uint32_t *codes)
{
    (void)r;
    for (int64_t i = 0; i < n; i++)
        codes[i] = (uint32_t)((c + i) / m->group_cols);
}

static void shape_run(const mox_fill_view *m, int64_t r, int64_t c, int64_t n, uint32_t *codes)
{
    (void)r;
    for (int64_t i = 0; i < n; i++)
        codes[i] = (uint32_t)(c + i == 0 ? m->rows : m->cols);
}

static run_fn run_of_part(const mox_fill_view *m)
{
    switch (m->spec->part->role) {
    case MOX_PART_CODES: return mox_quant_is_plain(&m->rule.quant) ? plain_run : quantized_run;
    case MOX_PART_SCALE: return scale_run;
    case MOX_PART_ZERO: return zero_run;
    case MOX_PART_GLOBAL: return global_run;
    case MOX_PART_INPUT_SCALE: return input_run;
    case MOX_PART_GROUP_INDEX: return group_index_run;
    default: return shape_run;
    }
}

/* ---- storing ------------------------------------------------------------------------------------ */

/* A chunk: stored rows [first, first + count) of the grid of one expert, in filler->buffer. */
typedef struct chunk {
    const mox_fill_view *m;
    run_fn run;
    moxie_grid grid; /* data: the chunk; rows and columns count from its first */
    bool by_columns; /* stored rows are columns */
    int64_t unit;    /* rows (columns) of the matrix in a stored row */
    int64_t first, count;
    int64_t task_rows; /* stored rows of a task */
} chunk;

/* Stores words of neighbours in a row, low bits first, one after the other: the case of most tensors. */
static void store_words(const moxie_grid *grid, int64_t r, int64_t c, int64_t n, const uint32_t *codes)
{
    const int32_t per_word = grid->packing.per_word, bytes = grid->packing.word_bytes;
    const int32_t bits = mox_dtype_bits(grid->dtype);
    uint8_t *out = (uint8_t *)(uintptr_t)grid->data + r * grid->row_stride + c / per_word * grid->col_stride;
    for (int64_t i = 0; i < n; i += per_word) {
        uint64_t word = 0;
        for (int32_t j = 0; j < per_word && i + j < n; j++)
            word |= (uint64_t)codes[i + j] << (j * bits);
        for (int32_t b = 0; b < bytes; b++)
            out[b] = (uint8_t)(word >> (8 * b));
        out += bytes;
    }
}

static void store_run(const moxie_grid *grid, int64_t r, int64_t c, int64_t n, const uint32_t *codes)
{
    const moxie_packing p = grid->packing;
    if (!p.along_rows && p.order == MOXIE_ORDER_LINEAR && grid->col_stride == p.word_bytes) {
        store_words(grid, r, c, n, codes);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        mox_grid_store(grid, r, c + i, codes[i]);
}

static void fill_task(void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const chunk *p = context;
    const int64_t first = p->first + task * p->task_rows;
    const int64_t end = mox_min_i64(first + p->task_rows, p->first + p->count);
    int64_t row0 = 0, row_end = p->grid.rows, col0 = 0, col_end = p->grid.cols;
    int64_t *low = p->by_columns ? &col0 : &row0, *high = p->by_columns ? &col_end : &row_end;
    *low = first * p->unit;
    *high = mox_min_i64(end * p->unit, *high);
    const int64_t row_shift = p->by_columns ? 0 : p->first * p->unit,
                  col_shift = p->by_columns ? p->first * p->unit : 0;
    uint32_t codes[RUN];
    for (int64_t r = row0; r < row_end; r++) {
        for (int64_t c = col0; c < col_end; c += RUN) {
            const int64_t n = mox_min_i64(RUN, col_end - c);
            p->run(p->m, r, c, n, codes);
            store_run(&p->grid, r - row_shift, c - col_shift, n, codes);
        }
    }
}

static bool is_by_columns(const mox_tensor_spec *spec)
{
    const mox_part *part = spec->part;
    return (part->form == MOX_FORM_MATRIX || part->form == MOX_FORM_GROUPS) && (part->transposed || spec->in_out);
}

static moxie_status fill_expert(mox_synth_filler *filler, const mox_fill_view *m, uint64_t bytes, mox_fill_sink sink,
                                moxie_error *error)
{
    chunk p = { .m = m, .run = run_of_part(m) };
    MOX_TRY(mox_spec_grid(m->spec, NULL, 0, &p.grid, error));
    const bool along_rows = p.grid.packing.along_rows;
    const bool stream = p.grid.packing.order == MOX_ORDER_STREAM;
    p.by_columns = is_by_columns(m->spec);
    int64_t stride = p.by_columns ? p.grid.col_stride : p.grid.row_stride;
    p.unit = along_rows == p.by_columns ? 1 : stream ? 32 : p.grid.packing.per_word;
    /* 32 codes of a stream are as many words as a code has bits. */
    if (stream && along_rows != p.by_columns)
        stride *= p.grid.packing.per_word;
    const int64_t total = mox_ceil_div(p.by_columns ? p.grid.cols : p.grid.rows, p.unit);
    MOX_FAIL_IF((uint64_t)total * (uint64_t)stride != bytes, MOXIE_ERR_MISMATCH, error,
                "%s: %lld stored rows of %lld bytes are not the %llu bytes of an expert", m->spec->name,
                (long long)total, (long long)stride, (unsigned long long)bytes);
    const int64_t rows_at_once = mox_max_i64(1, CHUNK_BYTES / stride);
    p.task_rows = mox_max_i64(1, TASK_BYTES / stride);
    for (p.first = 0; p.first < total; p.first += p.count) {
        p.count = mox_min_i64(rows_at_once, total - p.first);
        uint8_t *data = mox_fill_buffer(filler, (uint64_t)(p.count * stride));
        MOX_FAIL_IF(!data, MOXIE_ERR_MEMORY, error, "no memory for a chunk of %s", m->spec->name);
        memset(data, 0, (size_t)(p.count * stride));
        p.grid.data = data;
        mox_parallel(filler->executor, mox_ceil_div(p.count, p.task_rows), fill_task, &p);
        MOX_TRY(sink.put(sink.user, data, (uint64_t)(p.count * stride), error));
    }
    return MOXIE_OK;
}

moxie_status mox_fill_matrix(mox_synth_filler *filler, int64_t layer, const mox_tensor_spec *spec, mox_fill_sink sink,
                             moxie_error *error)
{
    mox_fill_view m = { .filler = filler, .spec = spec, .layer = layer, .rows = spec->rows, .cols = spec->cols };
    MOX_TRY(mox_group_rule_of(spec->format, spec->cols, &m.rule, error));
    m.group_rows = mox_group_rows(&m.rule.quant, m.rows);
    m.group_cols = mox_group_cols(&m.rule.quant, m.cols);
    m.scale_cols = mox_scale_cols(&m.rule.quant, m.cols);
    uint64_t bytes = (uint64_t)mox_dtype_bits(spec->dtype);
    for (int32_t i = 0; i < spec->rank; i++)
        bytes *= (uint64_t)spec->shape[i];
    bytes /= 8;
    const int64_t experts = spec->stacked > 0 ? spec->stacked : 1;
    for (int64_t e = 0; e < experts; e++) {
        m.expert = spec->stacked > 0 ? e : mox_max_i64(spec->expert, 0);
        m.global = weight_global(&m);
        const mox_part_role role = spec->part->role;
        if ((role == MOX_PART_CODES || role == MOX_PART_SCALE || role == MOX_PART_ZERO) &&
            !mox_quant_is_plain(&m.rule.quant))
            MOX_TRY(mox_fill_make_groups(filler, &m, error));
        MOX_TRY(fill_expert(filler, &m, bytes / (uint64_t)experts, sink, error));
    }
    return MOXIE_OK;
}
