/* SPDX-License-Identifier: Apache-2.0
 *
 * select.h - which kernel of each list a configuration gets, and why better ones were refused.
 *
 *     [dense] -> topk -> permute -> (quant_act -> expert_gemm w13 -> glu -> quant_act -> expert_gemm w2)
 *             -> (the same for the shared expert) -> combine
 *
 * A family's kernels are asked in list order, best first. The two products of an expert share a record, so their
 * kernels are chosen as a pair with one layout. The lists are the back end's (backend/backend.h); choosing is the same
 * for all.
 */
#ifndef MOX_LAYER_SELECT_H
#define MOX_LAYER_SELECT_H

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "base/memory.h"
#include "layer/config/config.h"

/* Routed experts or the shared one. */
typedef enum mox_expert_kind { MOX_ROUTED = 0, MOX_SHARED_EXPERT = 1, MOX_EXPERT_KINDS } mox_expert_kind;

/* Kernels for the experts of one kind. */
typedef struct mox_expert_kernels {
    const mox_layout *layout; /* of the records that both products read; NULL: this rank has no such expert */
    const mox_kernel *quant[2], *product[2]; /* by mox_projection; quant[MOX_W2]: NULL when product[MOX_W13] does it */
    const mox_kernel *glu;                   /* NULL when product[MOX_W13] does it */
} mox_expert_kernels;

typedef struct mox_kernels {
    const mox_kernel *router; /* NULL without a router */
    const mox_kernel *topk;
    const mox_kernel *widen; /* family quant_act: logits that were given, to f32 for the caller */
    const mox_kernel *permute;
    mox_expert_kernels experts[MOX_EXPERT_KINDS];
    const mox_kernel *shared_gate; /* NULL without one */
    const mox_kernel *combine;
} mox_kernels;

/* Which product a step of a plan is; MOX_NO_PRODUCT: another step, or a refused one. */
typedef struct mox_step_product {
    int8_t expert_kind, projection;
} mox_step_product;
#define MOX_NO_PRODUCT ((mox_step_product) { -1, -1 })

/* The plan as it will be shown: chosen and refused kernels. Strings live in the arena. */
typedef struct mox_steps {
    mox_arena arena;
    moxie_plan_step *items;
    mox_step_product *products; /* [capacity], one an item */
    int32_t count, capacity;
} mox_steps;

/* Chooses for a checked configuration and read options. `layouts` fix those of records that exist already, by
 * mox_expert_kind; NULL, or NULL in it, leaves them open. Steps are appended. MOXIE_ERR_UNSUPPORTED names the family
 * that has no kernel. */
moxie_status mox_select(const moxie_layer_config *config, const moxie_options *options, const mox_device *device,
                        const mox_layout *const layouts[MOX_EXPERT_KINDS], mox_kernels *out, mox_steps *steps,
                        moxie_error *error);

void mox_steps_free(mox_steps *steps);

#endif
