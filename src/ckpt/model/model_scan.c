/* SPDX-License-Identifier: Apache-2.0
 *
 * model_scan.c - which layers are mixtures of experts: those with a router or an expert among their tensors.
 *
 *     "model.layers.{L}." + "mlp.gate.weight"            a router, whole name
 *                           "mlp.experts." digit ...      an expert
 *                           "mlp.experts.gate_up_proj" end, '.' or '_'    stacked experts
 *                           "mlp.gate.e_score_correction_bias"            whole name; some spellings differ in it only
 *
 * Configuration patterns (first_k_dense_replace, moe_layer_freq, hybrid_override_pattern, ...) are not needed for this,
 * and are wrong in some releases. If a layer exists in two spellings, the one with more tensors counts.
 */
#include "ckpt/model/model_scan.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/sizes.h"

/* No model has more layers; the limit keeps the number within its printed form. */
#define MAX_LAYER 999999

/* A spelling of a layer, and how many tensors have it. */
typedef struct layer_hits {
    mox_layer_place place;
    int64_t count;
} layer_hits;

typedef struct hit_list {
    layer_hits *items;
    uint64_t count, room;
} hit_list;

const char *mox_model_after_prefix(const char *prefix, const char *name, int64_t *layer)
{
    const char *hole = strstr(prefix, "{L}");
    const size_t head = (size_t)(hole - prefix), tail = strlen(hole + 3);
    if (strncmp(name, prefix, head) != 0 || !isdigit((unsigned char)name[head]))
        return NULL;
    name += head;
    *layer = 0;
    while (isdigit((unsigned char)*name) && *layer <= MAX_LAYER)
        *layer = *layer * 10 + (*name++ - '0');
    return *layer <= MAX_LAYER && strncmp(name, hole + 3, tail) == 0 ? name + tail : NULL;
}

/* True when `rest` starts like the template. With {e}: the text before it, then a digit. Without: the whole text, then
 * the end of a word. */
static bool matches_template(const char *name_template, const char *rest)
{
    if (!name_template)
        return false;
    const char *hole = strstr(name_template, "{e}");
    const size_t head = hole ? (size_t)(hole - name_template) : strlen(name_template);
    if (strncmp(rest, name_template, head) != 0)
        return false;
    const char next = rest[head];
    return hole ? isdigit((unsigned char)next) : next == 0 || next == '.' || next == '_';
}

static bool names_layer(const mox_names *names, const char *rest)
{
    return (names->router && strcmp(names->router, rest) == 0) ||
           (names->correction_bias && strcmp(names->correction_bias, rest) == 0) || matches_template(names->up, rest) ||
           matches_template(names->gate, rest) || matches_template(names->fused_gate_up, rest);
}

static bool same_place(const mox_layer_place *a, const mox_layer_place *b)
{
    return a->layer == b->layer && a->prefix == b->prefix && a->other == b->other;
}

static bool push(hit_list *list, mox_layer_place place)
{
    if (list->count > 0 && same_place(&list->items[list->count - 1].place, &place)) {
        list->items[list->count - 1].count++;
        return true;
    }
    if (list->count == list->room) {
        const uint64_t room = list->room ? list->room * 2 : 256;
        uint64_t bytes;
        layer_hits *items = mox_mul_u64(room, sizeof *items, &bytes) ? mox_realloc(list->items, bytes) : NULL;
        if (!items)
            return false;
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = (layer_hits) { place, 1 };
    return true;
}

static bool collect(const moxie_model *model, hit_list *list)
{
    const mox_family *family = model->family;
    for (int64_t i = 0; i < mox_tensor_set_count(model->set); i++) {
        const char *name = mox_tensor_set_at(model->set, i)->name;
        for (int32_t p = 0; p < MOX_MAX_SPELLINGS && family->prefixes[p]; p++) {
            mox_layer_place place = { .prefix = p };
            const char *rest = mox_model_after_prefix(family->prefixes[p], name, &place.layer);
            for (place.other = 0; rest && place.other < 2; place.other++)
                if (names_layer(place.other ? &family->other_names : &family->names, rest) && !push(list, place))
                    return false;
        }
    }
    return true;
}

static int by_place(const void *a, const void *b)
{
    const mox_layer_place *x = &((const layer_hits *)a)->place, *y = &((const layer_hits *)b)->place;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    const int32_t p = x->prefix * 2 + x->other, q = y->prefix * 2 + y->other;
    return p < q ? -1 : p > q;
}

/* Reduces sorted entries to one per layer: adds up equal spellings and keeps the one with most tensors. Returns their
 * number. */
static uint64_t reduce(hit_list *list)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < list->count;) {
        layer_hits sum = list->items[i++];
        while (i < list->count && same_place(&list->items[i].place, &sum.place))
            sum.count += list->items[i++].count;
        const bool again = count > 0 && list->items[count - 1].place.layer == sum.place.layer;
        if (!again)
            list->items[count++] = sum;
        else if (sum.count > list->items[count - 1].count)
            list->items[count - 1] = sum;
    }
    return count;
}

static moxie_status none_found(const moxie_model *model, moxie_error *error)
{
    char first[160] = "none", want[160];
    if (mox_tensor_set_count(model->set) > 0)
        mox_escape(first, sizeof first, mox_tensor_set_at(model->set, 0)->name);
    const mox_names *names = &model->family->names;
    if (!mox_expand_name(want, sizeof want, model->family->prefixes[0], names->router, 0, 0))
        want[0] = 0;
    return mox_fail_file(MOXIE_ERR_FORMAT, error, model->config_path, -1,
                         "no mixture-of-experts layer among %lld tensors: a %s model has names like %s; the first "
                         "tensor is %s",
                         (long long)mox_tensor_set_count(model->set), model->family->id, want, first);
}

moxie_status mox_model_scan(moxie_model *model, moxie_error *error)
{
    hit_list list = { 0 };
    moxie_status status = MOXIE_OK;
    if (!collect(model, &list)) {
        status = mox_fail(MOXIE_ERR_MEMORY, error, "no memory to list layers");
        goto out;
    }
    if (list.count == 0) {
        status = none_found(model, error);
        goto out;
    }
    qsort(list.items, list.count, sizeof *list.items, by_place);
    const uint64_t count = reduce(&list);
    model->places = mox_arena_calloc(&model->arena, count, sizeof *model->places);
    if (!model->places) {
        status = mox_fail(MOXIE_ERR_MEMORY, error, "no memory to list layers");
        goto out;
    }
    for (uint64_t i = 0; i < count; i++)
        model->places[i] = list.items[i].place;
    model->n_places = (int64_t)count;
out:
    mox_free(list.items);
    return status;
}

moxie_status mox_model_find_place(const moxie_model *model, int64_t layer, const mox_layer_place **out,
                                  moxie_error *error)
{
    for (int64_t i = 0; i < model->n_places; i++)
        if (model->places[i].layer == layer) {
            *out = &model->places[i];
            return MOXIE_OK;
        }
    const int64_t first = model->places[0].layer, last = model->places[model->n_places - 1].layer;
    MOX_FAIL_IF(first == last, MOXIE_ERR_ARGUMENT, error,
                "layer %lld is no mixture of experts; there is one, layer %lld: give that", (long long)layer,
                (long long)first);
    return mox_fail(
        MOXIE_ERR_ARGUMENT, error,
        "layer %lld is no mixture of experts; there are %lld, from layer %lld to layer %lld: give one of them",
        (long long)layer, (long long)model->n_places, (long long)first, (long long)last);
}
