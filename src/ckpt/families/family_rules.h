/* SPDX-License-Identifier: Apache-2.0
 *
 * family_rules.h - rules of config.json that only one family has, and that no field of mox_family can say:
 * families.def and families_2026.def point to them.
 *
 *     mox_adjust_...   config.json -> sizes, activation, routing of one layer; a value whose meaning is not known here
 *                      is refused, since the numbers would be wrong without a word
 *     mox_write_...    the same keys into the config.json of a synthetic checkpoint
 */
#ifndef MOX_CKPT_FAMILY_RULES_H
#define MOX_CKPT_FAMILY_RULES_H

#include "ckpt/families/tables.h"

/* Sets dims->bias_alt: whether config.json says that the model sees images, so that its routers have a second bias. */
moxie_status mox_config_bias_alt(const mox_family *family, const json_t *config, int64_t layer, const char *file,
                                 mox_dims *dims, moxie_error *error);

#define MOX_ADJUST(name)                                                                                               \
    moxie_status mox_adjust_##name(const json_t *config, const char *file, mox_dims *dims, int64_t layer,              \
                                   moxie_layer_config *out, moxie_error *error)
MOX_ADJUST(longcat);
MOX_ADJUST(laguna);
MOX_ADJUST(hy_v3);
MOX_ADJUST(bailing);
MOX_ADJUST(bailing_hybrid);
MOX_ADJUST(cohere2_moe);
MOX_ADJUST(smallthinker);
MOX_ADJUST(aria);
MOX_ADJUST(kimi_k3);
MOX_ADJUST(dots3_note);

bool mox_write_longcat(json_t *config, const mox_dims *dims);
bool mox_write_laguna(json_t *config, const mox_dims *dims);
bool mox_write_hy_v3(json_t *config, const mox_dims *dims);
bool mox_write_bailing(json_t *config, const mox_dims *dims);
bool mox_write_kimi_k3(json_t *config, const mox_dims *dims);
bool mox_write_dots3_note(json_t *config, const mox_dims *dims);
bool mox_write_deepseek_v41(json_t *config, const mox_dims *dims);
bool mox_write_cohere2_moe(json_t *config, const mox_dims *dims);

#endif
