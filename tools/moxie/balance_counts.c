/* SPDX-License-Identifier: Apache-2.0
 *
 * balance_counts.c - the loads of experts, from a file:
 *
 *     a routing trace  its choices (balance_trace.c)
 *     *.safetensors    topk_ids [T,K] i32 or i64, as `moxie run -o` writes them: one layer, each choice counts 1
 *     JSON             [layers, experts]; or {"logical_count": ...} of SGLang, with or without a dimension of steps; or
 *                      what `moxie run --json` prints, whose topk_ids are counted
 *     anything else    text: a line for each layer, numbers between commas or white space; # begins a comment
 */
#include "balance.h"

#include <moxie/moxie_trace.h>

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- ids ------------------------------------------------------------------------------------------- */

/* `found`: what the file says of the number of experts, for a message. */
static moxie_status begin_ids(const char *path, int64_t experts, const char *found, balance_counts *out,
                              moxie_error *error)
{
    if (experts < 1 || experts > MOXIE_MAX_EXPERTS)
        return cli_error(MOXIE_ERR_FORMAT, error, path,
                         "its topk_ids are to be counted for each expert, and the number of experts is unknown: %s; "
                         "give --experts N, from 1 to %d",
                         found, MOXIE_MAX_EXPERTS);
    *out = (balance_counts) { 1, (int32_t)experts, calloc((size_t)experts, sizeof *out->at) };
    return out->at ? MOXIE_OK : cli_error(MOXIE_ERR_MEMORY, error, path, "no memory for %d experts", out->experts);
}

/* Ids of zero experts follow those of experts, and are no load. */
static moxie_status count_id(const char *path, int64_t i, int64_t id, int64_t zero_experts, balance_counts *out,
                             moxie_error *error)
{
    if (id >= out->experts + zero_experts)
        return cli_error(MOXIE_ERR_FORMAT, error, path,
                         "number %lld of topk_ids is expert %lld, and there are %lld experts: are --experts and "
                         "--zero-experts right?",
                         (long long)i, (long long)id, (long long)(out->experts + zero_experts));
    if (id >= 0 && id < out->experts)
        out->at[id]++;
    return MOXIE_OK;
}

static moxie_status count_tensor(const char *path, const moxie_tensor *ids, int64_t zero_experts, balance_counts *out,
                                 moxie_error *error)
{
    const bool wide = ids->dtype == MOXIE_I64;
    if ((!wide && ids->dtype != MOXIE_I32) || ids->rank != 2)
        return cli_error(MOXIE_ERR_FORMAT, error, path,
                         "topk_ids must be [T,K] of i32 or i64; it has rank %d and dtype %s", ids->rank,
                         moxie_dtype_name(ids->dtype));
    moxie_status status = MOXIE_OK;
    for (int64_t i = 0; status == MOXIE_OK && i < ids->shape[0] * ids->shape[1]; i++) {
        int64_t id = 0;
        int32_t narrow = 0;
        memcpy(wide ? (void *)&id : (void *)&narrow, (const char *)ids->data + i * (wide ? 8 : 4), wide ? 8 : 4);
        status = count_id(path, i, wide ? id : narrow, zero_experts, out, error);
    }
    return status;
}

/* By router_logits [T, experts + zero experts] of the file; 0 if that fails. What they say goes to `found`. */
static int64_t experts_of_logits(const moxie_tensor_file *file, int64_t zero_experts, char *found, size_t size)
{
    moxie_tensor logits;
    moxie_error absent;
    if (moxie_tensor_file_find(file, "router_logits", &logits, &absent) != MOXIE_OK || logits.rank != 2) {
        snprintf(found, size, "the file has no router_logits [T, experts]");
        return 0;
    }
    snprintf(found, size, "router_logits have %lld columns, and %lld experts are zero experts",
             (long long)logits.shape[1], (long long)zero_experts);
    return logits.shape[1] <= MOXIE_MAX_EXPERTS ? logits.shape[1] - zero_experts : 0;
}

/* `experts` may be 0. */
static moxie_status read_tensors(const char *path, int64_t experts, int64_t zero_experts, balance_counts *out,
                                 moxie_error *error)
{
    moxie_tensor_file *file = NULL;
    moxie_tensor ids;
    char found[120] = "";
    moxie_status status = moxie_tensor_file_open(path, 0, &file, error);
    if (status == MOXIE_OK)
        status = moxie_tensor_file_find(file, "topk_ids", &ids, error);
    if (status == MOXIE_ERR_MISMATCH)
        cli_error(status, error, path, "there is no tensor \"topk_ids\"; a file of `moxie run -o` has one");
    if (status == MOXIE_OK && experts == 0)
        experts = experts_of_logits(file, zero_experts, found, sizeof found);
    if (status == MOXIE_OK)
        status = begin_ids(path, experts, found, out, error);
    if (status == MOXIE_OK)
        status = count_tensor(path, &ids, zero_experts, out, error);
    moxie_tensor_file_close(file);
    return status;
}

