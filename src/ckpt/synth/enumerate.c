/* SPDX-License-Identifier: Apache-2.0
 *
 * enumerate.c - lists every tensor of one MoE layer as a release of that family in that format has it.
 *
 *     router [E, H] | router bias [E] | correction bias [E] or [1, E], or table [vocab, K] in hash layers | ...
 *     experts, one of:   per expert e: gate, up [I, X], down [X, I], each in the parts of the format
 *                        fused: gate_up [E, 2I, X], down [E, X, I] (or both with the last two axes swapped), biases
 *                        DBRX, Step: gate, up, down each stacked over all experts
 *     shared gate, up [S, H], down [H, S] | shared expert gate [1, H] | latent projections
 */
#include <string.h>

#include "ckpt/families/tables.h"

typedef struct listing {
    const mox_family *family;
    const mox_dims *dims;
    int64_t layer;
    moxie_status (*visit)(void *user, const mox_tensor_spec *spec, moxie_error *error);
    void *user;
    moxie_error *error;
} listing;

/* One stored matrix [n, k] whose parts are listed. */
typedef struct stored_matrix {
    const char *name;
    mox_tensor_kind kind;
    const mox_hf_quant *format;
    int64_t n, k, expert, stacked;
    bool in_out;
    bool merged;      /* [E * n, k] instead of [E, n, k] */
    bool fused_names; /* use the suffixes of stacked tensors */
} stored_matrix;

static moxie_status name_spec(const listing *w, const char *name, int64_t expert, const char *suffix,
                              mox_tensor_spec *spec)
{
    const size_t size = sizeof spec->name;
    if (!mox_expand_name(spec->name, size, w->family->prefixes[0], name, w->layer, expert) ||
        strlen(spec->name) + strlen(suffix) >= size)
        return mox_fail(MOXIE_ERR_ARGUMENT, w->error, "the name of %s in layer %lld is too long", name,
                        (long long)w->layer);
    strcat(spec->name, suffix);
    return MOXIE_OK;
}

static moxie_status plain(const listing *w, const char *name, mox_tensor_kind kind, moxie_dtype dtype, int32_t rank,
                          int64_t a, int64_t b)
{
    if (!name)
        return MOXIE_OK;
    mox_tensor_spec spec = {
        .dtype = dtype, .rank = rank, .shape = { a, rank > 1 ? b : 0 }, .kind = kind, .expert = -1
    };
    spec.interleaved = kind == MOX_TENSOR_GATE_UP_BIAS && w->family->interleaved;
    MOX_TRY(name_spec(w, name, -1, "", &spec));
    return w->visit(w->user, &spec, w->error);
}

static moxie_status matrix(const listing *w, const stored_matrix *m)
{
    const moxie_quant weight = mox_hf_quant_weight(m->format, m->k);
    for (int i = 0; i < MOX_MAX_PARTS && m->format->parts[i].role != MOX_PART_NONE; i++) {
        const mox_part *part = &m->format->parts[i];
        if (part->unwritten)
            continue;
        mox_tensor_spec spec = { .dtype = part->file[0],
                                 .kind = m->kind,
                                 .part = part,
                                 .format = m->format,
                                 .expert = m->expert,
                                 .rows = m->n,
                                 .cols = m->k,
                                 .stacked = m->stacked,
                                 .in_out = m->in_out,
                                 .interleaved = m->kind == MOX_TENSOR_GATE_UP && w->family->interleaved };
        MOX_TRY(name_spec(w, m->name, m->expert,
                          m->fused_names && part->fused_suffix ? part->fused_suffix : part->suffix, &spec));
        MOX_TRY(mox_part_shape(part, &weight, m->n, m->k, m->stacked, m->in_out, &spec.rank, spec.shape, w->error));
        if (m->merged) {
            spec.rank = 2;
            spec.shape[0] *= spec.shape[1];
            spec.shape[1] = spec.shape[2];
        }
        MOX_TRY(w->visit(w->user, &spec, w->error));
    }
    return MOXIE_OK;
}

static bool is_plain_format(const mox_hf_quant *format)
{
    return mox_quant_is_plain(&format->weight);
}

