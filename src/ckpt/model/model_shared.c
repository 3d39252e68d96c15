/* SPDX-License-Identifier: Apache-2.0
 *
 * model_shared.c - whether a layer has a shared expert, and how wide it is. The tensors decide:
 *
 *     config.json            tensors of shared_up [S, H]      shared expert
 *     no key (-1)            absent                           none
 *     no key (-1)            S rows                           of width S: config classes leave out their defaults
 *     0                      absent                           none
 *     S                      S rows                           of width S
 *     0 or no key            0 rows                           none: transformers saves them for a width of 0
 *     anything else                                           an error
 *
 * S is not a dimension of every tensor: a format may pack elements into words. So each dimension, times each number of
 * elements that a word can hold, is tried until a format fits; since H is known, only one value can fit. In a family
 * where shared_up is half of another matrix, shared_down [H, S] is asked instead. Where the tensors are numbered,
 * "shared_experts.0.up_proj" and on, S is the sum of their widths.
 */
#include "ckpt/model/model_shared.h"

#include <stdio.h>
#include <string.h>

#define NAME_SIZE 320

/* The tensor that holds the codes of a matrix in some format; NULL: there is none. */
static const mox_file_tensor *codes_of(const mox_matcher *matcher, const char *name, int32_t format)
{
    char full[NAME_SIZE];
    const mox_part *parts = mox_hf_quant_at(format)->parts;
    for (int p = 0; p < MOX_MAX_PARTS && parts[p].role != MOX_PART_NONE; p++) {
        const int length = snprintf(full, sizeof full, "%s%s", name, parts[p].suffix);
        if (parts[p].role == MOX_PART_CODES && length > 0 && (size_t)length < sizeof full)
            return mox_tensor_set_find(matcher->set, full);
    }
    return NULL;
}

/* S of the matrix `name`, which is [S, H] (up) or [H, S], and the tensor that says so; 0 when no format fits. */
static moxie_status stored_width(const mox_layer_reader *reader, const char *name, bool up, int64_t *out,
                                 const mox_file_tensor **tensor)
{
    const mox_matcher *matcher = &reader->matcher;
    const int64_t hidden = reader->dims.hidden;
    *out = 0;
    for (int32_t f = 0; f < matcher->n_formats; f++) {
        const mox_file_tensor *codes = codes_of(matcher, name, f);
        if (!codes)
            continue;
        *tensor = codes;
        for (int32_t axis = 0; axis < codes->view.rank; axis++)
            for (int64_t in_word = 1; in_word <= 32; in_word *= 2) {
                mox_match match;
                const int64_t width = codes->view.shape[axis] * in_word;
                const mox_wanted wanted = { .name = name, .n = up ? width : hidden, .k = up ? hidden : width };
                const moxie_status status =
                    width > 0 ? mox_match_matrix(matcher, &wanted, &match, NULL) : MOXIE_ERR_MISMATCH;
                MOX_FAIL_IF(status == MOXIE_ERR_MEMORY, status, reader->error, "no memory to detect formats");
                if (status == MOXIE_OK) {
                    *out = width;
                    return MOXIE_OK;
                }
            }
    }
    return MOXIE_OK;
}

static bool has_no_elements(const mox_matcher *matcher, const char *name)
{
    for (int32_t f = 0; f < matcher->n_formats; f++) {
        const mox_file_tensor *codes = codes_of(matcher, name, f);
        if (codes && codes->bytes == 0)
            return true;
    }
    return false;
}

/* There is no shared expert. A gate that would scale it has nothing to do. */
static moxie_status none(mox_layer_reader *reader)
{
    const mox_file_tensor *gate = mox_layer_find(reader, reader->names->shared_expert_gate);
    if (gate)
        mox_layer_mark(reader, gate);
    reader->dims.shared_intermediate = 0;
    return MOXIE_OK;
}

/* The key of config.json that gives the width, and its value: "n_shared_experts 2 (a width of 2816)". */
static const char *describe_key(const mox_layer_reader *reader, char *buffer, size_t size)
{
    const mox_family *family = reader->model->family;
    const int64_t width = reader->dims.shared_intermediate;
    const char *key = "the number of shared experts";
    for (int i = 3; i >= 0; i--)
        if (family->key_shared[i] && mox_config_find(reader->model->config, family->key_shared[i]))
            key = family->key_shared[i];
    if (family->shared_is_count && reader->dims.intermediate > 0)
        snprintf(buffer, size, "%s is %lld, a shared expert of width %lld", key,
                 (long long)(width / reader->dims.intermediate), (long long)width);
    else
        snprintf(buffer, size, "%s is %lld", key, (long long)width);
    return buffer;
}

