/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_gguf_model.c - a GGUF file as a model: architecture, sizes and routing of its metadata, experts of its tensors.
 *
 * Promises: a layer that loads has a configuration which the library accepts, and weights of its sizes, whose last
 * element can be read; errors have words.
 */
#include "fuzz_scratch.h"

#include <moxie/moxie_ckpt.h>

static void use_layer(const moxie_model *model, int64_t index)
{
    moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
    moxie_model_layer *loaded = NULL;
    moxie_error error = { 0 };
    if (moxie_model_describe_layer(model, index, &info, &error) != MOXIE_OK) {
        FUZZ_CHECK(error.text[0]);
        return;
    }
    FUZZ_CHECK(info.format && info.experts > 0 && info.experts <= MOXIE_MAX_EXPERTS);
    if (moxie_model_load_layer(model, info.layer, &loaded, &error) == MOXIE_OK) {
        const moxie_layer_config *config = moxie_model_layer_config(loaded);
        FUZZ_CHECK(moxie_layer_config_check(config, &error) == MOXIE_OK);
        FUZZ_CHECK(config->experts == info.experts && moxie_model_layer_weights(loaded));
    } else {
        FUZZ_CHECK(error.text[0]);
    }
    moxie_model_layer_free(loaded);
}

void mox_fuzz_gguf_model(const uint8_t *data, uint64_t size)
{
    moxie_model *model = NULL;
    moxie_model_info info = MOXIE_MODEL_INFO_INIT;
    moxie_error error = { 0 };
    fuzz_write("model.gguf", data, size);
    if (moxie_model_open(fuzz_path("model.gguf"), NULL, &model, &error) != MOXIE_OK) {
        FUZZ_CHECK(error.text[0] && !model);
        return;
    }
    FUZZ_CHECK(moxie_model_get_info(model, &info, &error) == MOXIE_OK);
    for (int64_t i = 0; i < info.n_layers; i++)
        use_layer(model, i);
    moxie_model_close(model);
}