/* ---- JSON ------------------------------------------------------------------------------------------ */

static moxie_status count_json_ids(const json_t *root, const char *path, int64_t experts, int64_t zero_experts,
                                   balance_counts *out, moxie_error *error)
{
    const json_t *told = json_object_get(root, "experts");
    if (experts == 0 && json_is_integer(told) && json_integer_value(told) <= MOXIE_MAX_EXPERTS)
        experts = json_integer_value(told);
    const json_t *without_weights = json_object_get(root, "zero_experts");
    if (zero_experts == 0 && json_is_integer(without_weights))
        zero_experts = json_integer_value(without_weights);
    if (zero_experts < 0 || zero_experts > MOXIE_MAX_EXPERTS)
        return cli_error(MOXIE_ERR_FORMAT, error, path, "it has %lld zero experts; there are 0 to %d",
                         (long long)zero_experts, MOXIE_MAX_EXPERTS);
    const json_t *values = json_object_get(root, "topk_ids");
    moxie_status status = begin_ids(path, experts, "no number \"experts\" is beside them", out, error);
    /* Flat, and longer than a table may be. */
    for (size_t i = 0; status == MOXIE_OK && i < json_array_size(values); i++) {
        if (!json_is_integer(json_array_get(values, i)))
            status = cli_error(MOXIE_ERR_FORMAT, error, path, "number %zu of topk_ids is no whole number", i);
        else
            status =
                count_id(path, (int64_t)i, json_integer_value(json_array_get(values, i)), zero_experts, out, error);
    }
    return status;
}

static moxie_status read_json(const char *path, const char *text, uint64_t size, int64_t experts, int64_t zero_experts,
                              balance_counts *out, moxie_error *error)
{
    json_t *root = NULL;
    balance_table t = { .at = NULL };
    moxie_status status = cli_json_parse(text, (size_t)size, path, &root, error);
    if (status != MOXIE_OK)
        return status;
    const json_t *counts = json_is_array(root) ? root : json_object_get(root, "logical_count");
    if (json_object_get(root, "topk_ids"))
        status = count_json_ids(root, path, experts, zero_experts, out, error);
    else if (json_object_get(root, "physical_to_logical_map"))
        status = cli_error(MOXIE_ERR_FORMAT, error, path,
                           "it holds a map, and loads of experts are needed: a map of today goes to --map");
    else if (!counts)
        status = cli_error(MOXIE_ERR_FORMAT, error, path,
                           "it has no loads: give an array [layers, experts], or an object with \"logical_count\" or "
                           "\"topk_ids\"");
    else
        status = balance_table_read(counts, path, json_is_array(root) ? "the array" : "logical_count", &t, error);
    if (status == MOXIE_OK && t.at)
        *out = (balance_counts) { (int32_t)t.rows, (int32_t)t.columns, t.at };
    json_decref(root);
    return status;
}

/* ---- text ------------------------------------------------------------------------------------------ */

static moxie_status bad_text(const char *path, const char *text, const char *at, int line, moxie_error *error)
{
    char shown[24];
    int length = 0;
    for (; length < 20 && at[length] && !strchr(", ;\t\r\n", at[length]); length++)
        shown[length] = isprint((unsigned char)at[length]) ? at[length] : '?';
    shown[length] = '\0';
    cli_error(MOXIE_ERR_FORMAT, error, path,
              "line %d: \"%s\" is no load: give numbers from 0 on, a line for each layer, a number for each expert",
              line, shown);
    error->offset = at - text;
    return MOXIE_ERR_FORMAT;
}

/* Reads the numbers of a line; at most `room` are stored. */
static moxie_status scan_line(const char *path, const char *text, const char **at, int line, double *row, int64_t room,
                              int64_t *count, moxie_error *error)
{
    *count = 0;
    for (;;) {
        *at += strspn(*at, ", ;\t\r");
        if (**at == '#')
            *at += strcspn(*at, "\n");
        if (**at == '\n' || **at == '\0')
            return MOXIE_OK;
        char *end;
        const double value = strtod(*at, &end);
        if (end == *at || !isfinite(value) || value < 0 || !strchr(", ;\t\r\n#", *end))
            return bad_text(path, text, *at, line, error);
        if (*count < room)
            row[*count] = value;
        ++*count;
        *at = end;
    }
}

