/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_quant_config.c - a quantization configuration in a separate file, against every row of hf_quant.def.
 *
 * Promise: whatever the text says, each row with its values filled in is a quantization that the library knows.
 */
#include "fuzz_targets.h"

#include "ckpt/model/model.h"

void mox_fuzz_quant_config(const uint8_t *data, uint64_t size)
{
    moxie_error error = { 0 };
    const moxie_status status = mox_quant_config_check_text((const char *)data, size, &error);
    FUZZ_CHECK(status == MOXIE_OK || error.text[0]);
    FUZZ_CHECK(status == MOXIE_OK || status == MOXIE_ERR_FORMAT || status == MOXIE_ERR_UNSUPPORTED);
}
