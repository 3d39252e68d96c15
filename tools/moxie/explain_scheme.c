/* SPDX-License-Identifier: Apache-2.0
 *
 * explain_scheme.c - one number for what vLLM's constructors call a group size, or a block of rows and columns.
 */
#include "explain_scheme.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

/* Block schemes name [rows, columns]; group schemes one number. */
static void set_group(moxie_scheme_args *scheme, const char *constructor, int64_t group)
{
    if (!strcmp(constructor, "gptq_marlin") || !strcmp(constructor, "awq_marlin")) {
        scheme->bits = 4;
        scheme->group_size = (int32_t)(group ? group : 128);
    } else if (!strcmp(constructor, "int4_w4a16") || !strcmp(constructor, "int8_w8a16")) {
        scheme->block[0] = 1;
        scheme->block[1] = (int32_t)(group ? group : 128);
    } else if (!strcmp(constructor, "ocp_mx")) {
        scheme->quant_dtype = "mxfp4";
    } else if (group > 0) {
        scheme->block[0] = scheme->block[1] = (int32_t)group;
    }
}

static moxie_status make(const char *constructor, int64_t group, moxie_scheme *out, moxie_error *error)
{
    moxie_scheme_args args = MOXIE_SCHEME_ARGS_INIT;
    set_group(&args, constructor, group);
    return moxie_scheme_make(constructor, &args, out, error);
}

/* Whether the constructor makes the same groups with this one. */
static bool same(const moxie_scheme *scheme, const char *constructor, int64_t group)
{
    moxie_scheme other = MOXIE_SCHEME_INIT;
    return make(constructor, group, &other, NULL) == MOXIE_OK && scheme->w13.group_rows == other.w13.group_rows &&
           scheme->w13.group_cols == other.w13.group_cols && scheme->a13.group_cols == other.a13.group_cols;
}

moxie_status explain_scheme_make(const char *constructor, int64_t group, moxie_scheme *out, moxie_error *error)
{
    const moxie_status status = make(constructor, group, out, error);
    if (status != MOXIE_OK && group) {
        const size_t used = strlen(error->text);
        snprintf(error->text + used, sizeof error->text - used, " (--group %lld makes blocks: leave it out)",
                 (long long)group);
    }
    if (status != MOXIE_OK || !group)
        return status;
    const bool usual = group > 0 && !same(out, constructor, group == 64 ? 32 : 64); /* it could be another */
    if (same(out, constructor, 0) && !usual)
        return cli_error(MOXIE_ERR_ARGUMENT, error, "", "%s has groups of its own: leave --group %lld out", constructor,
                         (long long)group);
    return MOXIE_OK;
}
