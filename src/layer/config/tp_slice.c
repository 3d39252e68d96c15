/* SPDX-License-Identifier: Apache-2.0
 *
 * tp_slice.c - cuts an expert's matrices by rows for tensor parallel ranks (tp_slice.h).
 *
 * U units of rows go to R ranks: rank r gets units [r U / R, (r+1) U / R). The last unit may be short. A group of
 * scales that covers all rows is no obstacle, since every rank keeps its scale.
 */
#include "layer/config/tp_slice.h"

#include "base/sizes.h"

static int64_t unit_of(const moxie_quant *quant, int64_t rows)
{
    const int64_t group = quant->scale == MOXIE_DTYPE_NONE ? 1 : mox_group_rows(quant, rows);
    return group >= rows ? MOX_TP_UNIT : mox_common_multiple(group, MOX_TP_UNIT);
}

mox_tp_rows mox_tp_rows_of(const moxie_quant *quant, int64_t rows, int32_t ranks, int32_t rank)
{
    const int64_t unit = unit_of(quant, rows), units = mox_ceil_div(rows, unit);
    const int64_t first = mox_min_i64(rank * units / ranks * unit, rows);
    const int64_t end = mox_min_i64((rank + 1) * units / ranks * unit, rows);
    return (mox_tp_rows) { first, end - first };
}

static const moxie_quant *quant_of(const moxie_layer_config *c, mox_expert_kind kind, mox_projection projection)
{
    if (kind == MOX_ROUTED)
        return projection == MOX_W13 ? &c->w13 : &c->w2;
    return projection == MOX_W13 ? &c->shared.w13 : &c->shared.w2;
}

mox_tp_rows mox_tp_part(const moxie_layer_config *config, mox_expert_kind kind, mox_projection projection, int32_t rank)
{
    const int64_t intermediate = kind == MOX_ROUTED ? config->intermediate : config->shared.intermediate;
    return mox_tp_rows_of(quant_of(config, kind, projection), projection == MOX_W13 ? intermediate : config->hidden,
                          mox_config_tp_ranks(config), rank);
}

mox_tp_rows mox_tp_rows13(const moxie_layer_config *config, int32_t rank)
{
    return mox_tp_part(config, MOX_ROUTED, MOX_W13, rank);
}

mox_tp_rows mox_tp_rows2(const moxie_layer_config *config, int32_t rank)
{
    return mox_tp_part(config, MOX_ROUTED, MOX_W2, rank);
}

/* ---- the shared expert ---- */

static bool all_have_rows13(const moxie_layer_config *c)
{
    for (int32_t r = 0; r < mox_config_tp_ranks(c); r++)
        if (mox_tp_part(c, MOX_SHARED_EXPERT, MOX_W13, r).count == 0)
            return false;
    return true;
}

mox_tp_cut mox_tp_shared_cut(const moxie_layer_config *config, bool has_comm, bool on_device, const char **why)
{
    const moxie_shared_config *s = &config->shared;
    const char *reason = "";
    if (s->intermediate == 0 || mox_config_tp_ranks(config) == 1 || !has_comm)
        reason = "";
    else if (mox_act_quant_needs_amax(&s->a13) || mox_act_quant_needs_amax(&s->a2))
        reason = "one scale covers its activations of the whole batch, of which each rank then sees its own tokens";
    else if (on_device && !all_have_rows13(config))
        reason = "gate has too few rows for all ranks, and on a GPU the kernel of down reads what gate's has gathered";
    else
        return MOX_TP_ROWS;
    if (why != NULL)
        *why = reason;
    return MOX_TP_WHOLE;
}

/* ---- sums over ranks ---- */

enum { SUMS_UNIT = 32 }; /* a step of a panel, and whole words of every packing */

/* Columns of W2 that share a scale, or a block. */
static int64_t cols_together(const moxie_quant *w2, int64_t cols)
{
    if (mox_quant_is_block(w2))
        return mox_block_of(w2->element)->weights;
    return w2->scale != MOXIE_DTYPE_NONE ? mox_group_cols(w2, cols) : 1;
}

static int64_t sums_unit(const moxie_layer_config *c)
{
    const int64_t i = c->intermediate;
    const int64_t groups[] = { c->w13.scale != MOXIE_DTYPE_NONE ? mox_group_rows(&c->w13, i) : 1,
                               cols_together(&c->w2, i), mox_quant_is_none(&c->a2) ? 1 : mox_group_cols(&c->a2, i) };
    int64_t unit = SUMS_UNIT;
    for (size_t n = 0; n < sizeof groups / sizeof groups[0]; n++)
        unit = groups[n] < i ? mox_common_multiple(unit, groups[n]) : unit;
    return unit;
}

