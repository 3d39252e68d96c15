/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_adapter.h - what is wrong in a directory with a LoRA adapter (ckpt/adapter/adapter_files.h).
 *
 *     adapter_config.json    settings that cannot be read; its modules beside those that have tensors (lint_targets.c)
 *     each tensor            its name, its other half, its rank, its dtype
 *       |  options.model
 *     each layer             read as a run reads it, then compared with the sizes of the model's layer
 *       |  deep
 *     numbers                NaN, infinite; factors that are zero
 */
#ifndef MOX_LINT_ADAPTER_H
#define MOX_LINT_ADAPTER_H

#include "ckpt/adapter/adapter_files.h"
#include "ckpt/json.h"
#include "lint/lint_state.h"

/* One adapter. */
typedef struct mox_lint_adapter {
    mox_lint *lint;
    const char *config_path;
    json_t *json;              /* NULL: it cannot be read */
    mox_adapter_config config; /* rank 0: it cannot be read */
    bool readable;             /* as a run reads it */
} mox_lint_adapter;

bool mox_lint_has_file(const char *dir, const char *name);
/* Whether `dir` has an adapter's configuration, or its tensors, and no model's. */
bool mox_lint_is_adapter(const char *dir);
moxie_status mox_lint_check_adapter(mox_lint *lint, moxie_error *error);

/* target_modules and target_parameters beside the names of tensors. */
void mox_lint_targets(const mox_lint_adapter *adapter);
/* Module of a factor: the name up to ".lora_A" or ".lora_B"; 0: it is no factor. */
size_t mox_lint_module_length(const char *tensor);
/* Layer L of "..layers.L..."; -1: none. */
int64_t mox_lint_layer_of(const char *tensor);
/* Each layer of the model that options.model names. */
moxie_status mox_lint_beside_model(const mox_lint_adapter *adapter, moxie_error *error);

#endif
