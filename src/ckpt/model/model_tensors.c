/* SPDX-License-Identifier: Apache-2.0
 *
 * model_tensors.c - names of the tensors that store the routed experts of one layer.
 *
 *     prefix + "mlp.experts." + digits + ".up_proj"    then the end, '.' or '_': codes, scales, g_idx, weight_shape ...
 *     prefix + "mlp.experts.gate_up_proj"              likewise: a stack with "_blocks", "_scales", "_bias"
 *
 * This includes more than the views need: restoring a checkpoint needs every companion tensor.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "ckpt/model/model.h"
#include "ckpt/model/model_scan.h"

static bool is_part_of(const char *name_template, const char *rest)
{
    if (!name_template)
        return false;
    const char *hole = strstr(name_template, "{e}"), *tail = hole ? hole + 3 : "";
    const size_t head = hole ? (size_t)(hole - name_template) : strlen(name_template);
    if (strncmp(rest, name_template, head) != 0)
        return false;
    rest += head;
    if (hole && !isdigit((unsigned char)*rest))
        return false;
    while (hole && isdigit((unsigned char)*rest))
        rest++;
    if (strncmp(rest, tail, strlen(tail)) != 0)
        return false;
    rest += strlen(tail);
    return *rest == 0 || *rest == '.' || *rest == '_';
}

static const mox_names *names_of(const moxie_model *model, const mox_layer_place *place)
{
    return place->other ? &model->family->other_names : &model->family->names;
}

static bool is_experts(const mox_names *names, const char *rest)
{
    const char *const matrices[] = { names->gate,           names->up,         names->down,
                                     names->fused_gate_up,  names->fused_down, names->fused_gate_up_bias,
                                     names->fused_down_bias };
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++)
        if (is_part_of(matrices[i], rest))
            return true;
    return false;
}

bool mox_model_is_expert_tensor(const mox_names *names, const char *rest)
{
    static const char word[] = "experts.";
    const char *down = names->down ? names->down : names->fused_down;
    const char *module = down ? strstr(down, word) : NULL;
    if (module && strncmp(down, rest, (size_t)(module - down) + sizeof word - 1) == 0)
        return true;
    return is_experts(names, rest);
}

moxie_status mox_model_visit_experts(const moxie_model *model, int64_t layer, moxie_tensor_fn visit, void *user,
                                     moxie_error *error)
{
    const mox_layer_place *place = NULL;
    MOX_TRY(mox_model_find_place(model, layer, &place, error));
    MOX_TRY(mox_tensor_set_check(model->set, error));
    const char *prefix = model->family->prefixes[place->prefix];
    for (int64_t i = 0; i < mox_tensor_set_count(model->set); i++) {
        const mox_file_tensor *tensor = mox_tensor_set_at(model->set, i);
        int64_t found = -1;
        const char *rest = mox_model_after_prefix(prefix, tensor->name, &found);
        if (!rest || found != layer || !is_experts(names_of(model, place), rest))
            continue;
        MOX_TRY(mox_file_tensor_check(model->set, tensor, error));
        MOX_FAIL_IF(visit(user, tensor->name, &tensor->view) != 0, MOXIE_ERR_TIMEOUT, error,
                    "the caller stopped at tensor %s", tensor->name);
    }
    return MOXIE_OK;
}

moxie_status mox_model_expert_prefix(const moxie_model *model, int64_t layer, char *buffer, size_t size,
                                     moxie_error *error)
{
    const mox_layer_place *place = NULL;
    MOX_TRY(mox_model_find_place(model, layer, &place, error));
    const mox_names *names = names_of(model, place);
    const char *down = names->down ? names->down : names->fused_down;
    const char *hole = strstr(down, "{e}"), *dot = strrchr(down, '.');
    char head[128], full[300];
    snprintf(head, sizeof head, "%.*s", (int)((hole ? hole : dot ? dot + 1 : down) - down), down);
    const bool fits = mox_expand_name(full, sizeof full, model->family->prefixes[place->prefix], head, layer, 0) &&
                      strlen(full) < size;
    MOX_FAIL_IF(!fits, MOXIE_ERR_MEMORY, error, "%zu bytes are too few for the names of layer %lld", size,
                (long long)layer);
    strcpy(buffer, full);
    return MOXIE_OK;
}
