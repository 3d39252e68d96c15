/* SPDX-License-Identifier: Apache-2.0
 *
 * store_chain.c - all layers of a directory of expert files in less memory than they need, one after another, with
 * router lookahead:
 *
 *     store_chain DIR BUDGET_BYTES
 *
 *     x of layer l --router of layer l + 1--> guesses, read while layer l and the attention behind it are computed
 *     x = x + experts(x), x = x + attention(x), and on to layer l + 1
 *
 * It decodes some tokens without lookahead and with it, prints waits and guesses, and compares the outputs. Tokens are
 * made up, and so is attention: one dense matrix. Each adds CHANGE of x's length to it, so that about four guesses in
 * five are right, as is reported of real models. Guesses save time where attention and products take some: with layers
 * of a few hundred columns a read is over before anything was computed.
 * `moxie prepare MODEL --layout moxie-auto -o DIR` writes such files.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <moxie/moxie_store.h>

enum { STEPS = 24, MAX_LAYERS = 128 };
#define CHANGE 0.2f

typedef struct chain {
    moxie_store *store;
    int32_t n;
    moxie_layer *layer[MAX_LAYERS];
    moxie_plan *plan[MAX_LAYERS];
    int64_t hidden;
    moxie_dtype dtype;
    uint64_t workspace_bytes;
    float *attention; /* [hidden, hidden], and one row more for its result */
} chain;

static moxie_status open_layers(chain *c, moxie_error *error)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_status status = MOXIE_OK;
    int64_t number;
    options.backend = MOXIE_BACKEND_CPU;
    options.max_tokens = 1;
    for (; status == MOXIE_OK && c->n < MAX_LAYERS && (number = moxie_store_layer_number(c->store, c->n)) >= 0;
         c->n++) {
        const moxie_layer_config *config = moxie_expert_file_config(moxie_store_file(c->store, number));
        c->hidden = config->hidden;
        c->dtype = config->dtype;
        status = moxie_store_layer(c->store, number, NULL, &options, &c->layer[c->n], error);
        if (status == MOXIE_OK)
            status = moxie_plan_create(c->layer[c->n], &options, &c->plan[c->n], error);
        const uint64_t bytes = status == MOXIE_OK ? moxie_plan_workspace_bytes(c->plan[c->n]) : 0;
        c->workspace_bytes = bytes > c->workspace_bytes ? bytes : c->workspace_bytes;
    }
    return status;
}

static moxie_status open_chain(const char *dir, const char *budget, chain *c, moxie_error *error)
{
    moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    *c = (chain) { NULL };
    options.ram_bytes = strtoull(budget, NULL, 10);
    const moxie_status status = moxie_store_open(&dir, 1, &options, &c->store, error);
    return status == MOXIE_OK ? open_layers(c, error) : status;
}

static void close_chain(chain *c)
{
    for (int32_t l = 0; l < c->n; l++) {
        moxie_plan_destroy(c->plan[l]);
        moxie_layer_destroy(c->layer[l]);
    }
    moxie_store_close(c->store);
    free(c->attention);
}

