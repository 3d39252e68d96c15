/* SPDX-License-Identifier: Apache-2.0
 *
 * model_expert.c - the experts of one layer: which spelling their tensors have, one format for all experts, views.
 *
 *     spelling        tensors                                    gate rows     up rows
 *     per expert      gate, up, down of every expert             all           all
 *     fused           gate_up, down stacked over experts         first half    second half
 *                                                        gpt-oss even          odd
 *     stacks          gate, up, down stacked over experts        all           all
 *
 * W13 and W2 may have different formats, experts may not. Gate and up may where one of the two formats holds the
 * other's numbers (model_pair.h). Where gate and up have a static
 * activation scale each, W13 gets the one of the larger range: the larger scale, or the smaller global in formats that
 * divide by it.
 */
#include "ckpt/model/model_expert.h"

#include <stdio.h>
#include <string.h>

#include "ckpt/model/model_join.h"
#include "ckpt/model/model_matrix.h"
#include "ckpt/model/model_pair.h"
#include "ckpt/model/model_shared.h"
#include "ckpt/model/shared_bias.h"
#include "format/block.h"

typedef enum projection { GATE, UP, DOWN } projection;
static const char *const projection_names[] = { "gate", "up", "down" };

/* State while the experts of a layer are read. */
typedef struct expert_pass {
    mox_layer_reader *reader;
    mox_expert_set *set;
    /* By projection; a matrix that holds gate and up counts as up. */
    mox_match first[3]; /* all others must equal it */
    bool have[3];
    moxie_quant quant[3]; /* as viewed */
    char first_name[3][256];
    bool may_have_bias;   /* a bias that exists is read, whatever the family says */
    bool input_scales[2]; /* of W13 and W2: some expert has a static activation scale */
} expert_pass;

static int product_of(projection p)
{
    return p == DOWN;
}

static moxie_matrix *matrix_of(moxie_expert *expert, projection p)
{
    return p == GATE ? &expert->gate : p == UP ? &expert->up : &expert->down;
}

static const mox_file_tensor *codes_of(const mox_match *match)
{
    return match->parts[0];
}

/* ---- one format for all ------------------------------------------------------------------------- */

/* Fails when one of two matrices of a format has a part of this role and the other one has not. */
static moxie_status both_have(const expert_pass *pass, const mox_match *a, const mox_match *b, mox_part_role role)
{
    char name[200], other[200];
    int p = 0;
    while (p < MOX_MAX_PARTS - 1 && a->format->parts[p].role != role && a->format->parts[p].role != MOX_PART_NONE)
        p++;
    if (a->format->parts[p].role != role || !a->parts[p] == !b->parts[p])
        return MOXIE_OK;
    const mox_match *with = a->parts[p] ? a : b, *without = a->parts[p] ? b : a;
    return mox_fail_file(
        MOXIE_ERR_MISMATCH, pass->reader->error,
        mox_tensor_set_file_name(pass->reader->model->set, with->parts[p]->file), (int64_t)with->parts[p]->offset,
        "%s exists, but %s has no such tensor beside it: both matrices need one, or neither",
        mox_escape(name, sizeof name, with->parts[p]->name), mox_escape(other, sizeof other, codes_of(without)->name));
}

