/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_routing_file.c - the ids of a real router, from a file:
 *
 *     a trace          one layer's (bench_routing_trace.c)
 *     *.safetensors    topk_ids [T,K] i32 or i64, and optionally topk_weights [T,K] f32
 *     anything else    text: whole numbers between white space, K for each token
 *
 * A negative id chooses no expert. An id that the layer does not have is an error: the file is of another model.
 */
#include "bench.h"

#include <moxie/moxie_trace.h>

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static moxie_status bad_id(const bench_routing *g, int64_t i, long long id, int64_t offset, moxie_error *error)
{
    cli_error(MOXIE_ERR_FORMAT, error, g->name,
              "token %lld, choice %lld is expert %lld, but the layer has %lld %s: give ids from 0 to %lld, or a "
              "negative one for none",
              (long long)(i / g->top_k), (long long)(i % g->top_k), id, CLI_COUNT(g->experts, "expert"),
              (long long)g->experts - 1);
    error->offset = offset;
    return MOXIE_ERR_FORMAT;
}

static moxie_status take_ids(bench_routing *g, int64_t tokens, moxie_error *error)
{
    g->file_tokens = tokens;
    g->file_ids = malloc((size_t)(tokens * g->top_k) * sizeof *g->file_ids + 1);
    return g->file_ids
               ? MOXIE_OK
               : cli_error(MOXIE_ERR_MEMORY, error, g->name, "no memory for %lld %s", CLI_COUNT(tokens, "token"));
}

static moxie_status check_tensor(const bench_routing *g, const moxie_tensor *t, const char *name, bool fits,
                                 const char *dtype, moxie_error *error)
{
    if (fits && t->rank == 2 && t->shape[1] == g->top_k && t->shape[0] > 0)
        return MOXIE_OK;
    return cli_error(MOXIE_ERR_MISMATCH, error, g->name,
                     "%s must be [T,%lld] of %s; it has rank %d, shape [%lld,%lld] and dtype %s", name,
                     (long long)g->top_k, dtype, t->rank, (long long)t->shape[0], (long long)t->shape[1],
                     moxie_dtype_name(t->dtype));
}

static moxie_status read_ids(bench_routing *g, const moxie_tensor *ids, moxie_error *error)
{
    const bool wide = ids->dtype == MOXIE_I64;
    moxie_status status = check_tensor(g, ids, "topk_ids", wide || ids->dtype == MOXIE_I32, "i32 or i64", error);
    if (status == MOXIE_OK)
        status = take_ids(g, ids->shape[0], error);
    for (int64_t i = 0; status == MOXIE_OK && i < g->file_tokens * g->top_k; i++) {
        int64_t id = 0;
        int32_t narrow;
        memcpy(wide ? (void *)&id : (void *)&narrow, (const char *)ids->data + i * (wide ? 8 : 4), wide ? 8 : 4);
        id = wide ? id : narrow;
        if (id >= g->experts)
            return bad_id(g, i, id, -1, error);
        g->file_ids[i] = id < 0 ? -1 : (int32_t)id;
    }
    return status;
}

static moxie_status read_weights(bench_routing *g, const moxie_tensor *weights, moxie_error *error)
{
    const bool fits = weights->dtype == MOXIE_F32 && weights->rank == 2 && weights->shape[0] == g->file_tokens;
    const moxie_status status = check_tensor(g, weights, "topk_weights", fits, "f32, T as in topk_ids", error);
    if (status != MOXIE_OK)
        return status;
    const size_t bytes = (size_t)(g->file_tokens * g->top_k) * sizeof *g->file_weights;
    g->file_weights = malloc(bytes);
    if (!g->file_weights)
        return cli_error(MOXIE_ERR_MEMORY, error, g->name, "no memory for %zu bytes of weights", bytes);
    memcpy(g->file_weights, weights->data, bytes);
    return MOXIE_OK;
}

