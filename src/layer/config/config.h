/* SPDX-License-Identifier: Apache-2.0
 *
 * config.h - a layer's configuration: read across versions, checked once, then trusted by everything below.
 *
 *     caller's struct -> struct_size.c: older or newer header -> config_check.c: every rule -> config_arrays.c: copies
 *
 * In the flow: caller -> [config] -> select (which kernels) -> layer (records) and plan (steps, workspace).
 */
#ifndef MOX_LAYER_CONFIG_H
#define MOX_LAYER_CONFIG_H

#include "base/memory.h"
#include "pack/layout.h"

/* Routed experts, or the shared one that every token visits. */
typedef enum mox_expert_kind { MOX_ROUTED = 0, MOX_SHARED_EXPERT = 1, MOX_EXPERT_KINDS } mox_expert_kind;

/* Reads the caller's struct (struct_size.h) and checks every rule. Body of moxie_layer_config_check. */
moxie_status mox_config_read(const moxie_layer_config *config, moxie_layer_config *out, moxie_error *error);

/* Copies every array that a checked configuration points to into the arena, and lets the configuration point to the
 * copies (config_arrays.c). */
moxie_status mox_config_own_arrays(moxie_layer_config *config, mox_arena *arena, moxie_error *error);

/* E + Z: the experts that a token chooses among, and so the rows of the router and the entries of the routing's arrays.
 */
int64_t mox_config_candidates(const moxie_layer_config *config);

/* True when this rank adds what identity experts return: there are some, and the rank is the first, as for the shared
 * expert. `has_comm`: the ranks exchange rows, so each adds them for its own tokens. */
bool mox_config_adds_identity(const moxie_layer_config *config, bool has_comm);

/* True when this rank computes the shared expert: there is one, and the rank is the first. So the sum of all ranks'
 * outputs contains it once. With a comm each rank computes it for its own tokens. */
bool mox_config_computes_shared(const moxie_layer_config *config, bool has_comm);

/* Number of expert parallel ranks, and of tensor parallel ranks in each: 1 or more. */
int32_t mox_config_ep_ranks(const moxie_layer_config *config);
int32_t mox_config_tp_ranks(const moxie_layer_config *config);

/* The slot of each expert on this rank, -1 for experts of other ranks; and how many slots there are. */
moxie_status mox_config_map_experts(const moxie_layer_config *config, int32_t *slot_of, int32_t *slots,
                                    moxie_error *error);

/* The activation of one kind of expert. Per-expert arrays of the shared expert's are not for it. */
const moxie_activation *mox_config_activation(const moxie_layer_config *config, mox_expert_kind kind);

/* What fixes the form of a record: of a whole routed expert (tp_slice.h cuts it), of the shared expert. */
mox_record_shape mox_config_routed_shape(const moxie_layer_config *config);
mox_record_shape mox_config_shared_shape(const moxie_layer_config *config);

/* With options.comm: the comm is for ep_size * tp_size ranks, and this rank is the configuration's (config_comm.c). */
moxie_status mox_config_check_comm(const moxie_layer_config *config, const moxie_options *options, moxie_error *error);
/* options.token_layout is a layout. */
moxie_status mox_config_check_layout(const moxie_options *options, moxie_error *error);

/* options->comm, also where mox_options_read fails; NULL where the struct cannot be read. */
struct moxie_comm *mox_options_comm(const moxie_options *options);
/* The options with defaults filled in; `options` may be NULL. */
moxie_status mox_options_read(const moxie_options *options, moxie_options *out, moxie_error *error);

#endif
