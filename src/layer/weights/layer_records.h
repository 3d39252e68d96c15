/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_records.h - the block of memory that holds all records of a layer (its slab), and the layouts of the records.
 *
 *     slab | slot 0 | slot 1 | ... | slot n-1 | padding to 256 bytes | shared expert |
 *
 * In the flow: layer_create and layer_prepare -> [records] -> run.
 */
#ifndef MOX_LAYER_LAYER_RECORDS_H
#define MOX_LAYER_LAYER_RECORDS_H

#include "base/executor.h"
#include "layer/weights/layer.h"

/* Allocates records in the layouts that the layer names. The layer has its device, shapes and slots. */
moxie_status mox_layer_allocate_records(moxie_layer *layer, moxie_error *error);
void mox_layer_free_records(moxie_layer *layer);
/* On the host, instead: slots are records that exist, routed[e] by expert and `shared`; they outlive the layer. */
moxie_status mox_layer_use_records(moxie_layer *layer, const void *const *routed, const void *shared,
                                   moxie_error *error);
/* Puts `record`, of mox_alloc_pages(), in the place of such a record; the layer frees it. The file's own stays as it
 * is, since other layers may read it. Returns what is to be freed: what an earlier call put there, or NULL. */
void *mox_layer_own_record(moxie_layer *layer, int32_t slot, void *record);

/* Chooses layouts that can hold these weights (mox_layout.accepts). A layout that cannot is replaced by its fallback,
 * in the end by rowmajor, which holds everything. Plans that read the old layout can no longer run. The records hold no
 * weights afterwards. On failure the layer keeps its layouts, perhaps without memory for them; the next call starts
 * from there. */
moxie_status mox_layer_choose_layout(moxie_layer *layer, const moxie_weights *weights, const moxie_executor *executor,
                                     moxie_error *error);

/* Whether a layout can hold these weights; views that are malformed are accepted, since packers reject them. If not,
 * the layout to try next. */
bool mox_layer_accepts(const mox_layout *layout, const mox_record_shape *shape, int64_t expert,
                       const moxie_expert *weights);
const mox_layout *mox_layer_fallback(const moxie_layer_config *config, mox_expert_kind kind, const mox_layout *layout);

/* Bodies of moxie_layer_verify and _record. */
moxie_status mox_layer_verify(const moxie_layer *layer, moxie_error *error);
moxie_status mox_layer_record(const moxie_layer *layer, int64_t expert, const void **data, uint64_t *bytes,
                              moxie_error *error);
/* An error unless the layer was prepared. */
moxie_status mox_layer_need_prepared(const moxie_layer *layer, moxie_error *error);
/* An error unless the layer has this expert, on any rank. `what` for the text: "asked for". */
moxie_status mox_layer_need_expert(const moxie_layer *layer, int64_t expert, const char *what, moxie_error *error);

/* Fails with MOXIE_ERR_MEMORY and the layer's sizes. */
moxie_status mox_layer_no_memory(const moxie_layer_config *config, moxie_error *error);

#endif