mox_tp_rows mox_tp_sums_part(const moxie_layer_config *config, int32_t rank)
{
    const int64_t unit = sums_unit(config), units = config->intermediate / unit;
    const int32_t ranks = mox_config_tp_ranks(config);
    const int64_t first = rank * units / ranks * unit, end = (rank + 1) * units / ranks * unit;
    return (mox_tp_rows) { first, end - first };
}

/* A rank finds the codes of its own columns without knowing the others'. */
static bool quantizes_apart(const moxie_quant *a2, int64_t cols)
{
    if (mox_quant_is_none(a2) || a2->is_static)
        return true;
    return mox_group_cols(a2, cols) < cols && a2->global == MOXIE_GLOBAL_NONE;
}

static bool is_integer(const moxie_quant *weight)
{
    return weight->scale != MOXIE_DTYPE_NONE && mox_format_of(weight->element)->kind == MOX_KIND_INTEGER;
}

mox_tp_cut mox_tp_cut_of(const moxie_layer_config *config, moxie_mode mode, const char **why)
{
    const int64_t ranks = mox_config_tp_ranks(config), i = config->intermediate;
    const int64_t act_bytes = mox_quant_is_none(&config->a2) ? mox_dtype_bytes(config->dtype) : 4;
    const char *reason = "";
    if (ranks == 1)
        return MOX_TP_WHOLE;
    if (mode != MOXIE_MODE_FAST)
        reason = "";
    else if (!quantizes_apart(&config->a2, i))
        reason = "W2's activations have a scale over columns of all ranks";
    else if (is_integer(&config->w2))
        reason = "columns of integer weights may be in act order, which scatters them over all ranks";
    else if (config->expert_norm.kind != MOXIE_ROW_NORM_NONE)
        reason = "the norm of each expert's result needs whole rows";
    else if (i % sums_unit(config) != 0)
        reason = "the intermediate size is no whole number of groups of columns";
    else if (i / sums_unit(config) < ranks)
        reason = "there are fewer groups of columns than ranks";
    else if (config->hidden * (int64_t)sizeof(float) >= i * act_bytes)
        reason = "sums of results are more bytes than the activations that are gathered";
    else
        return MOX_TP_SUMS;
    if (why != NULL)
        *why = reason;
    return MOX_TP_ROWS;
}

/* ---- records ---- */

/* Of sums over ranks, the first rank adds the bias. */
mox_record_shape mox_tp_shape(const moxie_layer_config *config, mox_tp_cut cut)
{
    mox_record_shape shape = mox_config_routed_shape(config);
    shape.cut = cut == MOX_TP_ROWS;
    if (cut == MOX_TP_ROWS) {
        shape.rows13 = mox_tp_rows13(config, config->tp_rank).count;
        shape.rows2 = mox_tp_rows2(config, config->tp_rank).count;
    }
    if (cut == MOX_TP_SUMS) {
        shape.intermediate = mox_tp_sums_part(config, config->tp_rank).count;
        shape.bias2 = shape.bias2 && config->tp_rank == 0;
    }
    return shape;
}

mox_record_shape mox_tp_shared_shape(const moxie_layer_config *config, mox_tp_cut cut)
{
    mox_record_shape shape = mox_config_shared_shape(config);
    shape.cut = cut == MOX_TP_ROWS;
    if (shape.cut) {
        shape.rows13 = mox_tp_part(config, MOX_SHARED_EXPERT, MOX_W13, config->tp_rank).count;
        shape.rows2 = mox_tp_part(config, MOX_SHARED_EXPERT, MOX_W2, config->tp_rank).count;
    }
    return shape;
}

static moxie_status slice(const moxie_matrix *from, const moxie_quant *quant, mox_tp_rows rows, const char *what,
                          moxie_matrix *out, moxie_error *error)
{
    const mox_rectangle at = { rows.first, rows.count, 0, from->codes.cols };
    return mox_matrix_slice(from, quant, &at, what, out, error);
}

static moxie_status slice_down(const moxie_layer_config *c, mox_expert_kind kind, mox_tp_cut cut,
                               const moxie_expert *expert, moxie_matrix *out, moxie_error *error)
{
    if (cut == MOX_TP_ROWS)
        return slice(&expert->down, quant_of(c, kind, MOX_W2), mox_tp_part(c, kind, MOX_W2, c->tp_rank), "down", out,
                     error);
    const mox_tp_rows cols = mox_tp_sums_part(c, c->tp_rank);
    const mox_rectangle at = { 0, expert->down.codes.rows, cols.first, cols.count };
    MOX_TRY(mox_matrix_slice(&expert->down, &c->w2, &at, "down", out, error));
    if (c->tp_rank > 0)
        out->bias = (moxie_grid) { .data = NULL };
    return MOXIE_OK;
}

