/* SPDX-License-Identifier: Apache-2.0
 *
 * rowmajor_gemm.c - what the kernels that read layout rowmajor share: the cutting of a product into tasks and
 * segments, decoding of any format, and the end of a sum (rowmajor_gemm.h).
 */
#include "cpu/expert_gemm/rowmajor_gemm.h"

#include "base/sizes.h"

static int64_t round_lanes(int64_t n)
{
    return mox_ceil_div(n, MOX_GEMM_LANES) * MOX_GEMM_LANES;
}

/* ---- extents ---------------------------------------------------------------------------------------- */

mox_gemm_extent mox_gemm_extent_of(const moxie_quant *weight, int64_t cols, int64_t act_group_cols, int64_t longest)
{
    const int64_t weight_groups = mox_scale_cols(weight, cols), act_groups = mox_ceil_div(cols, act_group_cols);
    const int64_t cuts = mox_ceil_div(cols, longest);
    /* Act order can scatter a weight group over every activation group. */
    const bool reorders = mox_format_of(weight->element)->kind == MOX_KIND_INTEGER && weight_groups > 1;
    const int64_t most = reorders ? weight_groups * act_groups + cuts : weight_groups + act_groups + cuts;
    mox_gemm_extent extent = { .cols = cols, .act_group_cols = act_group_cols, .longest = longest };
    extent.segments = mox_min_i64(most, cols);
    extent.stride = round_lanes(cols + extent.segments * (MOX_GEMM_LANES - 1));
    return extent;
}

int64_t mox_gemm_problem_act_group(const mox_expert_gemm_problem *problem)
{
    const int64_t cols = mox_expert_gemm_cols(problem);
    return mox_quant_is_none(problem->act) ? mox_max_i64(cols, 1) : mox_act_group_cols(problem->act, cols);
}

mox_gemm_extent mox_gemm_problem_extent(const mox_expert_gemm_problem *problem, int64_t longest)
{
    return mox_gemm_extent_of(problem->weight, mox_expert_gemm_cols(problem), mox_gemm_problem_act_group(problem),
                              longest);
}

void mox_gemm_job_init(mox_gemm_job *job, const mox_expert_gemm_args *args, int64_t longest)
{
    const moxie_quant *quant = args->projection == MOX_W13 ? &args->shape->w13 : &args->shape->w2;
    const int64_t cols = args->a->cols, group = args->a->scales != NULL ? args->a->group_cols : mox_max_i64(cols, 1);
    job->args = args;
    job->extent = mox_gemm_extent_of(quant, cols, group, longest);
    mox_gemm_decoder_init(&job->decoder, quant->element);
}

/* ---- tasks ------------------------------------------------------------------------------------------- */

static int64_t matrix_rows(const mox_expert_gemm_args *args)
{
    return args->projection == MOX_W13 ? mox_shape_rows13(args->shape) : mox_shape_rows2(args->shape);
}

static int64_t panels_per_slot(const mox_expert_gemm_args *args)
{
    const int64_t matrices = args->projection == MOX_W13 && args->shape->gated ? 2 : 1;
    return matrices * mox_ceil_div(matrix_rows(args), MOX_GEMM_PANEL);
}

int64_t mox_gemm_tasks(const mox_expert_gemm_args *args)
{
    return args->slots * panels_per_slot(args);
}

bool mox_gemm_panel_of(const mox_expert_gemm_args *args, int64_t task, mox_gemm_panel *out)
{
    const int64_t rows = matrix_rows(args), panels = mox_ceil_div(rows, MOX_GEMM_PANEL);
    const int64_t per_slot = panels_per_slot(args), slot = task / per_slot, place = task % per_slot;
    out->pair = args->offsets[slot];
    out->pairs = args->offsets[slot + 1] - out->pair;
    if (out->pairs == 0)
        return false;
    mox_rowmajor_record record;
    mox_rowmajor_open(args->shape, args->records[slot], &record);
    const bool is_up = place >= panels || !args->shape->gated;
    out->quant = args->projection == MOX_W13 ? &args->shape->w13 : &args->shape->w2;
    out->matrix = args->projection == MOX_W2 ? record.down : is_up ? record.up : record.gate;
    out->row = place % panels * MOX_GEMM_PANEL;
    out->rows = mox_min_i64(MOX_GEMM_PANEL, rows - out->row);
    out->column = place / panels * rows + out->row;
    return true;
}

/* ---- segments ---------------------------------------------------------------------------------------- */

static int64_t next_multiple(int64_t k, int64_t of)
{
    return of > INT64_MAX - k ? INT64_MAX : (k / of + 1) * of;
}

/* End of the segment that starts at visiting index i: one past its last column. */
static int64_t segment_end(const mox_rowmajor_matrix *m, const mox_gemm_extent *e, int64_t i)
{
    int64_t end = mox_min_i64(m->cols, next_multiple(i, e->longest));
    if (m->visit == NULL)
        return mox_min_i64(end, mox_min_i64(next_multiple(i, m->group_cols), next_multiple(i, e->act_group_cols)));
    const int32_t weight_group = m->group_index[m->visit[i]];
    const int64_t act_group = m->visit[i] / e->act_group_cols;
    for (int64_t j = i + 1; j < end; j++)
        if (m->group_index[m->visit[j]] != weight_group || m->visit[j] / e->act_group_cols != act_group)
            return j;
    return end;
}

