/* SPDX-License-Identifier: Apache-2.0
 *
 * unread.c - finds the tensors of a layer's MoE block that nothing has read. A scale or a bias that a reader does not
 * know would make results wrong without a word, so such a layer is refused by name.
 *
 *     name behind the prefix          module      in the block, because
 *     mlp.gate.mystery_bias           mlp         names of the family begin so
 *     shared_mlp.input_linear.weight  shared_mlp  unread_tensors.def: it contains "mlp"
 *     self_attn.k_scale               self_attn   -
 *
 * Readers mark what they use (mox_layer_mark). A layer may have others: those of unread_tensors.def; the
 * projections of latent layers and the shared expert beside them, which are not part of moxie's layer; experts that are
 * numbered on from those of the layer; tensors without elements.
 */
#include "ckpt/model/unread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/model/model_scan.h"
#include "ckpt/name_pattern.h"

/* ---- what belongs to the block ------------------------------------------------------------------ */

/* The templates of a family's names as a list. mox_names holds nothing but them. */
static const char *const *templates_of(const mox_names *names, size_t *count)
{
    *count = sizeof *names / sizeof(const char *);
    return (const char *const *)names;
}

static size_t module_length(const char *name)
{
    return strcspn(name, ".");
}

static bool has_module_of(const mox_names *names, const char *rest)
{
    size_t count;
    const char *const *templates = templates_of(names, &count);
    const size_t length = module_length(rest);
    for (size_t i = 0; i < count; i++)
        if (templates[i] && module_length(templates[i]) == length && strncmp(templates[i], rest, length) == 0)
            return true;
    return false;
}

static bool has_block_word(const char *rest)
{
#define MOX_BLOCK_WORD(word) word,
#define MOX_UNREAD_TENSOR(family, pattern, reason)
    static const char *const words[] = {
#include "ckpt/model/unread_tensors.def"
    };
#undef MOX_BLOCK_WORD
#undef MOX_UNREAD_TENSOR
    char module[64];
    const size_t length = module_length(rest);
    if (length >= sizeof module)
        return true; /* no known module has so long a name */
    memcpy(module, rest, length);
    module[length] = 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(module, words[i]))
            return true;
    return false;
}

/* ---- what is excused ---------------------------------------------------------------------------- */

static bool is_listed(const mox_family *family, const char *rest)
{
#define MOX_BLOCK_WORD(word)
#define MOX_UNREAD_TENSOR(family, pattern, reason) { family, pattern },
    static const struct {
        const char *family, *pattern;
    } listed[] = {
#include "ckpt/model/unread_tensors.def"
    };
#undef MOX_BLOCK_WORD
#undef MOX_UNREAD_TENSOR
    for (size_t i = 0; i < sizeof listed / sizeof listed[0]; i++)
        if ((!listed[i].family || strcmp(listed[i].family, family->id) == 0) && mox_name_fits(listed[i].pattern, rest))
            return true;
    return false;
}

/* True when `rest` is the tensor `name`, or a part of the matrix "name.weight". */
static bool is_of(const char *name, const char *rest)
{
    if (!name)
        return false;
    const size_t length = strlen(name), tail = sizeof ".weight" - 1;
    const bool plain = length > tail && strcmp(name + length - tail, ".weight") == 0;
    const size_t stem = plain ? length - tail : length;
    return strncmp(name, rest, stem) == 0 && (rest[stem] == 0 || rest[stem] == '.');
}

/* Experts that are numbered on from those of the layer: all of image tokens, or Z zero experts. transformers saves gate
 * and up of LongCat's zero experts, which its code does not read. */
static bool is_expert_past_end(const mox_layer_reader *reader, const char *rest)
{
    const mox_dims *dims = &reader->dims;
    const char *name = reader->names->up, *hole = name ? strstr(name, "{e}") : NULL;
    if (!hole || strncmp(name, rest, (size_t)(hole - name)) != 0)
        return false;
    const int64_t expert = strtoll(rest + (hole - name), NULL, 10), past = expert - dims->experts;
    return past >= 0 && (mox_layer_has_images(reader) || past < dims->zero_experts);
}

/* Tensors that the family names and that stay outside a layer here. */
static bool is_outside_layer(const mox_layer_reader *reader, const char *rest)
{
    const mox_names *names = reader->names;
    const char *const outside[] = { names->latent_in, names->latent_out, names->latent_norm };
    const char *const shared[] = { names->shared_gate, names->shared_up, names->shared_down,
                                   names->shared_expert_gate };
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++)
        if (is_of(outside[i], rest))
            return true;
    for (size_t i = 0; reader->dims.expert_width != reader->dims.hidden && i < sizeof shared / sizeof shared[0]; i++)
        if (is_of(shared[i], rest))
            return true;
    return false;
}

/* ---- the layer's tensors ------------------------------------------------------------------------ */

static bool is_unread(const mox_layer_reader *reader, int64_t i)
{
    const mox_family *family = reader->model->family;
    int64_t layer = -1;
    if (reader->read[i])
        return false;
    const mox_file_tensor *tensor = mox_tensor_set_at(reader->model->set, i);
    const char *rest = mox_model_after_prefix(reader->prefix, tensor->name, &layer);
    if (!rest || layer != reader->layer || tensor->bytes == 0)
        return false;
    if (reader->model->experts_only && !mox_model_is_expert_tensor(reader->names, rest))
        return false;
    const bool in_block =
        has_module_of(&family->names, rest) || has_module_of(&family->other_names, rest) || has_block_word(rest);
    return in_block && !is_listed(family, rest) && !is_outside_layer(reader, rest) && !is_expert_past_end(reader, rest);
}

static moxie_status refuse(const mox_layer_reader *reader)
{
    char first[200], more[64] = "";
    const int64_t others = reader->out->info.n_unread - 1;
    const mox_file_tensor *tensor = mox_tensor_set_find(reader->model->set, reader->out->unread[0]);
    if (others > 0)
        snprintf(more, sizeof more, " (nor %lld other %s of the layer)", (long long)others,
                 others == 1 ? "tensor" : "tensors");
    return mox_fail_file(MOXIE_ERR_UNSUPPORTED, reader->error,
                         mox_tensor_set_file_name(reader->model->set, tensor->file), (int64_t)tensor->offset,
                         "%s belongs to the experts or the router of layer %lld, but a %s layer has no use for it "
                         "here%s; without it results can be wrong. To go on all the same: allow_unread, or "
                         "--allow-unread",
                         mox_escape(first, sizeof first, tensor->name), (long long)reader->layer,
                         reader->model->family->id, more);
}

moxie_status mox_check_unread(mox_layer_reader *reader)
{
    moxie_model_layer *out = reader->out;
    const mox_tensor_set *set = reader->model->set;
    int64_t count = 0;
    for (int64_t i = 0; i < mox_tensor_set_count(set); i++)
        count += is_unread(reader, i);
    if (count == 0)
        return MOXIE_OK;
    out->unread = mox_arena_calloc(reader->arena, (uint64_t)count, sizeof *out->unread);
    MOX_FAIL_IF(!out->unread, MOXIE_ERR_MEMORY, reader->error, "no memory for %lld names", (long long)count);
    for (int64_t i = 0; i < mox_tensor_set_count(set); i++)
        if (is_unread(reader, i))
            out->unread[out->info.n_unread++] = mox_tensor_set_at(set, i)->name;
    return reader->model->allow_unread ? MOXIE_OK : refuse(reader);
}