static bool is_blocks(const mox_hf_quant *format)
{
    return format->parts[0].form == MOX_FORM_BLOCKS;
}

static moxie_status router(const listing *w)
{
    const mox_family *f = w->family;
    const mox_names *names = &f->names;
    const mox_dims *d = w->dims;
    const bool hashed = names->table && w->layer < d->n_hash_layers;
    MOX_TRY(plain(w, names->router, MOX_TENSOR_ROUTER, f->router_dtype, 2, d->experts, d->hidden));
    if (f->router_bias_always)
        MOX_TRY(plain(w, names->router_bias, MOX_TENSOR_ROUTER_BIAS, f->bias_dtype, 1, d->experts, 0));
    if (hashed)
        MOX_TRY(plain(w, names->table, MOX_TENSOR_TABLE, MOXIE_I64, 2, d->vocab, d->top_k));
    else if (f->correction_2d)
        MOX_TRY(plain(w, names->correction_bias, MOX_TENSOR_CORRECTION_BIAS, f->bias_dtype, 2, 1, d->experts));
    else
        MOX_TRY(plain(w, names->correction_bias, MOX_TENSOR_CORRECTION_BIAS, f->bias_dtype, 1, d->experts, 0));
    MOX_TRY(plain(w, names->router_scale, MOX_TENSOR_OTHER, f->bias_dtype, 1, d->hidden, 0));
    return plain(w, names->per_expert_scale, MOX_TENSOR_PER_EXPERT_SCALE, f->bias_dtype, 1, d->experts, 0);
}

/* True when gate and up rows can alternate: a word along the rows would hold both. */
static bool can_alternate(const mox_hf_quant *format)
{
    for (int i = 0; i < MOX_MAX_PARTS && format->parts[i].role != MOX_PART_NONE; i++)
        if (format->parts[i].packing.along_rows)
            return false;
    return true;
}

static moxie_status fused_experts(const listing *w, const mox_hf_quant *format, int64_t width)
{
    const mox_names *names = &w->family->names;
    const int64_t e = w->dims->experts, i = w->dims->intermediate;
    stored_matrix gate_up = { .name = names->fused_gate_up,
                              .kind = MOX_TENSOR_GATE_UP,
                              .format = format,
                              .n = 2 * i,
                              .k = width,
                              .expert = -1,
                              .stacked = e,
                              .in_out = w->family->fused == MOX_FUSED_IN_OUT && !is_blocks(format),
                              .fused_names = !w->family->fused_dot_weight };
    stored_matrix down = gate_up;
    down.name = names->fused_down, down.kind = MOX_TENSOR_DOWN, down.n = width, down.k = i;
    const moxie_dtype bias = w->family->bias_dtype;
    MOX_FAIL_IF(w->family->interleaved && !can_alternate(format), MOXIE_ERR_UNSUPPORTED, w->error,
                "%s packs several rows in a word, but in %s gate and up rows alternate; use a format packed along the "
                "inputs",
                format->id, w->family->id);
    MOX_TRY(matrix(w, &gate_up));
    MOX_TRY(plain(w, names->fused_gate_up_bias, MOX_TENSOR_GATE_UP_BIAS, bias, 2, e, 2 * i));
    MOX_TRY(matrix(w, &down));
    return plain(w, names->fused_down_bias, MOX_TENSOR_DOWN_BIAS, bias, 2, e, width);
}

static moxie_status three(const listing *w, const char *const names[3], const mox_tensor_kind kinds[3],
                          const stored_matrix *like, int64_t wide, int64_t narrow)
{
    for (int i = 0; i < 3; i++) {
        stored_matrix m = *like;
        m.name = names[i], m.kind = kinds[i];
        m.n = i < 2 ? narrow : wide, m.k = i < 2 ? wide : narrow;
        m.in_out = like->merged && i == 2;
        if (m.name)
            MOX_TRY(matrix(w, &m));
    }
    return MOXIE_OK;
}

