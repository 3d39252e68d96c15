/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_config.c - config.json: the model's family, its sizes, and the routing and quantization of some layers.
 *
 * Promise: a text is accepted, or rejected with an error text; nothing else happens.
 */
#include "fuzz_targets.h"

#include "ckpt/model/model.h"

void mox_fuzz_config(const uint8_t *data, uint64_t size)
{
    moxie_error error = { 0 };
    const moxie_status status = mox_model_config_check_text((const char *)data, size, &error);
    FUZZ_CHECK(status == MOXIE_OK || error.text[0]);
    FUZZ_CHECK(status == MOXIE_OK || status == MOXIE_ERR_FORMAT || status == MOXIE_ERR_UNSUPPORTED ||
               status == MOXIE_ERR_MISMATCH);
}
