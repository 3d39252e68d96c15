/* SPDX-License-Identifier: Apache-2.0
 *
 * select.h - chooses a kernel for every operation of a layer's chain, and records why better kernels were rejected.
 *
 *     [row_norm] -> [dense] -> topk -> permute
 *     quant_act -> expert_gemm w13 -> glu -> quant_act -> expert_gemm w2 -> [row_norm] -> combine
 *     '---- for the routed experts, then for the shared expert -------'
 *
 * A family is one kind of operation with a list of kernels, best first; the first kernel that admits the layer is
 * chosen. The two products of an expert read one record, so their kernels are chosen as a pair with one layout. The
 * lists are the back end's (backend/backend.h); this code is the same for all back ends.
 *
 * In the flow: config -> [select] -> layer (layouts), plan (kernels, steps).
 */
#ifndef MOX_LAYER_SELECT_H
#define MOX_LAYER_SELECT_H

#include "backend/cuda/device.h"
#include "layer/config/tp_slice.h"
#include "layer/plan/steps.h"

/* Kernels for one kind of expert; arrays of two are by mox_projection. */
typedef struct mox_expert_kernels {
    const mox_layout *layout; /* of the records that both products read; NULL: this rank has no such expert */
    const mox_kernel *quant[2], *product[2]; /* quant[MOX_W2]: NULL when product[MOX_W13] does its work */
    const mox_kernel *glu;                   /* NULL when product[MOX_W13] does its work */
    const mox_kernel *lora;                  /* adds adapters to both products; NULL: runs have none */
} mox_expert_kernels;

typedef struct mox_kernels {
    const mox_kernel *router_norm; /* of the router's input; NULL without one */
    const mox_kernel *router;      /* NULL without a router */
    const mox_kernel *topk;
    const mox_kernel *widen; /* family quant_act: converts the caller's logits to f32 where it wants them back */
    const mox_kernel *permute;
    mox_expert_kernels experts[MOX_EXPERT_KINDS];
    const mox_kernel *shared_gate; /* NULL without one */
    const mox_kernel *expert_norm; /* of routed experts' results; NULL without one */
    const mox_kernel *combine;
} mox_kernels;

/* Chooses kernels for a checked configuration and read options, and appends steps. `cut`: of routed experts,
 * `shared_cut`: of the shared one.
 * `layouts`, by mox_expert_kind, are those of existing records; NULL, or an entry that is NULL, leaves the layout open.
 * MOXIE_ERR_UNSUPPORTED names the family that has no kernel. */
moxie_status mox_select(const moxie_layer_config *config, const moxie_options *options, const mox_device *device,
                        mox_tp_cut cut, mox_tp_cut shared_cut, const mox_layout *const layouts[MOX_EXPERT_KINDS],
                        mox_kernels *out, mox_steps *steps, moxie_error *error);

#endif
