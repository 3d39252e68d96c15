/* SPDX-License-Identifier: Apache-2.0
 *
 * tp_slice.h - which part of an expert a tensor parallel rank holds.
 *
 *            W13: gate, up [I, H]        W2: down [H, I]
 *     rank 0  rows [0, 48)                rows [0, 64)          as even as whole units allow
 *     rank 1  rows [48, 80)               rows [64, 112)        a unit: 16 rows that no group of scales crosses
 *
 * So bits stay those of one rank, because every dot product is whole on one rank. In fast mode W2 may be cut by
 * columns instead, those of the rank's rows of W13. Then the rank's expert is a smaller expert, and results are sums
 * over ranks:
 *
 *     rank 0  rows [0, 64)                columns [0, 64)       a unit: 32, and whole groups of W13, W2 and a2
 *     rank 1  rows [64, 128)              columns [64, 128)
 *
 * In the flow: config -> [rows of this rank] -> views and records of these rows (layer/weights), act and y (layer/run).
 */
#ifndef MOX_LAYER_TP_SLICE_H
#define MOX_LAYER_TP_SLICE_H

#include "cpu/expert_gemm/expert_gemm.h"
#include "layer/config/config.h"

/* A multiple of it is what layouts and words of packed codes want; rows of act and y travel in pieces of so many
 * columns. */
#define MOX_TP_UNIT 16

/* Rows [first, first + count). */
typedef struct mox_tp_rows {
    int64_t first, count;
} mox_tp_rows;

/* The rows of rank `rank` of `ranks` in a matrix of `rows` rows whose scales `quant` describes. The ranks' ranges lie
 * end to end and cover all rows; a rank may get none. */
mox_tp_rows mox_tp_rows_of(const moxie_quant *quant, int64_t rows, int32_t ranks, int32_t rank);

/* The rows of one kind of expert on rank `rank` of the group: of gate and of up each, or of down. */
mox_tp_rows mox_tp_part(const moxie_layer_config *config, mox_expert_kind kind, mox_projection projection,
                        int32_t rank);
/* The same of a routed expert. */
mox_tp_rows mox_tp_rows13(const moxie_layer_config *config, int32_t rank);
mox_tp_rows mox_tp_rows2(const moxie_layer_config *config, int32_t rank);

/* How the experts of a layer are cut. */
typedef enum mox_tp_cut { MOX_TP_WHOLE, MOX_TP_ROWS, MOX_TP_SUMS } mox_tp_cut;

/* How `mode` cuts them. *why (may be NULL): in fast mode the reason for MOX_TP_ROWS, static; else "". MOX_TP_SUMS needs
 * activations that a rank can quantize from its own columns, and is chosen where its ranks send each other fewer bytes.
 */
mox_tp_cut mox_tp_cut_of(const moxie_layer_config *config, moxie_mode mode, const char **why);

/* How the shared expert of ranks that exchange rows is cut: MOX_TP_ROWS or MOX_TP_WHOLE, in both modes. *why (may be
 * NULL): the reason for a whole one, static; else "". */
mox_tp_cut mox_tp_shared_cut(const moxie_layer_config *config, bool has_comm, bool on_device, const char **why);

/* MOX_TP_SUMS: the rows of W13, and columns of W2, of rank `rank` of the group. */
mox_tp_rows mox_tp_sums_part(const moxie_layer_config *config, int32_t rank);

/* The form of this rank's records of routed experts. */
mox_record_shape mox_tp_shape(const moxie_layer_config *config, mox_tp_cut cut);
/* The same of its shared expert's record. */
mox_record_shape mox_tp_shared_shape(const moxie_layer_config *config, mox_tp_cut cut);

/* The expert with this rank's part alone, as views of the same memory. The views passed the checks of the whole shape.
 */
moxie_status mox_tp_slice_expert(const moxie_layer_config *config, mox_expert_kind kind, mox_tp_cut cut,
                                 const moxie_expert *expert, moxie_expert *out, moxie_error *error);

/* moxie_tp_slice_in_mode(): `config` is the caller's struct. */
moxie_status mox_tp_slice(const moxie_layer_config *config, moxie_mode mode, int32_t tp_size, int32_t tp_rank,
                          int64_t w13[2], int64_t w2[2], mox_tp_cut *cut, moxie_error *error);

/* moxie_tp_slice_shared(): `config` is the caller's struct. */
moxie_status mox_tp_slice_shared(const moxie_layer_config *config, bool on_device, int32_t tp_size, int32_t tp_rank,
                                 int64_t w13[2], int64_t w2[2], uint64_t bytes[2], moxie_error *error);

#endif