static moxie_status agree(expert_pass *pass, const mox_match *match, const char *name, projection p)
{
    if (!pass->have[p]) {
        pass->first[p] = *match;
        pass->have[p] = true;
        snprintf(pass->first_name[p], sizeof pass->first_name[p], "%s", name);
        return MOXIE_OK;
    }
    const mox_match *first = &pass->first[p];
    if (mox_pair_same(match, first))
        return both_have(pass, first, match, MOX_PART_GROUP_INDEX);
    char here[200], there[200], found[96], expected[96], act[96], first_act[96];
    const mox_file_tensor *tensor = codes_of(match);
    return mox_fail_file(MOXIE_ERR_MISMATCH, pass->reader->error,
                         mox_tensor_set_file_name(pass->reader->model->set, tensor->file), (int64_t)tensor->offset,
                         "%s is %s (%s, activations %s), expected %s (%s, activations %s) as %s: the experts of a "
                         "layer must agree",
                         mox_escape(here, sizeof here, tensor->name), match->format->id,
                         mox_quant_describe(&match->weight, found, sizeof found),
                         mox_quant_describe(&match->format->act, act, sizeof act), first->format->id,
                         mox_quant_describe(&first->weight, expected, sizeof expected),
                         mox_quant_describe(&first->format->act, first_act, sizeof first_act),
                         mox_escape(there, sizeof there, pass->first_name[p]));
}

/* ---- biases ------------------------------------------------------------------------------------- */

/* "<matrix>.bias" [N]. GPTQ exporters write zeros for models without biases. */
static moxie_status matrix_bias(expert_pass *pass, const char *name, moxie_matrix *matrix)
{
    char full[300], escaped[200];
    snprintf(full, sizeof full, "%s.bias", name);
    const mox_file_tensor *tensor = mox_tensor_set_find(pass->reader->model->set, full);
    if (!tensor && !pass->set->bias)
        return MOXIE_OK;
    if (!tensor)
        return mox_fail_file(MOXIE_ERR_FORMAT, pass->reader->error, "", -1,
                             "%s is missing; experts of a %s model have biases",
                             mox_escape(escaped, sizeof escaped, full), pass->reader->model->family->id);
    moxie_grid bias;
    MOX_TRY(mox_layer_floats(pass->reader, tensor, matrix->codes.rows, 1, &bias));
    pass->set->bytes += tensor->bytes;
    if (pass->set->bias || pass->may_have_bias)
        matrix->bias = bias;
    else if (!mox_bias_is_zero(&bias))
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, pass->reader->error,
                             mox_tensor_set_file_name(pass->reader->model->set, tensor->file), (int64_t)tensor->offset,
                             "%s is not zero, but experts of a %s model have no biases",
                             mox_escape(escaped, sizeof escaped, full), pass->reader->model->family->id);
    return MOXIE_OK;
}

/* The bias of one expert, [2I] or [H] of a stacked bias, cut like its matrix. */
static moxie_status stacked_bias(expert_pass *pass, const char *name, int64_t expert, int64_t n, mox_part_rows rows,
                                 moxie_grid *out)
{
    char escaped[200];
    const mox_file_tensor *tensor = name ? mox_layer_find(pass->reader, name) : NULL;
    if (!tensor)
        return mox_fail_file(MOXIE_ERR_FORMAT, pass->reader->error, "", -1, "%s%s is absent in layer %lld",
                             pass->reader->prefix, name ? mox_escape(escaped, sizeof escaped, name) : "a bias",
                             (long long)pass->reader->layer);
    moxie_grid all;
    MOX_TRY(mox_layer_floats(pass->reader, tensor, pass->set->count, n, &all));
    moxie_grid bias = all;
    bias.data = (const char *)all.data + expert * all.row_stride;
    bias.bytes = all.bytes - (uint64_t)(expert * all.row_stride);
    bias.rows = n, bias.cols = 1;
    bias.row_stride = all.col_stride;
    int64_t one = 1;
    mox_grid_select_rows(&bias, rows, n, &one);
    pass->set->bytes += (uint64_t)(bias.rows * mox_dtype_bytes(bias.dtype));
    *out = bias;
    return MOXIE_OK;
}

/* ---- one matrix of one expert ------------------------------------------------------------------- */