static moxie_status experts(const listing *w, const mox_hf_quant *format)
{
    static const mox_tensor_kind kinds[3] = { MOX_TENSOR_GATE, MOX_TENSOR_UP, MOX_TENSOR_DOWN };
    const mox_family *f = w->family;
    const int64_t width = w->dims->expert_width > 0 ? w->dims->expert_width : w->dims->hidden;
    const bool fused_kind = f->fused == MOX_FUSED_OUT_IN || f->fused == MOX_FUSED_IN_OUT;
    const bool fused = is_blocks(format) || (fused_kind && (f->always_fused || is_plain_format(format)));
    const char *const names[3] = { f->names.gate, f->names.up, f->names.down };
    stored_matrix like = { .format = format, .expert = -1 };
    MOX_FAIL_IF(fused && !f->names.fused_gate_up, MOXIE_ERR_UNSUPPORTED, w->error,
                "%s stores all experts in one tensor, for which %s has no name; use another format", format->id, f->id);
    if (fused)
        return fused_experts(w, format, width);
    if (f->fused == MOX_FUSED_STACKED_ROWS || f->fused == MOX_FUSED_STACKS) {
        like.stacked = w->dims->experts;
        like.merged = f->fused == MOX_FUSED_STACKED_ROWS;
        like.fused_names = like.merged;
        MOX_FAIL_IF(like.merged && !is_plain_format(format), MOXIE_ERR_UNSUPPORTED, w->error,
                    "%s stores its experts below each other in one matrix; no release of it has the format %s, use "
                    "bf16 or f16",
                    f->id, format->id);
        return three(w, names, kinds, &like, width, w->dims->intermediate);
    }
    for (int64_t e = 0; e < w->dims->experts; e++) {
        like.expert = e;
        MOX_TRY(three(w, names, kinds, &like, width, w->dims->intermediate));
    }
    return MOXIE_OK;
}

static moxie_status shared_expert(const listing *w, const mox_hf_quant *format)
{
    static const mox_tensor_kind kinds[3] = { MOX_TENSOR_SHARED_GATE, MOX_TENSOR_SHARED_UP, MOX_TENSOR_SHARED_DOWN };
    const mox_names *names = &w->family->names;
    const char *const three_names[3] = { names->shared_gate, names->shared_up, names->shared_down };
    const stored_matrix like = { .format = format, .expert = -1 };
    if (w->dims->shared_intermediate <= 0)
        return MOXIE_OK;
    if (names->shared_gate_up) {
        stored_matrix gate_up = like;
        gate_up.name = names->shared_gate_up, gate_up.kind = MOX_TENSOR_SHARED_GATE_UP;
        gate_up.n = 2 * w->dims->shared_intermediate, gate_up.k = w->dims->hidden;
        MOX_TRY(matrix(w, &gate_up));
    }
    MOX_TRY(three(w, three_names, kinds, &like, w->dims->hidden, w->dims->shared_intermediate));
    return plain(w, names->shared_expert_gate, MOX_TENSOR_SHARED_EXPERT_GATE, w->family->router_dtype, 2, 1,
                 w->dims->hidden);
}

static moxie_status latent(const listing *w)
{
    const mox_names *names = &w->family->names;
    const int64_t x = w->dims->expert_width, h = w->dims->hidden;
    if (x <= 0 || x == h)
        return MOXIE_OK;
    MOX_TRY(plain(w, names->latent_in, MOX_TENSOR_OTHER, MOXIE_BF16, 2, x, h));
    MOX_TRY(plain(w, names->latent_out, MOX_TENSOR_OTHER, MOXIE_BF16, 2, h, x));
    return plain(w, names->latent_norm, MOX_TENSOR_OTHER, MOXIE_BF16, 1, x, 0);
}

moxie_status mox_enumerate_layer(const mox_family *family, const mox_dims *dims, const mox_hf_quant *routed,
                                 const mox_hf_quant *shared, int64_t layer,
                                 moxie_status (*visit)(void *user, const mox_tensor_spec *spec, moxie_error *error),
                                 void *user, moxie_error *error)
{
    const listing w = { family, dims, layer, visit, user, error };
    MOX_TRY(router(&w));
    MOX_TRY(experts(&w, routed));
    MOX_TRY(shared_expert(&w, shared ? shared : routed));
    return latent(&w);
}