static moxie_status read_tensors(bench_routing *g, moxie_error *error)
{
    moxie_tensor_file *file = NULL;
    moxie_tensor tensor;
    moxie_error absent;
    moxie_status status = moxie_tensor_file_open(g->name, 0, &file, error);
    if (status == MOXIE_OK)
        status = moxie_tensor_file_find(file, "topk_ids", &tensor, error);
    if (status == MOXIE_ERR_MISMATCH)
        cli_error(status, error, g->name,
                  "there is no tensor \"topk_ids\"; --routing takes that of a router, [T,%lld] of i32 or i64",
                  (long long)g->top_k);
    if (status == MOXIE_OK)
        status = read_ids(g, &tensor, error);
    if (status == MOXIE_OK && moxie_tensor_file_find(file, "topk_weights", &tensor, &absent) == MOXIE_OK)
        status = read_weights(g, &tensor, error);
    moxie_tensor_file_close(file);
    return status;
}

/* ---- text ------------------------------------------------------------------------------------------ */

enum { MAX_BYTES = 1 << 28 };

/* The text of a file, which holds no zero byte but the one at its end. moxie_file_free() it. */
static moxie_status read_text(const char *path, char **text, moxie_error *error)
{
    uint64_t bytes = 0;
    moxie_status status = moxie_file_read(path, MAX_BYTES, text, &bytes, error);
    if (status == MOXIE_OK && strlen(*text) != bytes)
        status = cli_error(MOXIE_ERR_FORMAT, error, path, "it is no text");
    if (status != MOXIE_OK && status != MOXIE_ERR_MEMORY) {
        const moxie_error why = *error;
        cli_error(status, error, path,
                  "%s; --routing is uniform, zipf, one-hot, skewed, or a file of expert numbers: a trace, text, or "
                  "topk_ids of a *.safetensors",
                  why.text);
    }
    return status;
}

static moxie_status bad_text(const bench_routing *g, const char *text, const char *at, moxie_error *error)
{
    int line = 1;
    for (const char *c = text; c < at; c++)
        line += *c == '\n';
    char shown[24];
    int length = 0;
    for (; length < 20 && at[length] && !isspace((unsigned char)at[length]); length++)
        shown[length] = isprint((unsigned char)at[length]) ? at[length] : '?';
    shown[length] = '\0';
    cli_error(MOXIE_ERR_FORMAT, error, g->name,
              "line %d: \"%s\" is no expert number; the file is to hold %lld whole numbers for each token, with white "
              "space between them",
              line, shown, (long long)g->top_k);
    error->offset = at - text;
    return MOXIE_ERR_FORMAT;
}

/* Reads the numbers: counts them in *count and, when file_ids is not NULL, stores them there. */
static moxie_status scan_text(bench_routing *g, const char *text, int64_t *count, moxie_error *error)
{
    *count = 0;
    for (const char *at = text;; (*count)++) {
        while (isspace((unsigned char)*at))
            at++;
        if (!*at)
            return MOXIE_OK;
        char *end;
        errno = 0;
        const long long id = strtoll(at, &end, 10);
        if (end == at || errno || (*end && !isspace((unsigned char)*end)))
            return bad_text(g, text, at, error);
        if (id >= g->experts)
            return bad_id(g, *count, id, at - text, error);
        if (g->file_ids)
            g->file_ids[*count] = id < 0 ? -1 : (int32_t)id;
        at = end;
    }
}

static moxie_status read_numbers(bench_routing *g, moxie_error *error)
{
    char *text = NULL;
    int64_t count = 0;
    moxie_status status = read_text(g->name, &text, error);
    if (status == MOXIE_OK)
        status = scan_text(g, text, &count, error);
    if (status == MOXIE_OK && (count == 0 || count % g->top_k))
        status =
            cli_error(MOXIE_ERR_FORMAT, error, g->name,
                      "it holds %lld %s; a layer that chooses %lld %s needs a multiple of %lld, and at least one token",
                      CLI_COUNT(count, "number"), CLI_COUNT(g->top_k, "expert"), (long long)g->top_k);
    if (status == MOXIE_OK)
        status = take_ids(g, count / g->top_k, error);
    if (status == MOXIE_OK)
        status = scan_text(g, text, &count, error);
    moxie_file_free(text);
    return status;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

moxie_status bench_routing_read(bench_routing *g, moxie_error *error)
{
    if (moxie_trace_is_trace(g->name))
        return bench_routing_read_trace(g, error);
    return ends_with(g->name, ".safetensors") ? read_tensors(g, error) : read_numbers(g, error);
}
