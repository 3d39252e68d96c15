/* SPDX-License-Identifier: Apache-2.0
 *
 * hf_quant_config.h - quantization_config in both directions: what it resolves for a format of hf_quant.def, and how
 * releases write it. Tensors decide which format a matrix has. The configuration only adds what tensors cannot tell:
 * GPTQ's convention for zero points, which FP6, how activations are quantized.
 *
 * The quantization configuration is searched, in this order, in quantization_config of config.json, in its text_config,
 * in compression_config of both, in hf_quant_config.json (Model Optimizer), and in quantize_config.json (old GPTQ).
 */
#ifndef MOX_CKPT_HF_QUANT_CONFIG_H
#define MOX_CKPT_HF_QUANT_CONFIG_H

#include "ckpt/families/tables.h"

/* A tensor below a matrix that changes its meaning (`text`: how), or that identifies a format without an entry (`text`:
 * which). */
typedef struct mox_hf_marker {
    const char *suffix; /* without "." or "_" */
    const char *text;
    const char *remedy;
} mox_hf_marker;
const mox_hf_marker *mox_hf_companion_at(int32_t i);
const mox_hf_marker *mox_hf_unsupported_at(int32_t i);

/* Jansson's iterators need mutable objects but change nothing. */
static inline json_t *mox_json_iterable(const json_t *object)
{
    return (json_t *)(uintptr_t)object;
}

/* The object with the quantization keys inside config.json, or NULL. Borrowed. */
const json_t *mox_quant_config_find(const json_t *config);
/* The same in hf_quant_config.json (under "quantization") or quantize_config.json (the whole file). */
const json_t *mox_quant_config_from_file(const json_t *file);
/* quant_method as written; "modelopt" or "gptq" when only other keys identify them; "" for none. */
const char *mox_quant_config_method(const json_t *quant_config);
/* True when the exclusion list of the configuration names this very module, not a parent or child: its name, its last
 * part, its class, a shell pattern or a regular expression ("re:"; GPTQ's "-:"). Expressions that are not understood
 * exclude nothing. */
bool mox_quant_config_excludes(const json_t *quant_config, const char *module);
/* The scalar keys as "bits 4, version gemv", for messages. Returns `buffer`. */
const char *mox_quant_config_describe(const json_t *quant_config, char *buffer, size_t size);

/* Formats whose group size comes from tensors: the group_size of the configuration becomes `default_group`, a hint for
 * groups that do not divide a row. */
void mox_hint_group(const json_t *quant_config, mox_hf_quant *format);

/* The resolve() functions of the formats, see mox_hf_quant. */
bool mox_resolve_fp8(const json_t *quant_config, const json_t *config, mox_hf_quant *format);
bool mox_resolve_fp8_block32(const json_t *quant_config, const json_t *config, mox_hf_quant *format);
bool mox_resolve_v4_block32(const json_t *quant_config, const json_t *config, mox_hf_quant *format);
bool mox_resolve_quark(const json_t *quant_config, const json_t *config, mox_hf_quant *format);
bool mox_resolve_ct_act(const json_t *quant_config, const json_t *config, mox_hf_quant *format);
bool mox_resolve_mx(const json_t *quant_config, const json_t *config, mox_hf_quant *format);
bool mox_resolve_modelopt(const json_t *quant_config, const json_t *config, mox_hf_quant *format);
bool mox_resolve_ct(const json_t *quant_config, const json_t *config, mox_hf_quant *format);
bool mox_resolve_awq(const json_t *quant_config, const json_t *config, mox_hf_quant *format);
bool mox_resolve_gptq(const json_t *quant_config, const json_t *config, mox_hf_quant *format);
bool mox_resolve_quark_int4(const json_t *quant_config, const json_t *config, mox_hf_quant *format);

/* The write_config() functions of the formats. */
json_t *mox_write_fp8_block(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore);
json_t *mox_write_fp8_block_ue8m0(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore);
json_t *mox_write_fp8_static(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore);
json_t *mox_write_fp8_dynamic(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore);
json_t *mox_write_mxfp8(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore);
json_t *mox_write_mxfp4(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore);
json_t *mox_write_modelopt(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore);
json_t *mox_write_ct(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore);
json_t *mox_write_quark(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore);
json_t *mox_write_ascend(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore);
json_t *mox_write_w4afp8(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore);
json_t *mox_write_awq(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore);
json_t *mox_write_gptq(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore);

#endif
