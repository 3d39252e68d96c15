/* SPDX-License-Identifier: Apache-2.0
 *
 * config_reader.h - one layer's numbers while they are read from config.json (family_read.c, config_optional.c).
 */
#ifndef MOX_CKPT_CONFIG_READER_H
#define MOX_CKPT_CONFIG_READER_H

#include "ckpt/families/family_config.h"

typedef struct mox_config_reader {
    const mox_family *family;
    const json_t *config;
    const char *file;
    int64_t layer;
    moxie_error *error;
} mox_config_reader;

/* The first of `keys` that exists. *found is its name, NULL when none does. */
moxie_status mox_config_first_int(const mox_config_reader *r, const char *const *keys, int n_keys, int64_t *out,
                                  const char **found);

/* A key that is null where the model's code needs a value; `none` says what to write when nothing is meant. */
moxie_status mox_config_refuse_null(const mox_config_reader *r, const char *key, const char *none);
/* Groups of experts: n_group and topk_group of `d`; both 0 or 1 when there are none. */
moxie_status mox_config_groups(const mox_config_reader *r, mox_dims *d);
/* norm_topk of `d`. */
moxie_status mox_config_norm(const mox_config_reader *r, mox_dims *d);
/* routed_scale, swiglu_limit and swiglu_alpha of `d`. */
moxie_status mox_config_factors(const mox_config_reader *r, mox_dims *d);

#endif
