/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter_files.h - LoRA adapters as directories: PEFT's adapter_config.json and adapter_model.safetensors.
 *
 *     adapter_config.c   alpha, rank; what is refused
 *     adapter_names.c    a tensor's name -> layer, matrix, expert, A or B
 *     adapter_files.c    tensors of one layer -> views of whole projections (moxie_lora)
 *
 * Names, after any prefix, of layer L; shapes of one expert are A [r, K], B [N, r]:
 *
 *     layers.L.~experts.e.gate_proj.lora_A.weight   one expert's; also w1, w3, w2 for gate, up, down
 *     layers.L.~experts.lora_A.weight               PEFT's of a 3-D parameter: A [E r, K], B [N, r E]. Of two, one is
 *     layers.L.~experts.base_layer.lora_A.weight    under base_layer; shapes say which is which
 *     layers.L.~experts.w1.lora_A.weight            SGLang's: [E, r, K], [E, N, r]; a first axis of 1 is shared
 *     layers.L.~experts.gate_up_proj.lora_A.weight  the same with gate and up rows in one B
 */
#ifndef MOX_CKPT_ADAPTER_FILES_H
#define MOX_CKPT_ADAPTER_FILES_H

#include <moxie/moxie_adapters.h>

#include "base/memory.h"
#include "ckpt/safetensors/tensors.h"

/* What adapter_config.json says. */
typedef struct mox_adapter_config {
    int64_t rank;
    double alpha;
    bool rank_stabilised; /* the scale is alpha / sqrt(r), else alpha / r */
} mox_adapter_config;

struct moxie_adapter_files {
    mox_tensor_set *set;
    mox_adapter_config config;
    mox_arena arena; /* factors that had to be copied */
};

/* The places of a layer's factors. NESTED: of a 3-D parameter, known by its shape alone. */
typedef enum mox_adapter_place {
    MOX_ADAPTER_GATE,
    MOX_ADAPTER_UP,
    MOX_ADAPTER_DOWN,
    MOX_ADAPTER_GATE_UP,
    MOX_ADAPTER_NESTED, /* directly under the experts */
    MOX_ADAPTER_NESTED_BASE,
    MOX_ADAPTER_PLACES
} mox_adapter_place;

typedef enum mox_adapter_part {
    MOX_ADAPTER_ELSEWHERE, /* of another layer, or of no expert */
    MOX_ADAPTER_FACTOR,
    MOX_ADAPTER_ROUTER,
    MOX_ADAPTER_SHARED_EXPERT,
    MOX_ADAPTER_UNKNOWN /* of the layer's experts, and not known */
} mox_adapter_part;

typedef struct mox_adapter_name {
    mox_adapter_place place;
    int64_t expert; /* -1: of all experts */
    bool is_b;
} mox_adapter_name;

moxie_status mox_adapter_config_read(const char *dir, mox_adapter_config *out, moxie_error *error);
/* Reads a tensor's name as one of layer `layer`; `out` is set for a factor. Immutable. */
mox_adapter_part mox_adapter_name_read(const char *name, int64_t layer, mox_adapter_name *out);

moxie_status mox_adapter_files_open(const char *dir, moxie_adapter_files **out, moxie_error *error);
void mox_adapter_files_close(moxie_adapter_files *files);
moxie_status mox_adapter_files_load(moxie_adapter_files *files, const moxie_layer_config *config, bool alternate,
                                    int64_t layer, moxie_lora *lora, moxie_error *error);

#endif
