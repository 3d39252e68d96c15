/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_fill.c - memory of the generator: a buffer for the bytes of the current chunk, and the groups of one matrix.
 */
#include "ckpt/synth/synth_fill.h"

#include "base/memory.h"

uint8_t *mox_fill_buffer(mox_synth_filler *filler, uint64_t bytes)
{
    if (bytes > filler->buffer_bytes) {
        mox_free(filler->buffer);
        filler->buffer = mox_alloc(bytes);
        filler->buffer_bytes = filler->buffer ? bytes : 0;
    }
    return filler->buffer;
}

void mox_fill_groups_free(mox_fill_groups *groups)
{
    mox_free(groups->scale);
    mox_free(groups->zero);
    mox_free(groups->low);
    mox_free(groups->high);
    *groups = (mox_fill_groups) { 0 };
}

moxie_status mox_synth_filler_create(const mox_synth_model *model, const moxie_executor *executor,
                                     mox_synth_filler **out, moxie_error *error)
{
    mox_synth_filler *filler = mox_alloc(sizeof *filler);
    MOX_FAIL_IF(!filler, MOXIE_ERR_MEMORY, error, "no memory for the generator");
    filler->model = model;
    filler->executor = executor;
    *out = filler;
    return MOXIE_OK;
}

void mox_synth_filler_destroy(mox_synth_filler *filler)
{
    if (!filler)
        return;
    mox_fill_groups_free(&filler->groups);
    mox_free(filler->buffer);
    mox_free(filler);
}