static moxie_status place_matrix(expert_pass *pass, const mox_match *match, const mox_part_place *place, projection p,
                                 mox_part_rows rows, int64_t expert)
{
    moxie_expert *e = &pass->set->experts[expert];
    moxie_matrix *matrix = matrix_of(e, p);
    moxie_quant weight;
    char what[64];
    MOX_TRY(mox_read_matrix(pass->reader, match, place, rows, matrix, &weight));
    pass->quant[p] = weight;
    const bool half = rows != MOX_ROWS_ALL;
    snprintf(what, sizeof what, "layer %lld expert %lld %s", (long long)pass->reader->layer, (long long)expert,
             projection_names[p]);
    moxie_status status =
        mox_matrix_check(matrix, &weight, half ? place->n / 2 : place->n, place->k, false, what, pass->reader->error);
    if (status != MOXIE_OK)
        return status;
    const float scale = mox_read_input_scale(match, place);
    if (scale == 0)
        return MOXIE_OK;
    pass->input_scales[product_of(p)] = true;
    float *target = p == DOWN ? &e->a2_scale : &e->a13_scale;
    const bool divides = match->format->act.global == MOXIE_GLOBAL_DIVIDE;
    pass->set->merged += *target != 0 && *target != scale;
    if (*target == 0 || (divides ? scale < *target : scale > *target))
        *target = scale;
    return MOXIE_OK;
}

/* ---- the three spellings ------------------------------------------------------------------------ */

typedef struct three_names {
    const char *name[3]; /* by projection; gate NULL: ungated */
    int64_t wide, narrow;
} three_names;

static mox_wanted wanted_of(const three_names *names, projection p, const char *name)
{
    const bool down = p == DOWN;
    return (
        mox_wanted) { .name = name, .n = down ? names->wide : names->narrow, .k = down ? names->narrow : names->wide };
}

static moxie_status read_expert(expert_pass *pass, const three_names *names, int64_t index, int64_t expert)
{
    mox_match match, gate = { 0 };
    for (projection p = GATE; p <= DOWN; p++) {
        char name[256];
        if (!names->name[p])
            continue;
        MOX_TRY(mox_layer_name(pass->reader, names->name[p], expert, name, sizeof name));
        const mox_wanted wanted = wanted_of(names, p, name);
        MOX_TRY(mox_match_matrix(&pass->reader->matcher, &wanted, &match, pass->reader->error));
        MOX_TRY(agree(pass, &match, name, p));
        /* W13 has one static scale. Other programs take 1 for an absent one, which is not what the other matrix has. */
        if (p == UP && names->name[GATE] && strcmp(gate.format->id, match.format->id) == 0)
            MOX_TRY(both_have(pass, &gate, &match, MOX_PART_INPUT_SCALE));
        gate = match;
        const mox_part_place place = { .n = wanted.n, .k = wanted.k };
        MOX_TRY(place_matrix(pass, &match, &place, p, MOX_ROWS_ALL, index));
        MOX_TRY(matrix_bias(pass, name, matrix_of(&pass->set->experts[index], p)));
        pass->set->bytes += mox_match_bytes(&match);
    }
    return MOXIE_OK;
}

static moxie_status read_each(expert_pass *pass, const three_names *names)
{
    for (int64_t e = 0; e < pass->set->count; e++)
        MOX_TRY(read_expert(pass, names, e, e));
    char beyond[256];
    MOX_TRY(mox_layer_name(pass->reader, names->name[DOWN], pass->set->count, beyond, sizeof beyond));
    if (!mox_layer_has_images(pass->reader) && mox_match_exists(&pass->reader->matcher, beyond, false))
        return mox_fail_file(MOXIE_ERR_MISMATCH, pass->reader->error, pass->reader->model->config_path, -1,
                             "config says %lld experts, but %s exists", (long long)pass->set->count, beyond);
    return MOXIE_OK;
}

