/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_columns.c - columns in act order (GPTQ's desc_act): sorted by group for targets that read them so.
 *
 *     g_idx of the checkpoint     1 0 1 0 2 0 ...      column k is in group g_idx[k]
 *     sort indices                1 3 5 0 2 4 ...      stable: column `order[k]` of the checkpoint becomes column k
 *     g_idx of the target         0 0 0 1 1 2 ...      g_idx[order[k]]
 *     codes of a row              code[order[k]]       scales and zero points stay where they are, one per group
 *
 * Elements are gathered and scattered as bytes: rows of 4-bit elements are widened to a byte each on the way.
 * In the flow: dense rows -> [columns] -> code -> order (vendor.h).
 * Source: vLLM's GPTQMarlinMoEMethod sorts g_idx by argsort and passes it to gptq_marlin_repack as perm.
 */
#include "base/memory.h"
#include "base/sizes.h"
#include "vendor/vendor_internal.h"

/* ---- orders --------------------------------------------------------------------------------------- */

static void sort(const int32_t *groups, int64_t cols, int64_t n_groups, int64_t group_cols, int32_t *order,
                 int32_t *sorted)
{
    int64_t at = 0;
    if (groups == NULL) {
        for (int64_t k = 0; k < cols; k++) {
            order[k] = (int32_t)k;
            sorted[k] = (int32_t)(k / group_cols);
        }
        return;
    }
    /* `sorted` first counts the starts of the groups. It has room for them: there are no more groups than columns. */
    memset(sorted, 0, (size_t)n_groups * sizeof *sorted);
    for (int64_t k = 0; k < cols; k++)
        sorted[groups[k]]++;
    for (int64_t g = 0; g < n_groups; g++) {
        const int32_t count = sorted[g];
        sorted[g] = (int32_t)at;
        at += count;
    }
    for (int64_t k = 0; k < cols; k++)
        order[sorted[groups[k]]++] = (int32_t)k;
    for (int64_t k = 0; k < cols; k++)
        sorted[k] = groups[order[k]];
}

/* Tensors come from files, so their numbers may be anything. */
static moxie_status check_permutation(const int32_t *order, int64_t cols, const char *name, moxie_error *error)
{
    uint8_t *seen = mox_alloc((uint64_t)cols);
    bool good = seen != NULL;
    MOX_FAIL_IF(seen == NULL, MOXIE_ERR_MEMORY, error, "no memory: %lld bytes to check an order of columns",
                (long long)cols);
    memset(seen, 0, (size_t)cols);
    for (int64_t k = 0; good && k < cols; k++) {
        good = order[k] >= 0 && order[k] < cols && !seen[order[k]];
        if (good)
            seen[order[k]] = 1;
    }
    mox_free(seen);
    MOX_FAIL_IF(!good, MOXIE_ERR_FORMAT, error, "%s does not hold every number from 0 to %lld once", name,
                (long long)cols - 1);
    return MOXIE_OK;
}

static int64_t columns_in(const mox_vendor_plan *plan, int which)
{
    return which ? plan->intermediate : plan->hidden;
}

static const moxie_quant *quant_of(const mox_vendor_plan *plan, int which)
{
    return which ? &plan->shape.w2 : &plan->shape.w13;
}

/* Allocates all four arrays as one block. */
static moxie_status make(const mox_vendor_plan *plan, mox_columns *out, moxie_error *error)
{
    *out = (mox_columns) { { NULL }, { NULL } };
    if (!plan->act_order)
        return MOXIE_OK;
    const uint64_t bytes = (uint64_t)(plan->hidden + plan->intermediate) * 2 * sizeof(int32_t);
    int32_t *at = mox_alloc(bytes);
    MOX_FAIL_IF(at == NULL, MOXIE_ERR_MEMORY, error, "no memory: %llu bytes for orders of columns",
                (unsigned long long)bytes);
    for (int i = 0; i < 2; i++) {
        out->order[i] = at;
        out->groups[i] = at + columns_in(plan, i);
        at += 2 * columns_in(plan, i);
    }
    return MOXIE_OK;
}

void mox_columns_free(mox_columns *columns)
{
    mox_free(columns->order[0]);
}

moxie_status mox_columns_of_expert(const mox_vendor_plan *plan, const moxie_expert *expert, mox_columns *out,
                                   moxie_error *error)
{
    const moxie_matrix *const matrices[] = { &expert->up, &expert->down };
    MOX_TRY(make(plan, out, error));
    for (int i = 0; plan->act_order && i < 2; i++) {
        const int64_t cols = columns_in(plan, i);
        sort(matrices[i]->group_index, cols, mox_scale_cols(quant_of(plan, i), cols),
             mox_group_cols(quant_of(plan, i), cols), out->order[i], out->groups[i]);
    }
    return MOXIE_OK;
}

moxie_status mox_columns_of_tensors(const mox_vendor_plan *plan, void *const *tensors, mox_columns *out,
                                    moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    MOX_TRY(make(plan, out, error));
    for (int32_t i = 0; status == MOXIE_OK && i < plan->count; i++) {
        const mox_vendor_tensor *t = &plan->tensors[i];
        if (t->kind == MOX_VENDOR_GROUPS)
            memcpy(out->groups[t->projection], tensors[i], (size_t)t->bytes);
        if (t->kind != MOX_VENDOR_ORDER)
            continue;
        memcpy(out->order[t->projection], tensors[i], (size_t)t->bytes);
        status = check_permutation(out->order[t->projection], t->shape[0], t->name, error);
    }
    if (status != MOXIE_OK)
        mox_columns_free(out);
    return status;
}

static void restore(const mox_vendor_plan *plan, const mox_columns *c, int which, const moxie_matrix *out)
{
    int32_t *index = (int32_t *)(uintptr_t)out->group_index; /* writable: the caller guarantees it */
    const int64_t group = mox_group_cols(quant_of(plan, which), out->codes.cols);
    for (int64_t k = 0; index != NULL && k < out->codes.cols; k++)
        if (plan->act_order)
            index[c->order[which][k]] = c->groups[which][k];
        else
            index[k] = (int32_t)(k / group);
}

void mox_columns_restore(const mox_vendor_plan *plan, const mox_columns *columns, const moxie_expert *out)
{
    restore(plan, columns, MOX_VENDOR_W13, &out->gate);
    restore(plan, columns, MOX_VENDOR_W13, &out->up);
    restore(plan, columns, MOX_VENDOR_W2, &out->down);
}

moxie_status mox_columns_check_halves(const mox_vendor_plan *plan, const moxie_expert *expert, moxie_error *error)
{
    const int64_t cols = expert->up.codes.cols, group = mox_group_cols(&plan->shape.w13, cols);
    const int32_t *a = expert->gate.group_index, *b = expert->up.group_index;
    bool same = true;
    for (int64_t k = 0; same && k < cols; k++)
        same = (a != NULL ? a[k] : k / group) == (b != NULL ? b[k] : k / group);
    MOX_FAIL_IF(!same, MOXIE_ERR_UNSUPPORTED, error,
                "layout %s: gate's columns are in another act order than up's, and the target has one for both",
                plan->layout->name);
    return MOXIE_OK;
}

/* ---- one row -------------------------------------------------------------------------------------- */

static void spread_nibbles(const uint8_t *row, int64_t cols, uint8_t *bytes)
{
    for (int64_t i = 0; i < cols / 2; i++) {
        bytes[2 * i] = row[i] & 15;
        bytes[2 * i + 1] = row[i] >> 4;
    }
}

void mox_columns_gather(const int32_t *order, int64_t cols, int32_t bits, const uint8_t *row, uint8_t *bytes,
                        uint8_t *out)
{
    if (bits == 8) {
        for (int64_t k = 0; k < cols; k++)
            out[k] = row[order[k]];
        return;
    }
    spread_nibbles(row, cols, bytes);
    for (int64_t k = 0; k < cols; k += 2)
        out[k / 2] = (uint8_t)(bytes[order[k]] | bytes[order[k + 1]] << 4);
}

void mox_columns_scatter(const int32_t *order, int64_t cols, int32_t bits, const uint8_t *row, uint8_t *bytes,
                         uint8_t *out)
{
    if (bits == 8) {
        for (int64_t k = 0; k < cols; k++)
            out[order[k]] = row[k];
        return;
    }
    for (int64_t k = 0; k < cols; k += 2) {
        bytes[order[k]] = row[k / 2] & 15;
        bytes[order[k + 1]] = row[k / 2] >> 4;
    }
    for (int64_t i = 0; i < cols / 2; i++)
        out[i] = (uint8_t)(bytes[2 * i] | bytes[2 * i + 1] << 4);
}