/* In [-1, 1). */
static float made_up(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

static bool make_attention(chain *c)
{
    uint32_t state = 7;
    c->attention = malloc((size_t)(c->hidden * (c->hidden + 1)) * sizeof *c->attention);
    for (int64_t i = 0; c->attention != NULL && i < c->hidden * c->hidden; i++)
        c->attention[i] = made_up(&state);
    return c->attention != NULL;
}

static float number_at(const chain *c, const char *row, int64_t i)
{
    const size_t bytes = (size_t)moxie_dtype_bits(c->dtype) / 8;
    uint32_t code = 0;
    memcpy(&code, row + (size_t)i * bytes, bytes);
    return moxie_decode(c->dtype, code);
}

static void set_number(const chain *c, char *row, int64_t i, float value)
{
    const size_t bytes = (size_t)moxie_dtype_bits(c->dtype) / 8;
    const uint32_t code = moxie_encode(c->dtype, value);
    memcpy(row + (size_t)i * bytes, &code, bytes);
}

/* Adds CHANGE of x's length to x, in the direction of `change`. */
static void add(const chain *c, char *x, const float *change)
{
    double length = 0, other = 0;
    for (int64_t i = 0; i < c->hidden; i++) {
        length += (double)number_at(c, x, i) * number_at(c, x, i);
        other += (double)change[i] * change[i];
    }
    const float factor = other > 0 ? CHANGE * (float)sqrt(length / other) : 0;
    for (int64_t i = 0; i < c->hidden; i++)
        set_number(c, x, i, number_at(c, x, i) + factor * change[i]);
}

static void add_experts(const chain *c, char *x, const char *y)
{
    float *change = c->attention + c->hidden * c->hidden;
    for (int64_t i = 0; i < c->hidden; i++)
        change[i] = number_at(c, y, i);
    add(c, x, change);
}

static void add_attention(const chain *c, char *x)
{
    float *change = c->attention + c->hidden * c->hidden;
    memset(change, 0, (size_t)c->hidden * sizeof *change);
    for (int64_t k = 0; k < c->hidden; k++) {
        const float factor = number_at(c, x, k);
        for (int64_t i = 0; i < c->hidden; i++)
            change[i] += factor * c->attention[k * c->hidden + i];
    }
    add(c, x, change);
}

/* One token through all layers; x becomes the last one's output. */
static moxie_status decode(const chain *c, bool lookahead, char *x, char *y, void *workspace, moxie_error *error)
{
    static const int32_t token_ids[1]; /* read only where a table of token ids routes */
    moxie_run_args args = MOXIE_RUN_ARGS_INIT;
    moxie_status status = MOXIE_OK;
    args.tokens = 1;
    args.hidden = x;
    args.token_ids = token_ids;
    args.output = y;
    args.workspace = workspace;
    args.workspace_bytes = c->workspace_bytes;
    for (int32_t l = 0; status == MOXIE_OK && l < c->n; l++) {
        if (lookahead && l + 1 < c->n) /* begins reads, and waits for none */
            status = moxie_store_lookahead(c->plan[l + 1], &args, error);
        if (status == MOXIE_OK)
            status = moxie_plan_run(c->plan[l], &args, error);
        if (status == MOXIE_OK)
            add_experts(c, x, y), add_attention(c, x);
    }
    return status;
}

/* All tokens; outputs [STEPS, hidden]. */
static moxie_status decode_all(const chain *c, bool lookahead, char *outputs, moxie_error *error)
{
    const size_t row = (size_t)(c->hidden * moxie_dtype_bits(c->dtype) / 8);
    char *y = malloc(row);
    void *workspace = aligned_alloc(64, (c->workspace_bytes + 63) / 64 * 64);
    moxie_status status = y != NULL && workspace != NULL ? MOXIE_OK : MOXIE_ERR_MEMORY;
    uint32_t state = 1;
    for (int s = 0; status == MOXIE_OK && s < STEPS; s++) {
        for (int64_t i = 0; i < c->hidden; i++)
            set_number(c, outputs + (size_t)s * row, i, made_up(&state));
        status = decode(c, lookahead, outputs + (size_t)s * row, y, workspace, error);
    }
    free(workspace);
    free(y);
    return status;
}

static double seconds(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int fail(const char *what, const moxie_error *error)
{
    fprintf(stderr, "%s: %s%s%s\n", what, error->file, error->file[0] ? ": " : "", error->text);
    return 1;
}

int main(int argc, char **argv)
{
    moxie_error error = { .text = "no memory" };
    char *outputs[2] = { NULL, NULL };
    size_t bytes = 0;
    if (argc != 3)
        return fprintf(stderr, "usage: %s DIRECTORY_OF_EXPERT_FILES BUDGET_BYTES\n", argv[0]), 2;
    for (int ahead = 0; ahead < 2; ahead++) { /* each with a store that knows nothing yet */
        chain c;
        moxie_store_counters n = MOXIE_STORE_COUNTERS_INIT;
        const double start = seconds();
        if (open_chain(argv[1], argv[2], &c, &error) != MOXIE_OK)
            return close_chain(&c), fail(argv[1], &error);
        printf("opened in %.1f ms\n", 1e3 * (seconds() - start));
        bytes = STEPS * (size_t)(c.hidden * moxie_dtype_bits(c.dtype) / 8);
        outputs[ahead] = malloc(bytes);
        if (outputs[ahead] == NULL || !make_attention(&c) ||
            decode_all(&c, ahead == 1, outputs[ahead], &error) != MOXIE_OK)
            return close_chain(&c), fail("decoding", &error);
        (void)moxie_store_get_counters(c.store, -1, 0, &n, NULL);
        printf("%d layers, %d tokens, %s lookahead: %.1f%% hits, %lld waits of %.1f ms, guesses %lld, used %lld\n",
               (int)c.n, (int)STEPS, ahead ? "with" : "without", 100 * (double)n.hits / (double)n.uses,
               (long long)n.waits, 1e3 * n.wait_seconds, (long long)n.prefetches, (long long)n.prefetches_used);
        close_chain(&c);
    }
    const bool equal = memcmp(outputs[0], outputs[1], bytes) == 0;
    printf("the outputs %s\n", equal ? "are equal" : "differ");
    free(outputs[0]);
    free(outputs[1]);
    return equal ? 0 : 1;
}