int64_t mox_gemm_cut(const mox_rowmajor_matrix *matrix, const mox_gemm_extent *extent, mox_gemm_segment *segments,
                     bool *in_place)
{
    int64_t count = 0, at = 0;
    *in_place = matrix->visit == NULL;
    for (int64_t i = 0; i < matrix->cols; count++) {
        const int64_t end = segment_end(matrix, extent, i);
        const int64_t column = matrix->visit != NULL ? matrix->visit[i] : i;
        segments[count] = (mox_gemm_segment) {
            .first = i,
            .count = end - i,
            .at = at,
            .weight_group = matrix->visit != NULL ? matrix->group_index[column] : column / matrix->group_cols,
            .act_group = column / extent->act_group_cols,
        };
        if (at != i)
            *in_place = false;
        at += round_lanes(end - i);
        i = end;
    }
    return count;
}

int64_t mox_gemm_length(const mox_gemm_segment *segments, int64_t count)
{
    return count > 0 ? segments[count - 1].at + round_lanes(segments[count - 1].count) : 0;
}

void mox_gemm_arrange(const mox_rowmajor_matrix *matrix, const mox_gemm_segment *segments, int64_t count,
                      const float *row, float *out)
{
    for (int64_t s = 0; s < count; s++) {
        const mox_gemm_segment *segment = &segments[s];
        float *to = out + segment->at;
        for (int64_t i = 0; i < segment->count; i++)
            to[i] = row[matrix->visit != NULL ? matrix->visit[segment->first + i] : segment->first + i];
        for (int64_t i = segment->count; i < round_lanes(segment->count); i++)
            to[i] = 0.0f;
    }
}

/* ---- decoding ---------------------------------------------------------------------------------------- */

void mox_gemm_decoder_init(mox_gemm_decoder *decoder, moxie_dtype element)
{
    decoder->block = mox_is_block(element) ? mox_block_of(element) : NULL;
    decoder->format = mox_format_of(element);
    decoder->table = mox_format_table(element);
    if (decoder->format->bits != 4)
        return;
    for (int byte = 0; byte < 256; byte++) {
        decoder->pairs[byte][0] = decoder->table[byte & 15];
        decoder->pairs[byte][1] = decoder->table[byte >> 4];
    }
}

static void decode_nibbles(const mox_gemm_decoder *decoder, const uint8_t *codes, int64_t cols, float *out)
{
    for (int64_t i = 0; i < cols / 2; i++)
        memcpy(out + 2 * i, decoder->pairs[codes[i]], sizeof decoder->pairs[0]);
    if (cols % 2 != 0)
        out[cols - 1] = decoder->pairs[codes[cols / 2]][0];
}

/* Element i of a dense row of elements of up to 32 bits; reads only bytes that hold bits of it. */
static uint32_t dense_code(const uint8_t *codes, int32_t bits, int64_t i)
{
    const int64_t first = i * bits;
    uint64_t word = 0;
    for (int64_t byte = first / 8; byte <= (first + bits - 1) / 8; byte++)
        word |= (uint64_t)codes[byte] << (8 * (byte - first / 8));
    return (uint32_t)(word >> (first % 8) & ((UINT64_C(1) << bits) - 1));
}

void mox_gemm_decode(const mox_gemm_decoder *decoder, const uint8_t *codes, int64_t cols, float *out)
{
    const mox_format *format = decoder->format;
    if (decoder->block != NULL) {
        mox_block_decode_run(decoder->block, codes, 0, cols, out);
    } else if (format->bits == 4) {
        decode_nibbles(decoder, codes, cols, out);
    } else if (format->bits == 8) {
        for (int64_t k = 0; k < cols; k++)
            out[k] = decoder->table[codes[k]];
    } else if (format->dtype == MOXIE_F32 || format->dtype == MOXIE_F16 || format->dtype == MOXIE_BF16) {
        mox_widen(format->dtype, codes, out, cols);
    } else {
        for (int64_t k = 0; k < cols; k++) {
            const uint32_t code = dense_code(codes, format->bits, k);
            out[k] = decoder->table != NULL ? decoder->table[code] : format->decode(code);
        }
    }
}

/* ---- scales and the end of a sum ---------------------------------------------------------------------- */

static int64_t scale_index(const mox_rowmajor_matrix *m, int64_t n, int64_t group)
{
    return n / m->group_rows * m->scale_cols + group;
}

float mox_gemm_weight_scale(const mox_gemm_panel *panel, int64_t n, int64_t group)
{
    const mox_rowmajor_matrix *m = &panel->matrix;
    if (m->scale == NULL)
        return 1.0f;
    const int64_t bytes = mox_dtype_bytes(panel->quant->scale);
    return mox_load(panel->quant->scale, (const uint8_t *)m->scale + scale_index(m, n, group) * bytes);
}

float mox_gemm_zero(const mox_gemm_panel *panel, int64_t n, int64_t group)
{
    return panel->matrix.zero != NULL ? panel->matrix.zero[scale_index(&panel->matrix, n, group)] : 0.0f;
}

static float with_global(float value, int32_t kind, float global)
{
    return kind == MOXIE_GLOBAL_MULTIPLY ? value * global : value / global;
}

void mox_gemm_finish(const mox_expert_gemm_args *args, const mox_gemm_panel *panel, int64_t p, int64_t r, float sum)
{
    const mox_activations *a = args->a;
    const mox_rowmajor_matrix *m = &panel->matrix;
    const int64_t n = panel->row + r, pair = panel->pair + p, row = mox_gemm_act_row(args, pair);
    if (a->scales != NULL && !mox_gemm_act_grouped(a))
        sum *= a->scales[row];
    if (m->scale != NULL && !mox_gemm_weight_grouped(panel))
        sum *= mox_gemm_weight_scale(panel, n, 0);
    if (a->global != NULL)
        sum = with_global(sum, a->global_kind, a->global[row]);
    if (m->global != NULL)
        sum = with_global(sum, panel->quant->global, m->global[n]);
    if (m->bias != NULL)
        sum += m->bias[n];
    args->out[pair * args->n_out + panel->column + r] = sum;
}
