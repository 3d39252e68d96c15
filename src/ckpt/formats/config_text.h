/* SPDX-License-Identifier: Apache-2.0
 *
 * config_text.h - values of a quantization configuration, for the resolve() functions of the formats.
 */
#ifndef MOX_CKPT_CONFIG_TEXT_H
#define MOX_CKPT_CONFIG_TEXT_H

#include <string.h>

#include "ckpt/formats/hf_quant_config.h"

static inline bool is(const char *text, const char *want)
{
    return text && strcmp(text, want) == 0;
}

static inline const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* "modelopt" is also spelled "modelopt_fp4" and "modelopt_mixed". */
static inline bool is_method(const json_t *quant_config, const char *method)
{
    const char *found = mox_quant_config_method(quant_config);
    return is(found, method) || (is(method, "modelopt") && strncmp(found, "modelopt_", 9) == 0);
}

/* A group or block size from a file; 0 when it is absent or impossible for a matrix. */
static inline int32_t extent_of(const json_t *value)
{
    const json_int_t number = json_integer_value(value);
    return json_is_integer(value) && number > 0 && number <= 1 << 20 ? (int32_t)number : 0;
}

#endif
