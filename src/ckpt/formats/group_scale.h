/* SPDX-License-Identifier: Apache-2.0
 *
 * group_scale.h - scale and zero point of a group of weights, by the rule of a checkpoint format.
 */
#ifndef MOX_CKPT_GROUP_SCALE_H
#define MOX_CKPT_GROUP_SCALE_H

#include "ckpt/families/tables.h"

typedef struct mox_group_rule {
    moxie_quant quant; /* of weights, group extents resolved */
    const mox_format *element;
    float largest;     /* largest code that the file can store: fewer bits than the element's where readers widen */
    float lowest_zero; /* the lowest zero point that the file can store */
    bool symmetric;    /* there are zero points, and all are the middle of the codes */
} mox_group_rule;

/* The rule of a format for rows of `cols` weights. */
moxie_status mox_group_rule_of(const mox_hf_quant *format, int64_t cols, mox_group_rule *out, moxie_error *error);
/* `low` <= 0 <= `high`: smallest and largest weight. A format with zero points spreads its codes over both; *zero is
 * decoded, without the format's zero_add. `global` as in the quant, 1 when it has none. */
void mox_group_scale(const mox_group_rule *rule, float low, float high, float global, float *scale, float *zero);

#endif
