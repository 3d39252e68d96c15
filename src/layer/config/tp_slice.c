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

mox_tp_rows mox_tp_rows13(const moxie_layer_config *config, int32_t rank)
{
    return mox_tp_rows_of(&config->w13, config->intermediate, mox_config_tp_ranks(config), rank);
}

mox_tp_rows mox_tp_rows2(const moxie_layer_config *config, int32_t rank)
{
    return mox_tp_rows_of(&config->w2, config->hidden, mox_config_tp_ranks(config), rank);
}

mox_record_shape mox_tp_shape(const moxie_layer_config *config)
{
    mox_record_shape shape = mox_config_routed_shape(config);
    shape.cut = mox_config_tp_ranks(config) > 1;
    if (shape.cut) {
        shape.rows13 = mox_tp_rows13(config, config->tp_rank).count;
        shape.rows2 = mox_tp_rows2(config, config->tp_rank).count;
    }
    return shape;
}

static moxie_status slice(const moxie_matrix *from, const moxie_quant *quant, mox_tp_rows rows, const char *what,
                          moxie_matrix *out, moxie_error *error)
{
    const mox_rectangle at = { rows.first, rows.count, 0, from->codes.cols };
    return mox_matrix_slice(from, quant, &at, what, out, error);
}

moxie_status mox_tp_slice_expert(const moxie_layer_config *config, const moxie_expert *expert, moxie_expert *out,
                                 moxie_error *error)
{
    const mox_tp_rows rows13 = mox_tp_rows13(config, config->tp_rank), rows2 = mox_tp_rows2(config, config->tp_rank);
    moxie_expert taken = *expert;
    if (mox_config_tp_ranks(config) > 1) {
        if (expert->gate.codes.data != NULL)
            MOX_TRY(slice(&expert->gate, &config->w13, rows13, "gate", &taken.gate, error));
        MOX_TRY(slice(&expert->up, &config->w13, rows13, "up", &taken.up, error));
        MOX_TRY(slice(&expert->down, &config->w2, rows2, "down", &taken.down, error));
    }
    *out = taken;
    return MOXIE_OK;
}

moxie_status mox_tp_slice(const moxie_layer_config *config, int32_t tp_size, int32_t tp_rank, int64_t w13[2],
                          int64_t w2[2], moxie_error *error)
{
    moxie_layer_config checked;
    MOX_TRY(mox_config_read(config, &checked, error));
    MOX_FAIL_IF(tp_size < 1 || tp_rank < 0 || tp_rank >= tp_size, MOXIE_ERR_ARGUMENT, error,
                "tp_rank is %d of tp_size %d; the size must be 1 or more, the rank from 0 to the size less one",
                (int)tp_rank, (int)tp_size);
    checked.tp_size = tp_size;
    const mox_tp_rows rows13 = mox_tp_rows13(&checked, tp_rank), rows2 = mox_tp_rows2(&checked, tp_rank);
    w13[0] = rows13.first, w13[1] = rows13.first + rows13.count;
    w2[0] = rows2.first, w2[1] = rows2.first + rows2.count;
    return MOXIE_OK;
}
