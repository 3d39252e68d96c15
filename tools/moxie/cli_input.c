/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_input.c - the tensors a run starts from: random ones from a seed, or those of a safetensors file.
 *
 *   required:                                 hidden_states [T,H] bf16|f16|f32
 *   where the router reads something else:    router_hidden_states [T,router_width]
 *   instead of the layer's router:            router_logits [T,E] f32|bf16|f16
 *   instead of any routing:                   topk_ids [T,K] i32, topk_weights [T,K] f32
 *   where a table of tokens routes:           token_ids [T] i32
 *   as in moxie_run_args:                     padding [T] u8, bias_choice [T] u8
 *
 * Random values are a sum of twelve uniforms (mean 0, variance 1) from splitmix64 of (seed, stream, index):
 * integer arithmetic, so that a seed means the same bytes on every machine. Outliers: one channel of every 512 is
 * multiplied by 20 .. 100, for all tokens alike.
 */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Twelve 21-bit uniforms out of four words: exact in integers, rounded once. */
static float random_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    const uint64_t base = mix(seed * 0x9e3779b97f4a7c15u + stream) ^ (index * 0xd1342543de82ef95u);
    int64_t sum = 0;
    for (uint64_t word = 0; word < 4; word++) {
        const uint64_t bits = mix(base + (word + 1) * 0x9e3779b97f4a7c15u);
        for (int part = 0; part < 3; part++)
            sum += (int64_t)((bits >> (21 * part)) & 0x1fffff);
    }
    return (float)((double)(sum - 6 * 0x1fffff) / (double)0x1fffff);
}

enum { CHANNELS_AN_OUTLIER = 512, MIN_OUTLIER = 20, MAX_OUTLIER = 100 };

/* The factor of channel `column` of `columns`. */
static float factor_of(cli_states states, int64_t columns, int64_t column, uint64_t seed)
{
    if (states == CLI_STATES_NORMAL)
        return 1;
    const int64_t block = column / CHANNELS_AN_OUTLIER, first = block * CHANNELS_AN_OUTLIER;
    const int64_t here = columns - first < CHANNELS_AN_OUTLIER ? columns - first : CHANNELS_AN_OUTLIER;
    const uint64_t bits = mix(seed * 0x9e3779b97f4a7c15u + 0xd1342543de82ef95u * (uint64_t)(block + 1));
    if (column - first != (int64_t)(bits % (uint64_t)here))
        return 1;
    return (float)(MIN_OUTLIER + (bits >> 32) % (MAX_OUTLIER - MIN_OUTLIER + 1));
}

static void *random_matrix(moxie_dtype dtype, int64_t rows, int64_t columns, uint64_t seed, uint64_t stream,
                           cli_states states)
{
    const size_t width = dtype == MOXIE_F32 ? 4 : 2;
    const int64_t count = rows * columns;
    unsigned char *data = calloc((size_t)count + 1, width);
    for (int64_t i = 0; data && i < count; i++) {
        const float factor = factor_of(states, columns, i % columns, seed);
        const uint32_t code = moxie_encode(dtype, factor * random_normal(seed, stream, (uint64_t)i));
        memcpy(data + (size_t)i * width, &code, width); /* little-endian hosts only, like the whole library */
    }
    return data;
}

static bool needs_own_router_input(const moxie_layer_config *config)
{
    return config->router_width != 0 && config->router_width != config->hidden;
}

static moxie_status random_token_ids(const moxie_layer_config *config, uint64_t seed, cli_input *out,
                                     moxie_error *error)
{
    if (config->routing.select != MOXIE_SELECT_TABLE)
        return MOXIE_OK;
    out->token_ids = calloc((size_t)out->tokens + 1, sizeof *out->token_ids);
    if (!out->token_ids)
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for %lld %s", CLI_COUNT(out->tokens, "token id"));
    for (int64_t t = 0; t < out->tokens; t++)
        out->token_ids[t] = (int32_t)(mix(seed + 77 + (uint64_t)t) % (uint64_t)config->routing.table_rows);
    return MOXIE_OK;
}