static moxie_status contradiction(const mox_layer_reader *reader, const char *name, const mox_file_tensor *tensor)
{
    char said[160], escaped[200], shape[96];
    const char *file = reader->model->config_path;
    describe_key(reader, said, sizeof said);
    if (!tensor)
        return mox_fail_file(MOXIE_ERR_MISMATCH, reader->error, file, -1, "%s, but no tensor of %s exists", said,
                             mox_escape(escaped, sizeof escaped, name));
    return mox_fail_file(MOXIE_ERR_MISMATCH, reader->error, file, -1,
                         "%s, but %s is %s %s: correct the key, or remove it and the tensors decide", said,
                         mox_escape(escaped, sizeof escaped, tensor->name), tensor->file_dtype,
                         mox_shape_text(tensor->view.shape, tensor->view.rank, shape, sizeof shape));
}

moxie_status mox_shared_numbered_name(const mox_layer_reader *reader, const char *name, char *buffer, size_t size)
{
    const char *dot = strrchr(name, '.');
    const int length = dot ? snprintf(buffer, size, "%.*s.{e}%s", (int)(dot - name), name, dot) : -1;
    if (length > 0 && (size_t)length < size)
        return MOXIE_OK;
    return mox_fail_file(MOXIE_ERR_FORMAT, reader->error, reader->model->config_path, -1,
                         "the name %s of a shared expert is too long to be numbered", name);
}

const char *mox_shared_gate_name(const mox_layer_reader *reader)
{
    char name[256];
    const char *saved = reader->model->family->shared_gate_saved;
    const bool is_saved = saved && mox_expand_name(name, sizeof name, reader->prefix, saved, reader->layer, -1) &&
                          mox_match_exists(&reader->matcher, name, false);
    return is_saved ? saved : reader->names->shared_gate;
}

int64_t mox_shared_numbered(const mox_layer_reader *reader)
{
    char template[160], name[256];
    const char *matrix = reader->names->shared_up ? reader->names->shared_up : reader->names->shared_down;
    int64_t count = 0;
    if (!matrix || reader->names->shared_gate_up ||
        mox_shared_numbered_name(reader, matrix, template, sizeof template) != MOXIE_OK)
        return 0;
    while (count < MOX_MAX_NUMBERED &&
           mox_expand_name(name, sizeof name, reader->prefix, template, reader->layer, count) &&
           mox_match_exists(&reader->matcher, name, false))
        count++;
    return count;
}

moxie_status mox_find_shared_width(mox_layer_reader *reader)
{
    char name[256];
    const mox_file_tensor *tensor = NULL;
    int64_t *width = &reader->dims.shared_intermediate;
    const bool up = reader->names->shared_up != NULL;
    const char *matrix = up ? reader->names->shared_up : reader->names->shared_down;
    if (!matrix && *width > 0)
        return contradiction(reader, "a shared expert", NULL);
    if (!matrix) {
        *width = 0;
        return MOXIE_OK;
    }
    const int64_t numbered = mox_shared_numbered(reader);
    char template[160];
    if (numbered > 0)
        MOX_TRY(mox_shared_numbered_name(reader, matrix, template, sizeof template));
    MOX_TRY(mox_layer_name(reader, numbered > 0 ? template : matrix, numbered > 0 ? 0 : -1, name, sizeof name));
    if (!mox_match_exists(&reader->matcher, name, false)) {
        if (*width > 0)
            return contradiction(reader, name, NULL);
        *width = 0;
        return MOXIE_OK;
    }
    if (*width <= 0 && has_no_elements(&reader->matcher, name))
        return none(reader);
    int64_t stored = 0;
    MOX_TRY(stored_width(reader, name, up, &stored, &tensor));
    if (numbered > 0)
        stored *= numbered;
    if (stored > 0 && *width >= 0 && *width != stored)
        return contradiction(reader, name, tensor);
    /* No format fits: mox_read_shared() says why, for the width that config.json gives or that an expert has. */
    *width = stored > 0 ? stored : *width > 0 ? *width : reader->dims.intermediate;
    return MOXIE_OK;
}