/* Adds a row of n numbers; a blank line is none. */
static moxie_status take_line(const char *path, int line, const double *row, int64_t n, balance_counts *out,
                              moxie_error *error)
{
    if (n == 0)
        return MOXIE_OK;
    if (n > MOXIE_MAX_EXPERTS || (out->layers > 0 && n != out->experts) || out->layers == BALANCE_MAX_LAYERS)
        return out->layers > 0 && n != out->experts
                   ? cli_error(MOXIE_ERR_FORMAT, error, path,
                               "line %d has %lld numbers, the lines before %d: all layers need as many", line,
                               (long long)n, out->experts)
                   : cli_error(MOXIE_ERR_FORMAT, error, path,
                               "line %d has %lld numbers and is layer %d; the limits are %d experts and %d layers",
                               line, (long long)n, out->layers, MOXIE_MAX_EXPERTS, BALANCE_MAX_LAYERS);
    out->experts = (int32_t)n;
    out->at = cli_realloc(out->at, (size_t)(out->layers + 1) * (size_t)n * sizeof *out->at);
    memcpy(out->at + (int64_t)out->layers * n, row, (size_t)n * sizeof *row);
    out->layers++;
    return MOXIE_OK;
}

static moxie_status read_lines(const char *path, const char *text, balance_counts *out, moxie_error *error)
{
    double row[MOXIE_MAX_EXPERTS];
    const char *at = text;
    moxie_status status = MOXIE_OK;
    for (int line = 1; status == MOXIE_OK; line++) {
        int64_t n = 0;
        status = scan_line(path, text, &at, line, row, MOXIE_MAX_EXPERTS, &n, error);
        if (status == MOXIE_OK)
            status = take_line(path, line, row, n, out, error);
        if (status != MOXIE_OK || *at++ == '\0')
            break;
    }
    return status;
}

static moxie_status read_text(const char *path, int64_t experts, int64_t zero_experts, balance_counts *out,
                              moxie_error *error)
{
    char *text = NULL;
    uint64_t size = 0;
    moxie_status status = moxie_file_read(path, BALANCE_MAX_BYTES, &text, &size, error);
    if (status == MOXIE_OK)
        status = balance_refuse_pickle(path, text, size, error);
    if (status == MOXIE_OK && strlen(text) != size)
        status = cli_error(MOXIE_ERR_FORMAT, error, path,
                           "it is no text: loads are JSON, lines of numbers, or topk_ids of a *.safetensors");
    if (status == MOXIE_OK && strchr("[{", text[strspn(text, " \t\r\n")]) && text[strspn(text, " \t\r\n")])
        status = read_json(path, text, size, experts, zero_experts, out, error);
    else if (status == MOXIE_OK)
        status = read_lines(path, text, out, error);
    moxie_file_free(text);
    return status;
}

/* ---- any of them ----------------------------------------------------------------------------------- */

static moxie_status check(const char *path, int64_t experts, const balance_counts *c, moxie_error *error)
{
    if (c->layers < 1 || c->experts < 1 || c->experts > MOXIE_MAX_EXPERTS)
        return cli_error(MOXIE_ERR_FORMAT, error, path,
                         "it has loads of %d layers and %d experts; there must be one layer at least, and from 1 to %d "
                         "experts",
                         c->layers, c->experts, MOXIE_MAX_EXPERTS);
    if (experts > 0 && experts != c->experts)
        return cli_error(MOXIE_ERR_MISMATCH, error, path, "it has loads of %d experts, and --experts says %lld",
                         c->experts, (long long)experts);
    for (int64_t i = 0; i < (int64_t)c->layers * c->experts; i++)
        if (!(c->at[i] >= 0 && c->at[i] <= BALANCE_MAX_LOAD))
            return cli_error(MOXIE_ERR_FORMAT, error, path,
                             "layer %lld, expert %lld has the load %g: loads are numbers from 0 to %g",
                             (long long)(i / c->experts), (long long)(i % c->experts), c->at[i], BALANCE_MAX_LOAD);
    return MOXIE_OK;
}

moxie_status balance_counts_read(const char *path, int64_t experts, int64_t zero_experts, balance_counts *out,
                                 moxie_error *error)
{
    const size_t n = strlen(path);
    const bool tensors = n > 12 && !strcmp(path + n - 12, ".safetensors");
    *out = (balance_counts) { .at = NULL };
    moxie_status status;
    if (moxie_trace_is_trace(path))
        status = balance_counts_of_trace(path, out, error);
    else
        status = tensors ? read_tensors(path, experts, zero_experts, out, error)
                         : read_text(path, experts, zero_experts, out, error);
    if (status == MOXIE_OK)
        status = check(path, experts, out, error);
    if (status != MOXIE_OK) {
        free(out->at);
        out->at = NULL;
    }
    return status;
}