moxie_status mox_tp_slice_expert(const moxie_layer_config *config, mox_expert_kind kind, mox_tp_cut cut,
                                 const moxie_expert *expert, moxie_expert *out, moxie_error *error)
{
    const moxie_quant *w13 = quant_of(config, kind, MOX_W13);
    moxie_expert taken = *expert;
    if (cut != MOX_TP_WHOLE) {
        const mox_tp_rows rows = cut == MOX_TP_ROWS ? mox_tp_part(config, kind, MOX_W13, config->tp_rank)
                                                    : mox_tp_sums_part(config, config->tp_rank);
        if (expert->gate.codes.data != NULL)
            MOX_TRY(slice(&expert->gate, w13, rows, "gate", &taken.gate, error));
        MOX_TRY(slice(&expert->up, w13, rows, "up", &taken.up, error));
        MOX_TRY(slice_down(config, kind, cut, expert, &taken.down, error));
    }
    *out = taken;
    return MOXIE_OK;
}

/* The checked configuration, of rank tp_rank of tp_size. */
static moxie_status read_rank(const moxie_layer_config *config, int32_t tp_size, int32_t tp_rank,
                              moxie_layer_config *out, moxie_error *error)
{
    MOX_TRY(mox_config_read(config, out, error));
    MOX_FAIL_IF(tp_size < 1 || tp_rank < 0 || tp_rank >= tp_size, MOXIE_ERR_ARGUMENT, error,
                "tp_rank is %d of tp_size %d; the size must be 1 or more, the rank from 0 to the size less one",
                (int)tp_rank, (int)tp_size);
    out->tp_size = tp_size;
    out->tp_rank = tp_rank;
    return MOXIE_OK;
}

static void set_range(int64_t range[2], mox_tp_rows rows)
{
    range[0] = rows.first;
    range[1] = rows.first + rows.count;
}

moxie_status mox_tp_slice(const moxie_layer_config *config, moxie_mode mode, int32_t tp_size, int32_t tp_rank,
                          int64_t w13[2], int64_t w2[2], mox_tp_cut *cut, moxie_error *error)
{
    moxie_layer_config c;
    MOX_FAIL_IF(mode != MOXIE_MODE_EXACT && mode != MOXIE_MODE_FAST, MOXIE_ERR_ARGUMENT, error,
                "mode is %d; it must be MOXIE_MODE_EXACT or MOXIE_MODE_FAST", (int)mode);
    MOX_TRY(read_rank(config, tp_size, tp_rank, &c, error));
    *cut = mox_tp_cut_of(&c, mode, NULL);
    const bool sums = *cut == MOX_TP_SUMS;
    set_range(w13, sums ? mox_tp_sums_part(&c, tp_rank) : mox_tp_rows13(&c, tp_rank));
    set_range(w2, sums ? mox_tp_sums_part(&c, tp_rank) : mox_tp_rows2(&c, tp_rank));
    return MOXIE_OK;
}

moxie_status mox_tp_slice_shared(const moxie_layer_config *config, bool on_device, int32_t tp_size, int32_t tp_rank,
                                 int64_t w13[2], int64_t w2[2], uint64_t bytes[2], moxie_error *error)
{
    moxie_layer_config c;
    uint64_t found[2] = { 0, 0 };
    MOX_TRY(read_rank(config, tp_size, tp_rank, &c, error));
    const int64_t intermediate = c.shared.intermediate;
    const mox_tp_cut cut = mox_tp_shared_cut(&c, true, on_device, NULL);
    const mox_record_shape mine = mox_tp_shared_shape(&c, cut), whole = mox_config_shared_shape(&c);
    MOX_FAIL_IF(intermediate > 0 && (!mox_layout_rowmajor.record_bytes(&mine, &found[0]) ||
                                     !mox_layout_rowmajor.record_bytes(&whole, &found[1])),
                MOXIE_ERR_UNSUPPORTED, error, "the shared expert's bytes do not fit in 64 bits");
    set_range(w13, cut == MOX_TP_ROWS ? mox_tp_part(&c, MOX_SHARED_EXPERT, MOX_W13, tp_rank)
                                      : (mox_tp_rows) { 0, intermediate });
    set_range(w2, cut == MOX_TP_ROWS ? mox_tp_part(&c, MOX_SHARED_EXPERT, MOX_W2, tp_rank)
                                     : (mox_tp_rows) { 0, intermediate > 0 ? c.hidden : 0 });
    bytes[0] = found[0];
    bytes[1] = found[1];
    return MOXIE_OK;
}