/* "<stack>.bias" [E, N] of each stack. Where the first stack has one, all need one. */
static moxie_status read_stacked_biases(expert_pass *pass, const three_names *names)
{
    char name[256];
    snprintf(name, sizeof name, "%s.bias", names->name[DOWN]);
    if (!pass->set->bias && !mox_layer_find(pass->reader, name))
        return MOXIE_OK;
    pass->set->bias = true;
    for (projection p = GATE; p <= DOWN; p++) {
        if (!names->name[p])
            continue;
        snprintf(name, sizeof name, "%s.bias", names->name[p]);
        for (int64_t e = 0; e < pass->set->count; e++)
            MOX_TRY(stacked_bias(pass, name, e, p == DOWN ? names->wide : names->narrow, MOX_ROWS_ALL,
                                 &matrix_of(&pass->set->experts[e], p)->bias));
    }
    return MOXIE_OK;
}

static moxie_status read_stacks(expert_pass *pass, const three_names *names)
{
    const bool merged = pass->reader->model->family->fused == MOX_FUSED_STACKED_ROWS;
    for (projection p = GATE; p <= DOWN; p++) {
        char name[256];
        mox_match match;
        if (!names->name[p])
            continue;
        MOX_TRY(mox_layer_name(pass->reader, names->name[p], -1, name, sizeof name));
        mox_wanted wanted = wanted_of(names, p, name);
        wanted.stacked = pass->set->count;
        wanted.in_out = merged && p == DOWN;
        MOX_TRY(mox_match_matrix(&pass->reader->matcher, &wanted, &match, pass->reader->error));
        MOX_TRY(agree(pass, &match, name, p));
        pass->set->bytes += mox_match_bytes(&match);
        for (int64_t e = 0; e < pass->set->count; e++) {
            const mox_part_place place = {
                .n = wanted.n, .k = wanted.k, .stacked = wanted.stacked, .expert = e, .in_out = wanted.in_out
            };
            MOX_TRY(place_matrix(pass, &match, &place, p, MOX_ROWS_ALL, e));
        }
    }
    return read_stacked_biases(pass, names);
}

typedef struct fused_pair {
    char gate_up[256], down[256];
    mox_wanted wanted[2]; /* gate_up, down */
    mox_match match[2];
} fused_pair;

static moxie_status match_fused(expert_pass *pass, fused_pair *pair, bool in_out, moxie_error *error)
{
    for (int i = 0; i < 2; i++) {
        pair->wanted[i].in_out = in_out;
        MOX_TRY(mox_match_matrix(&pass->reader->matcher, &pair->wanted[i], &pair->match[i], error));
    }
    return MOXIE_OK;
}

/* [E, 2I, H] or [E, H, 2I]: one name alone can be ambiguous (H = 2I, or H = I), both together never are. */
static moxie_status find_fused(expert_pass *pass, fused_pair *pair)
{
    const bool usual = pass->reader->model->family->fused == MOX_FUSED_IN_OUT;
    for (int in_out = 0; in_out <= 1; in_out++) {
        const moxie_status status = match_fused(pass, pair, in_out, NULL);
        if (status == MOXIE_OK)
            return MOXIE_OK;
        if (status == MOXIE_ERR_MEMORY)
            return mox_fail(status, pass->reader->error, "no memory to detect formats");
    }
    return match_fused(pass, pair, usual, pass->reader->error);
}

