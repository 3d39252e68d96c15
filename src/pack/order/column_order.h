/* SPDX-License-Identifier: Apache-2.0
 *
 * column_order.h - records of matrices in act order (GPTQ's desc_act), for kernels that read each group as one run of
 * columns. The columns are sorted by group, and the record says how:
 *
 *     g_idx of the checkpoint     1 0 1 0 2 0 ...      column k is in group g_idx[k]
 *     order                       1 3 5 0 2 4 ...      columns by group, ascending within a group
 *     codes of the record         column i is the matrix' column order[i]; its group is i / group_cols
 *     activations                 a'[i] = a[order[i]]  put in that order just before the product reads them
 *
 *     +-----------------------------+-----------+-----------+----------+----------+
 *     | a record of the base layout | order W13 | place W13 | order W2 | place W2 |     i32 [columns] each
 *     +-----------------------------+-----------+-----------+----------+----------+
 *
 * place is the inverse: place[order[i]] = i. Kernels of the base layout read such a record. Everything outside the
 * products keeps the checkpoint's order: W13's results, biases, adapters, traces, rows that ranks exchange.
 *
 * A matrix in natural order needs no permutation: then its flag in the header is 0. So one layer may have both.
 *
 * In the flow: checkpoint views -> [sorted columns] -> base layout -> record -> slot.
 */
#ifndef MOX_PACK_COLUMN_ORDER_H
#define MOX_PACK_COLUMN_ORDER_H

#include "pack/layout.h"

/* Header flags: the columns of W13 (gate and up alike), or of W2, are permuted. Base layouts have no flags. */
#define MOX_ORDER_W13 1u
#define MOX_ORDER_W2  2u

extern const mox_layout mox_layout_hopper_codes_order;

/* The permutation of one product's columns; NULL: natural order. */
typedef struct mox_column_order {
    const int32_t *order, *place; /* [columns] */
} mox_column_order;

/* Of W13 (`second` false) or W2, in a sealed record of any layout whose kernels read `base` or an ordered form of it.
 * Cheap: called per task. */
mox_column_order mox_column_order_of(const mox_record_shape *shape, const void *record, bool second);
/* Bytes behind the record of the base layout; where the product's order begins in them. UINT64_MAX: too many. */
uint64_t mox_column_order_bytes(const mox_record_shape *shape);
uint64_t mox_column_order_at(const mox_record_shape *shape, bool second);
/* Whether a record's flags and orders can be used: what is flagged is a permutation. */
bool mox_column_order_is_valid(const mox_layout *layout, const mox_record_shape *shape, const void *record);
/* Which projections of a record are in act order: MOX_ROWMAJOR_ORDER_GATE and so on. */
uint32_t mox_record_act_order(const mox_layout *layout, const void *record);

/* What an ordered layout is made of: the functions of mox_layout, for the layout's base. */
bool mox_ordered_accepts(const mox_layout *base, const mox_record_shape *shape, const moxie_expert *expert,
                         char *reason, size_t size);
bool mox_ordered_record_bytes(const mox_layout *base, const mox_record_shape *shape, uint64_t *out);
moxie_status mox_ordered_pack(const mox_layout *base, const mox_record_shape *shape, const moxie_expert *expert,
                              void *record, moxie_error *error);
moxie_status mox_ordered_unpack(const mox_layout *base, const mox_record_shape *shape, const void *record,
                                moxie_expert *out, moxie_error *error);

#endif
