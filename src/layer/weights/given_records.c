/* SPDX-License-Identifier: Apache-2.0
 *
 * given_records.c - checks records that were packed before against the shapes and slots of a layer (given_records.h).
 */
#include "layer/weights/given_records.h"

static moxie_status check_bytes(const mox_layout *layout, const mox_record_shape *shape, uint64_t given,
                                const char *what, moxie_error *error)
{
    uint64_t bytes = 0;
    if (layout == NULL)
        return MOXIE_OK;
    MOX_FAIL_IF(!layout->record_bytes(shape, &bytes) || bytes != given, MOXIE_ERR_MISMATCH, error,
                "the %s has records of %llu bytes; the configuration needs %llu in layout %s", what,
                (unsigned long long)given, (unsigned long long)bytes, layout->name);
    return MOXIE_OK;
}

moxie_status mox_layer_check_given(const moxie_layer *layer, const mox_given_records *given, moxie_error *error)
{
    MOX_TRY(check_bytes(layer->layouts[MOX_ROUTED], &layer->routed_shape, given->bytes[MOX_ROUTED], "file of experts",
                        error));
    MOX_TRY(check_bytes(layer->layouts[MOX_SHARED_EXPERT], &layer->shared_shape, given->bytes[MOX_SHARED_EXPERT],
                        "shared expert", error));
    for (int32_t s = 0; s < layer->slots; s++)
        MOX_FAIL_IF(given->routed[layer->expert_of[s]] == NULL, MOXIE_ERR_MISMATCH, error,
                    "expert %lld belongs to rank %d of %d, but the file does not have it: use the file of that share",
                    (long long)layer->expert_of[s], (int)layer->config.ep_rank, (int)layer->config.ep_size);
    MOX_FAIL_IF(layer->layouts[MOX_SHARED_EXPERT] != NULL && given->shared == NULL, MOXIE_ERR_MISMATCH, error,
                "the file does not have the shared expert of the configuration");
    return MOXIE_OK;
}
