/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_configs.c - the checkpoint's configuration files. A prepared directory holds them, so that `moxie prepare
 * --undo` can restore the checkpoint.
 */
#include "prepare.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

/* The model reader's limit; the largest known config.json has 3 MB. */
enum { MAX_BYTES = 64 << 20 };

static const char *const names[] = { "config.json", "hf_quant_config.json", "quantize_config.json" };
enum { N_NAMES = sizeof names / sizeof names[0] };

const char *prepare_config_name(int i)
{
    return i < N_NAMES ? names[i] : NULL;
}

typedef struct content {
    char *text; /* NULL: there is no such file */
    uint64_t size;
} content;

/* `dir` may be a GGUF file, which has its configuration in itself. */
static moxie_status read_config(const char *dir, const char *name, content *out, moxie_error *error)
{
    char path[PATH_MAX];
    struct stat info;
    *out = (content) { 0 };
    if (stat(dir, &info) == 0 && S_ISREG(info.st_mode))
        return MOXIE_OK;
    if (!moxie_file_exists(prepare_path(dir, name, path)))
        return MOXIE_OK;
    return moxie_file_read(path, MAX_BYTES, &out->text, &out->size, error);
}

/* What one configuration says: 1, 0, or -1 for nothing. GPTQ's own file has no "quant_method". */
static int symmetric_in(const json_t *config, bool own_file)
{
    const json_t *quant = json_object_get(config, "quantization_config");
    if (!quant)
        quant = json_object_get(json_object_get(config, "text_config"), "quantization_config");
    if (!quant && own_file)
        quant = config;
    const char *method = json_string_value(json_object_get(quant, "quant_method"));
    const json_t *sym = json_object_get(quant, "sym"), *zero_point = json_object_get(quant, "zero_point");
    if ((method ? !strcmp(method, "gptq") : own_file) && json_is_boolean(sym))
        return json_is_true(sym);
    if (method && !strcmp(method, "awq") && json_is_boolean(zero_point))
        return json_is_false(zero_point);
    return -1;
}

moxie_status prepare_configs_symmetric(const char *dir, prepare_how *how, moxie_error *error)
{
    int found = -1;
    moxie_status status = MOXIE_OK;
    for (int i = 0; status == MOXIE_OK && found < 0 && i < N_NAMES; i++) {
        content config;
        json_t *object = NULL;
        moxie_error ignored; /* the model's reader says what is wrong with a configuration */
        status = read_config(dir, names[i], &config, error);
        if (config.text && cli_json_parse(config.text, (size_t)config.size, names[i], &object, &ignored) == MOXIE_OK)
            found = symmetric_in(object, !strcmp(names[i], "quantize_config.json"));
        json_decref(object);
        moxie_file_free(config.text);
    }
    how->symmetric = found == 1;
    return status;
}

/* A file that cannot be looked at is not taken for one that is there. */
static moxie_status find(const char *path, bool *found, moxie_error *error)
{
    struct stat info;
    *found = lstat(path, &info) == 0;
    if (*found || errno == ENOENT)
        return MOXIE_OK;
    return cli_error(MOXIE_ERR_IO, error, path, "%s", strerror(errno));
}

moxie_status prepare_configs_copy(const char *from, const char *to, moxie_error *error)
{
    char path[PATH_MAX];
    moxie_status status = MOXIE_OK;
    for (int i = 0; status == MOXIE_OK && i < N_NAMES; i++) {
        content config = { 0 };
        bool found;
        status = find(prepare_path(to, names[i], path), &found, error);
        if (status == MOXIE_OK && found)
            continue;
        if (status == MOXIE_OK)
            status = read_config(from, names[i], &config, error);
        if (status == MOXIE_OK && config.text)
            status = moxie_file_write(path, config.text, config.size, error);
        moxie_file_free(config.text);
    }
    return status;
}

moxie_status prepare_configs_compare(const char *from, const char *to, bool all, bool *equal, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    *equal = true;
    for (int i = 0; status == MOXIE_OK && *equal && i < N_NAMES; i++) {
        content a, b = { 0 };
        status = read_config(from, names[i], &a, error);
        if (status == MOXIE_OK)
            status = read_config(to, names[i], &b, error);
        if (status == MOXIE_OK && b.text)
            *equal = a.text && a.size == b.size && !memcmp(a.text, b.text, (size_t)a.size);
        else
            *equal = !all || !a.text;
        moxie_file_free(a.text);
        moxie_file_free(b.text);
    }
    return status;
}