static moxie_status read_fused(expert_pass *pass, int64_t width)
{
    const mox_layer_reader *r = pass->reader;
    const mox_names *names = r->names;
    const int64_t i = r->dims.intermediate;
    const bool alternate = r->model->family->interleaved;
    fused_pair pair;
    MOX_TRY(mox_layer_name(r, names->fused_gate_up, -1, pair.gate_up, sizeof pair.gate_up));
    MOX_TRY(mox_layer_name(r, names->fused_down, -1, pair.down, sizeof pair.down));
    pair.wanted[0] = (mox_wanted) { .name = pair.gate_up, .n = 2 * i, .k = width, .stacked = pass->set->count };
    pair.wanted[1] = (mox_wanted) { .name = pair.down, .n = width, .k = i, .stacked = pass->set->count };
    MOX_TRY(find_fused(pass, &pair));
    for (int m = 0; m < 2; m++) {
        MOX_TRY(agree(pass, &pair.match[m], pair.wanted[m].name, m ? DOWN : UP));
        pass->set->bytes += mox_match_bytes(&pair.match[m]);
    }
    for (int64_t e = 0; e < pass->set->count; e++)
        for (projection p = GATE; p <= DOWN; p++) {
            const mox_wanted *wanted = &pair.wanted[product_of(p)];
            const mox_part_rows rows = p == DOWN   ? MOX_ROWS_ALL
                                       : alternate ? (p == GATE ? MOX_ROWS_EVEN : MOX_ROWS_ODD)
                                                   : (p == GATE ? MOX_ROWS_FIRST_HALF : MOX_ROWS_SECOND_HALF);
            const mox_part_place place = {
                .n = wanted->n, .k = wanted->k, .stacked = wanted->stacked, .expert = e, .in_out = wanted->in_out
            };
            MOX_TRY(place_matrix(pass, &pair.match[product_of(p)], &place, p, rows, e));
            const char *bias = p == DOWN ? names->fused_down_bias : names->fused_gate_up_bias;
            if (pass->set->bias)
                MOX_TRY(stacked_bias(pass, bias, e, wanted->n, rows, &matrix_of(&pass->set->experts[e], p)->bias));
        }
    return MOXIE_OK;
}

/* ---- activations -------------------------------------------------------------------------------- */

/* The activations that llama.cpp multiplies such weights by: Q8_K for blocks of 256 weights, else Q8_0; none for
 * weights that are not quantized. */
static moxie_quant as_ggml(const moxie_quant *weight)
{
    if (mox_quant_is_plain(weight) && !mox_quant_is_block(weight))
        return (moxie_quant) { 0 };
    const bool large = mox_quant_is_block(weight) && mox_block_of(weight->element)->weights == MOX_BLOCK_MAX;
    return (moxie_quant) { .element = MOXIE_I8,
                           .scale = large ? MOXIE_F32 : MOXIE_F16,
                           .group_rows = 1,
                           .group_cols = large ? MOX_BLOCK_MAX : 32,
                           .rule = large ? MOXIE_RULE_INVERSE : MOXIE_RULE_DEFAULT };
}

/* Gate and up share their activations, which ggml would quantize twice where their types ask for different ones. */
static moxie_status check_ggml(const expert_pass *pass, projection p)
{
    const mox_hf_quant *gate = pass->first[GATE].format, *up = pass->first[UP].format;
    if (p == DOWN || !pass->have[GATE])
        return MOXIE_OK;
    const moxie_quant a = as_ggml(&gate->weight), b = as_ggml(&up->weight);
    if (memcmp(&a, &b, sizeof a) == 0)
        return MOXIE_OK;
    return mox_fail_file(MOXIE_ERR_UNSUPPORTED, pass->reader->error, pass->reader->model->config_path, -1,
                         "layer %lld: ggml quantizes the activations of %s (%s) and of %s (%s) in different ways, and "
                         "here both have the same: ask for 16-bit activations",
                         (long long)pass->reader->layer, pass->first_name[GATE], gate->id, pass->first_name[UP],
                         up->id);
}

/* Quantization of the activations into a projection's product. If the format has static scales but no expert has one,
 * the format is another: weights only, or dynamic scales. */