moxie_status cli_input_random(const moxie_layer_config *config, int64_t tokens, uint64_t seed, cli_states states,
                              cli_input *out, moxie_error *error)
{
    memset(out, 0, sizeof *out);
    out->tokens = tokens;
    out->dtype = config->dtype;
    out->hidden = random_matrix(config->dtype, tokens, config->hidden, seed, 1, states);
    if (needs_own_router_input(config))
        out->router_hidden = random_matrix(config->dtype, tokens, config->router_width, seed, 2, states);
    if (!out->hidden || (needs_own_router_input(config) && !out->router_hidden))
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for the hidden states of %lld %s",
                         CLI_COUNT(tokens, "token"));
    return random_token_ids(config, seed, out, error);
}

static bool is_float(moxie_dtype dtype)
{
    return dtype == MOXIE_F32 || dtype == MOXIE_F16 || dtype == MOXIE_BF16;
}

static moxie_status check_hidden(const char *path, const moxie_tensor *tensor, moxie_error *error)
{
    if (tensor->rank != 2 || !is_float(tensor->dtype))
        return cli_error(MOXIE_ERR_MISMATCH, error, path,
                         "hidden_states must be [T,H] of bf16, f16 or f32; it has rank %d and dtype %s", tensor->rank,
                         moxie_dtype_name(tensor->dtype));
    return MOXIE_OK;
}

static moxie_status no_hidden(const moxie_tensor_file *file, const char *path, moxie_error *error)
{
    const char *first = "";
    moxie_tensor tensor;
    const long long count = (long long)moxie_tensor_file_count(file);
    if (error->code == MOXIE_ERR_UNSUPPORTED || error->code == MOXIE_ERR_MEMORY)
        return error->code;
    if (count == 0 || moxie_tensor_file_at(file, 0, &first, &tensor) != MOXIE_OK)
        return cli_error(MOXIE_ERR_MISMATCH, error, path,
                         "there is no tensor at all, and hidden_states is needed: [T,H] of "
                         "bf16, f16 or f32");
    return cli_error(
        MOXIE_ERR_MISMATCH, error, path,
        "there is no tensor \"hidden_states\" among its %lld (the first is \"%.100s\"): name the input so, [T,H] "
        "of bf16, f16 or f32",
        count, cli_printable(first));
}

moxie_status cli_input_peek(const char *path, int64_t *tokens, moxie_dtype *dtype, moxie_error *error)
{
    moxie_tensor_file *file = NULL;
    moxie_tensor hidden;
    moxie_status status = moxie_tensor_file_open(path, 0, &file, error);
    if (status == MOXIE_OK && moxie_tensor_file_find(file, "hidden_states", &hidden, error) != MOXIE_OK)
        status = no_hidden(file, path, error);
    if (status == MOXIE_OK)
        status = check_hidden(path, &hidden, error);
    if (status == MOXIE_OK) {
        *tokens = hidden.shape[0];
        *dtype = hidden.dtype;
    }
    moxie_tensor_file_close(file);
    return status;
}

/* Copies tensor `name` if the file has it; otherwise *out stays NULL. `columns` 0: a tensor of rank 1. */
static moxie_status load(moxie_tensor_file *file, const char *path, const char *name, int64_t rows, int64_t columns,
                         moxie_dtype dtype, moxie_dtype *found, void **out, moxie_error *error)
{
    moxie_tensor tensor;
    moxie_error absent;
    if (moxie_tensor_file_find(file, name, &tensor, &absent) != MOXIE_OK)
        return MOXIE_OK;
    const int rank = columns ? 2 : 1;
    const bool shape_fits = tensor.rank == rank && tensor.shape[0] == rows && (!columns || tensor.shape[1] == columns);
    const bool dtype_fits = dtype ? tensor.dtype == dtype : is_float(tensor.dtype);
    if (!shape_fits || !dtype_fits) {
        return cli_error(MOXIE_ERR_MISMATCH, error, path,
                         "%s must be [%lld%s%.0lld] of %s; it has rank %d, shape [%lld,%lld] and dtype %s", name,
                         (long long)rows, columns ? "," : "", (long long)columns,
                         dtype ? moxie_dtype_name(dtype) : "f32, bf16 or f16", tensor.rank, (long long)tensor.shape[0],
                         (long long)tensor.shape[1], moxie_dtype_name(tensor.dtype));
    }
    const size_t bytes = (size_t)(rows * (columns ? columns : 1)) * (size_t)(moxie_dtype_bits(tensor.dtype) / 8);
    *out = malloc(bytes + 1);
    if (!*out)
        return cli_error(MOXIE_ERR_MEMORY, error, path, "no memory for the %zu bytes of %s", bytes, name);
    if (bytes)
        memcpy(*out, tensor.data, bytes);
    if (found)
        *found = tensor.dtype;
    return MOXIE_OK;
}

