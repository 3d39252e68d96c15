/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_adapters.c - adapters of a command (cli_adapters.h).
 *
 *   file of names   one word for each token, between blanks or line ends: an adapter's name, or - for none
 */
#include "cli_adapters.h"

#include <stdlib.h>
#include <string.h>

#define MAX_IDS_BYTES (UINT64_C(64) << 20)
#define BLANKS        " \t\r\n"

void cli_adapters_parse(struct argp_state *state, const char *argument, cli_adapters *out)
{
    const char *equals = strchr(argument, '=');
    if (!equals || equals == argument || equals[1] == '\0' || strcspn(argument, BLANKS) < (size_t)(equals - argument))
        argp_error(state, "--adapter takes NAME=DIR, not \"%s\"", cli_printable(argument));
    if (out->count == CLI_MAX_ADAPTERS)
        argp_error(state, "more than %d adapters were given", CLI_MAX_ADAPTERS);
    const int length = (int)(equals - argument);
    for (int32_t i = 0; i < out->count; i++)
        if (out->item[i].name_length == length && strncmp(out->item[i].name, argument, (size_t)length) == 0)
            argp_error(state, "two adapters have the name \"%.*s\": give each its own", length, argument);
    out->item[out->count].name = argument;
    out->item[out->count].name_length = length;
    out->item[out->count++].dir = equals + 1;
}

void cli_adapters_check(struct argp_state *state, const cli_adapters *adapters)
{
    if (adapters->ids_path && adapters->count == 0)
        argp_error(state, "--adapter-ids names adapters, and there is none: give --adapter NAME=DIR");
    if (!adapters->ids_path && adapters->count > 1)
        argp_error(state, "%d adapters were given, and nothing says which token has which: give --adapter-ids FILE",
                   (int)adapters->count);
}

static int32_t rank_of(const moxie_tensor *a)
{
    return a->data ? (int32_t)a->shape[a->rank - 2] : 0;
}

int32_t cli_adapters_rank(const cli_adapters *adapters)
{
    int32_t largest = 0;
    for (int32_t i = 0; i < adapters->count; i++) {
        const moxie_lora *l = &adapters->item[i].lora;
        const int32_t ranks[] = { rank_of(&l->gate_a), rank_of(&l->up_a), rank_of(&l->down_a) };
        for (int m = 0; m < 3; m++)
            largest = ranks[m] > largest ? ranks[m] : largest;
    }
    return largest;
}

moxie_status cli_adapters_open(cli_adapters *adapters, const cli_layer *layer, moxie_error *error)
{
    for (int32_t i = 0; i < adapters->count; i++) {
        if (layer->file)
            return cli_error(MOXIE_ERR_UNSUPPORTED, error, adapters->item[i].dir,
                             "adapters name the tensors of a checkpoint, and the layer is of an expert file: give the "
                             "checkpoint's directory");
        moxie_status status = moxie_adapter_files_open(adapters->item[i].dir, &adapters->item[i].files, error);
        adapters->item[i].lora = (moxie_lora)MOXIE_LORA_INIT;
        if (status == MOXIE_OK)
            status = moxie_adapter_files_load(adapters->item[i].files, layer->model, layer->loaded, layer->index,
                                              &adapters->item[i].lora, error);
        if (status != MOXIE_OK)
            return status;
    }
    return MOXIE_OK;
}

/* The number of an adapter's name; -1 for "-", -2 for no adapter. */
static int32_t number_of(const cli_adapters *adapters, const char *word, int length)
{
    if (length == 1 && *word == '-')
        return -1;
    for (int32_t i = 0; i < adapters->count; i++)
        if (adapters->item[i].name_length == length && strncmp(adapters->item[i].name, word, (size_t)length) == 0)
            return i;
    return -2;
}

static moxie_status read_words(cli_adapters *adapters, const char *text, int64_t tokens, moxie_error *error)
{
    int64_t count = 0;
    for (const char *word = text + strspn(text, BLANKS); *word != '\0'; word += strspn(word, BLANKS)) {
        const int length = (int)strcspn(word, BLANKS);
        const int32_t number = number_of(adapters, word, length);
        char shown[64];
        snprintf(shown, sizeof shown, "%.*s", length, word);
        if (number == -2)
            return cli_error(MOXIE_ERR_FORMAT, error, adapters->ids_path,
                             "word %lld, \"%s\", is no adapter's name, nor - for none", (long long)count + 1,
                             cli_printable(shown));
        if (count < tokens)
            adapters->ids[count] = number;
        count++;
        word += length;
    }
    if (count != tokens)
        return cli_error(MOXIE_ERR_MISMATCH, error, adapters->ids_path,
                         "it names adapters of %lld %s, the input has %lld", CLI_COUNT(count, "token"),
                         (long long)tokens);
    return MOXIE_OK;
}

static moxie_status read_ids(cli_adapters *adapters, int64_t tokens, moxie_error *error)
{
    char *data = NULL;
    uint64_t bytes = 0;
    moxie_status status = moxie_file_read(adapters->ids_path, MAX_IDS_BYTES, &data, &bytes, error);
    char *text = status == MOXIE_OK ? malloc(bytes + 1) : NULL;
    if (status == MOXIE_OK && !text)
        status = cli_error(MOXIE_ERR_MEMORY, error, "", "no memory to read --adapter-ids");
    if (status == MOXIE_OK) {
        memcpy(text, data, bytes);
        text[bytes] = '\0';
        status = read_words(adapters, text, tokens, error);
    }
    free(text);
    moxie_file_free(data);
    return status;
}

moxie_status cli_adapters_create(const cli_adapters *adapters, const moxie_layer *layer, moxie_adapters **out,
                                 moxie_error *error)
{
    if (adapters->count == 0)
        return MOXIE_OK;
    moxie_status status = moxie_adapters_create(layer, adapters->count, out, error);
    for (int32_t i = 0; i < adapters->count && status == MOXIE_OK; i++)
        status = moxie_adapters_set(*out, i, &adapters->item[i].lora, error);
    return status;
}

moxie_status cli_adapters_name(cli_adapters *adapters, int64_t tokens, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    if (adapters->count == 0)
        return MOXIE_OK;
    adapters->ids = calloc((size_t)tokens + 1, sizeof *adapters->ids);
    if (!adapters->ids)
        status =
            cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for the adapters of %lld %s", CLI_COUNT(tokens, "token"));
    if (status == MOXIE_OK && adapters->ids_path)
        status = read_ids(adapters, tokens, error);
    for (int64_t t = 0; t < tokens && status == MOXIE_OK; t++)
        adapters->adapted += adapters->ids[t] >= 0;
    return status;
}

void cli_adapters_free(cli_adapters *adapters)
{
    moxie_adapters_destroy(adapters->adapters);
    for (int32_t i = 0; i < adapters->count; i++)
        moxie_adapter_files_close(adapters->item[i].files);
    free(adapters->ids);
    adapters->adapters = NULL;
    adapters->ids = NULL;
    adapters->count = 0;
}