static moxie_status resolve_act(expert_pass *pass, projection p, moxie_quant *act, const char **name)
{
    const int product = product_of(p);
    const mox_hf_quant *format = pass->first[p].format;
    const bool plain = pass->reader->model->activations == MOXIE_ACTIVATIONS_16BIT;
    if (!pass->input_scales[product] && format->without_input)
        format = mox_match_other(&pass->reader->matcher, &pass->first[p], format->without_input);
    if (format && format->act_problem && !plain)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, pass->reader->error, pass->reader->model->config_path, -1,
                             "the quantization config does not say how the activations of %s (%s) are quantized: %s; "
                             "correct it, or ask for 16-bit activations",
                             pass->first_name[p], format->id, format->act_problem);
    if (!format || (!pass->input_scales[product] && format->act.is_static && !plain))
        return mox_fail_file(MOXIE_ERR_FORMAT, pass->reader->error, "", -1,
                             "layer %lld: the quantization config says that activations have static scales, but no "
                             "expert has one (an input_scale next to %s)",
                             (long long)pass->reader->layer, pass->first_name[p]);
    *act = plain ? (moxie_quant) { 0 } : format->act;
    if (pass->reader->model->activations == MOXIE_ACTIVATIONS_GGML) {
        MOX_TRY(check_ggml(pass, p));
        *act = as_ggml(&format->weight);
    }
    *name = format->id;
    return MOXIE_OK;
}

/* Sets set->w13. *wide is the one of gate and up whose format W13 has then. */
static moxie_status join_pair(expert_pass *pass, projection *wide)
{
    *wide = UP;
    pass->set->w13 = pass->quant[UP];
    if (!pass->have[GATE] || mox_pair_same(&pass->first[GATE], &pass->first[UP]))
        return pass->have[GATE] ? both_have(pass, &pass->first[GATE], &pass->first[UP], MOX_PART_GROUP_INDEX)
                                : MOXIE_OK;
    const mox_pair pair = { .match = { &pass->first[GATE], &pass->first[UP] },
                            .quant = { pass->quant[GATE], pass->quant[UP] },
                            .name = { pass->first_name[GATE], pass->first_name[UP] } };
    int which;
    if (mox_pair_needs_floats(pass->reader, &pair)) {
        pass->quant[GATE] = pass->quant[UP] = pass->set->w13 = (moxie_quant) { .element = MOXIE_F32 };
        return mox_pair_to_floats(pass->reader, &pair, pass->set->experts, pass->set->count, &pass->set->note);
    }
    MOX_TRY(mox_pair_widen(pass->reader, &pair, pass->set->experts, pass->set->count, &which, &pass->set->note));
    *wide = which == 0 ? GATE : UP;
    pass->set->w13 = pass->quant[*wide];
    return MOXIE_OK;
}

static moxie_status finish(expert_pass *pass)
{
    mox_expert_set *set = pass->set;
    const char *format[2] = { "", "" };
    projection wide;
    MOX_TRY(join_pair(pass, &wide));
    set->w2 = pass->quant[DOWN];
    MOX_TRY(resolve_act(pass, wide, &set->a13, &format[0]));
    MOX_TRY(resolve_act(pass, DOWN, &set->a2, &format[1]));
    set->format = format[0];
    if (!set->note)
        set->note = mox_hf_quant_by_id(format[0])->note;
    if (!set->a13.is_static)
        set->merged = 0;
    for (int64_t e = 0; e < set->count; e++) {
        if (!set->a13.is_static)
            set->experts[e].a13_scale = 0;
        if (!set->a2.is_static)
            set->experts[e].a2_scale = 0;
    }
    return MOXIE_OK;
}

static moxie_status begin(mox_layer_reader *reader, int64_t count, mox_expert_set *set, expert_pass *pass)
{
    *set = (mox_expert_set) { .count = count };
    *pass = (expert_pass) { .reader = reader, .set = set };
    set->experts = mox_arena_calloc(reader->arena, (uint64_t)count, sizeof *set->experts);
    MOX_FAIL_IF(!set->experts, MOXIE_ERR_MEMORY, reader->error, "no memory for %lld experts", (long long)count);
    return MOXIE_OK;
}