moxie_status cli_input_load(const char *path, const moxie_layer_config *config, cli_input *out, moxie_error *error)
{
    memset(out, 0, sizeof *out);
    moxie_status status = cli_input_peek(path, &out->tokens, &out->dtype, error);
    if (status != MOXIE_OK)
        return status;
    moxie_tensor_file *file = NULL;
    status = moxie_tensor_file_open(path, 0, &file, error);
    const struct {
        const char *name;
        int64_t columns;
        moxie_dtype dtype, *found;
        void **to;
    } wanted[] = {
        { "hidden_states", config->hidden, config->dtype, NULL, &out->hidden },
        { "router_hidden_states", config->router_width, config->dtype, NULL, &out->router_hidden },
        { "router_logits", cli_candidates(config), MOXIE_DTYPE_NONE, &out->logits_dtype, &out->logits },
        { "topk_ids", config->top_k, MOXIE_I32, NULL, (void **)&out->ids },
        { "topk_weights", config->top_k, MOXIE_F32, NULL, (void **)&out->weights },
        { "token_ids", 0, MOXIE_I32, NULL, (void **)&out->token_ids },
        { "padding", 0, MOXIE_U8, NULL, (void **)&out->padding },
        { "bias_choice", 0, MOXIE_U8, NULL, (void **)&out->bias_choice },
    };
    for (size_t i = 0; status == MOXIE_OK && i < sizeof wanted / sizeof wanted[0]; i++)
        status = load(file, path, wanted[i].name, out->tokens, wanted[i].columns, wanted[i].dtype, wanted[i].found,
                      wanted[i].to, error);
    moxie_tensor_file_close(file);
    if (status == MOXIE_OK && !out->ids != !out->weights)
        status = cli_error(MOXIE_ERR_MISMATCH, error, path,
                           "topk_ids and topk_weights go together; %s is absent: add it, or leave the other out",
                           out->ids ? "topk_weights" : "topk_ids");
    return status;
}

void cli_input_free(cli_input *input)
{
    free(input->hidden);
    free(input->router_hidden);
    free(input->logits);
    free(input->ids);
    free(input->weights);
    free(input->token_ids);
    free(input->padding);
    free(input->bias_choice);
    memset(input, 0, sizeof *input);
}

void cli_input_args(const cli_input *input, moxie_run_args *args)
{
    args->tokens = input->tokens;
    args->hidden = input->hidden;
    args->router_hidden = input->router_hidden;
    args->logits = input->logits;
    args->logits_dtype = input->logits_dtype;
    args->ids = input->ids;
    args->weights = input->weights;
    args->token_ids = input->token_ids;
    args->padding = input->padding;
    args->bias_choice = input->bias_choice;
}

const void *cli_copy_rows(const moxie_tensor *tensor, int64_t first, int64_t count, void *out)
{
    const int64_t width = tensor->rank == 2 ? tensor->shape[1] : 1;
    const size_t row = (size_t)width * (size_t)moxie_dtype_bits(tensor->dtype) / 8;
    return memcpy(out, (const char *)tensor->data + (size_t)first * row, (size_t)count * row);
}
