/* SPDX-License-Identifier: Apache-2.0
 *
 * mover.h - moves experts of a layer between ranks, between runs (moxie_mover of moxie_comm.h).
 *
 *     present map, target --move_schedule.h--> moves of a step
 *        records of other ranks (one all-to-all with rows for these moves alone), or packed from checkpoint views
 *           --> the layer's spare records: slots [slots, max_slots) --> the layer's map, generation + 1
 *
 * A layer's own slots stay the first ones: an expert that comes takes the next spare record. When one goes, the last
 * slot takes its number. Plans find the new map by its generation in their next run.
 *
 * In the flow: layer_prepare -> [mover] -> run.
 */
#ifndef MOX_LAYER_MOVER_H
#define MOX_LAYER_MOVER_H

#include "comm/comm.h"
#include "layer/weights/layer.h"
#include "route/move_schedule.h"

/* Bodies of the calls of moxie_comm.h; structs are read. */
moxie_status mox_mover_create(moxie_layer *layer, const moxie_slot_map *target, const moxie_mover_options *options,
                              moxie_mover **out, moxie_error *error);
void mox_mover_destroy(moxie_mover *mover);
moxie_status mox_mover_step(moxie_mover *mover, moxie_mover_report *report, moxie_error *error);

/* Gives the layer's own copy of its map `spare` empty slots behind each rank's others; an expert that a rank has twice
 * keeps its lowest slot there. The layer has its map. */
moxie_status mox_layer_add_spare_slots(moxie_layer *layer, int32_t spare, moxie_error *error);

#endif