moxie_status mox_read_routed(mox_layer_reader *reader, mox_expert_set *out)
{
    const mox_names *names = reader->names;
    const three_names three = { .name = { names->gate, names->up, names->down },
                                .wide = reader->dims.expert_width,
                                .narrow = reader->dims.intermediate };
    expert_pass pass;
    char fused[256];
    MOX_TRY(begin(reader, reader->dims.experts, out, &pass));
    out->bias = reader->model->family->expert_bias;
    if (names->fused_gate_up)
        MOX_TRY(mox_layer_name(reader, names->fused_gate_up, -1, fused, sizeof fused));
    if (names->fused_gate_up && (!names->up || mox_match_exists(&reader->matcher, fused, true)))
        MOX_TRY(read_fused(&pass, three.wide));
    else if (!strstr(names->up, "{e}"))
        MOX_TRY(read_stacks(&pass, &three));
    else
        MOX_TRY(read_each(&pass, &three));
    return finish(&pass);
}

/* Gate and up rows of the shared expert in one matrix. */
static moxie_status read_shared_pair(expert_pass *pass, const three_names *names, const char *gate_up)
{
    mox_match match;
    const mox_wanted wanted = { .name = gate_up, .n = 2 * names->narrow, .k = names->wide };
    const mox_part_place place = { .n = wanted.n, .k = wanted.k };
    MOX_TRY(mox_match_matrix(&pass->reader->matcher, &wanted, &match, pass->reader->error));
    MOX_TRY(agree(pass, &match, gate_up, UP));
    MOX_TRY(place_matrix(pass, &match, &place, GATE, MOX_ROWS_FIRST_HALF, 0));
    MOX_TRY(place_matrix(pass, &match, &place, UP, MOX_ROWS_SECOND_HALF, 0));
    pass->set->bytes += mox_match_bytes(&match);
    return MOXIE_OK;
}

/* Shared experts in tensors of their own, joined into one. */
static moxie_status read_numbered(expert_pass *pass, const three_names *whole, int64_t count)
{
    char text[3][160];
    three_names each = { .wide = whole->wide, .narrow = whole->narrow / count };
    MOX_TRY(begin(pass->reader, count, pass->set, pass));
    for (projection p = GATE; p <= DOWN; p++) {
        if (!whole->name[p])
            continue;
        MOX_TRY(mox_shared_numbered_name(pass->reader, whole->name[p], text[p], sizeof text[p]));
        each.name[p] = text[p];
    }
    for (int64_t e = 0; e < count; e++)
        MOX_TRY(read_expert(pass, &each, e, e));
    MOX_TRY(finish(pass));
    const mox_join join = { .experts = pass->set->experts,
                            .count = count,
                            .width = each.narrow,
                            .w13 = &pass->set->w13,
                            .w2 = &pass->set->w2,
                            .a2 = &pass->set->a2 };
    pass->set->count = 1;
    return mox_join_experts(pass->reader, &join);
}

moxie_status mox_read_shared(mox_layer_reader *reader, mox_expert_set *out)
{
    char gate_up[256];
    const mox_names *names = reader->names;
    const three_names three = { .name = { mox_shared_gate_name(reader), names->shared_up, names->shared_down },
                                .wide = reader->dims.hidden,
                                .narrow = reader->dims.shared_intermediate };
    expert_pass pass;
    MOX_TRY(begin(reader, 1, out, &pass));
    const int64_t numbered = mox_shared_numbered(reader);
    if (numbered > 0)
        return read_numbered(&pass, &three, numbered);
    pass.may_have_bias = true;
    if (names->shared_gate_up) {
        MOX_TRY(mox_layer_name(reader, names->shared_gate_up, -1, gate_up, sizeof gate_up));
        MOX_TRY(read_shared_pair(&pass, &three, gate_up));
    }
    MOX_TRY(read_expert(&pass, &three, 0, -1));
    MOX_TRY(mox_find_shared_bias(reader, &out->experts[0], out->shared_bias));
    return finish(&pass);
}
