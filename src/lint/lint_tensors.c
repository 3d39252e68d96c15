/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_tensors.c - the tensors of one layer by name and shape: what is missing, misshapen, stored quantized where
 * floats belong, or read by nothing.
 *
 * A matrix that matches no format, or another format than most matrices of its product, is compared with that format
 * part by part, so that the finding names the tensor.
 */
#include <stdio.h>
#include <string.h>

#include "lint/lint_layer.h"

enum { NAME_SIZE = 320 };

static const mox_file_tensor *find_suffix(const mox_lint_layer *l, const char *name, const char *suffix)
{
    char full[NAME_SIZE];
    const int length = snprintf(full, sizeof full, "%s%s", name, suffix);
    return length > 0 && length < NAME_SIZE ? mox_tensor_set_find(l->lint->model->set, full) : NULL;
}

static const char *suffix_of(const mox_lint_stored *s, const mox_part *part)
{
    return s->wanted.stacked > 0 && part->fused_suffix ? part->fused_suffix : part->suffix;
}

static const mox_file_tensor *find_part(const mox_lint_layer *l, const mox_lint_stored *s, const mox_part *part)
{
    const mox_file_tensor *found = find_suffix(l, s->name, suffix_of(s, part));
    return found ? found : find_suffix(l, s->name, part->suffix);
}

static bool takes(const mox_part *part, moxie_dtype dtype)
{
    for (int i = 0; i < MOX_MAX_PART_DTYPES && part->file[i] != MOXIE_DTYPE_NONE; i++)
        if (part->file[i] == dtype)
            return true;
    return false;
}

/* ---- the format that a matrix should have --------------------------------------------------------- */

/* Matrices of one product, routed or shared, have one format: four kinds. */
enum { KINDS = 4 };
static int kind_of(const mox_lint_stored *s)
{
    return 2 * s->shared + (s->projection == MOX_LINT_DOWN);
}

/* The match of most matrices of a kind; NULL when none has one. */
static const mox_match *usual_match(const mox_lint_layer *l, int kind)
{
    const mox_match *best = NULL;
    int64_t votes = 0;
    for (int64_t i = 0; i < l->n_stored; i++) {
        const mox_lint_stored *other = &l->stored[i];
        if (!other->matched || kind_of(other) != kind)
            continue;
        if (votes == 0)
            best = &other->match;
        votes += strcmp(other->match.format->id, best->format->id) == 0 ? 1 : -1;
    }
    return best;
}

/* Of the formats whose codes exist with the right dtype, the one with most other parts. */
static const mox_hf_quant *nearest_format(const mox_lint_layer *l, const mox_lint_stored *s)
{
    const mox_matcher *m = &l->reader.matcher;
    const mox_hf_quant *best = NULL;
    const mox_variant *variant;
    int most = 0;
    if (mox_match_variant(m, &s->wanted, &variant, NULL) != MOXIE_OK)
        return NULL;
    for (int32_t i = 0; i < m->n_formats; i++) {
        const mox_hf_quant *format = &variant->formats[i];
        const mox_file_tensor *codes = find_part(l, s, &format->parts[0]);
        if (!variant->allowed[i] || !codes || !takes(&format->parts[0], codes->view.dtype))
            continue;
        int score = 1;
        for (int p = 1; p < MOX_MAX_PARTS && format->parts[p].role != MOX_PART_NONE; p++) {
            const mox_file_tensor *part = find_part(l, s, &format->parts[p]);
            score += part ? 2 + takes(&format->parts[p], part->view.dtype) : 0;
        }
        if (score > most) {
            most = score;
            best = format;
        }
    }
    return best;
}

/* ---- one matrix ----------------------------------------------------------------------------------- */

static bool is_scales(const mox_part *part)
{
    return part->role == MOX_PART_SCALE || part->role == MOX_PART_ZERO;
}

static bool larger(const moxie_tensor *view, int32_t rank, const int64_t *want)
{
    bool all = view->rank == rank, some = false;
    for (int32_t i = 0; all && i < rank; i++) {
        all = view->shape[i] >= want[i];
        some = some || view->shape[i] > want[i];
    }
    return all && some;
}

/* Reports a part that exists but does not fit. True: it fits. */
static bool check_part(mox_lint_layer *l, const mox_lint_stored *s, const mox_hf_quant *format, const mox_part *part,
                       const moxie_quant *weight)
{
    const mox_file_tensor *tensor = find_part(l, s, part);
    int32_t rank = 0;
    int64_t want[MOXIE_MAX_RANK] = { 0 };
    char expected[96] = "a multiple of its words", found[96];
    mox_lint_mark(l->lint, tensor);
    const bool known = mox_part_shape(part, weight, s->wanted.n, s->wanted.k, s->wanted.stacked, s->wanted.in_out,
                                      &rank, want, NULL) == MOXIE_OK;
    if (known && takes(part, tensor->view.dtype) &&
        mox_part_shape_fits(part, &tensor->view, rank, want, s->wanted.stacked))
        return true;
    if (known)
        mox_shape_text(want, rank, expected, sizeof expected);
    const bool padded = known && is_scales(part) && larger(&tensor->view, rank, want);
    mox_lint_report(l->lint->report, padded ? MOX_LINT_SCALE_PADDED : MOX_LINT_SHAPE,
                    mox_lint_at(l->lint, l->layer, tensor),
                    "it is %s %s; the format %s needs %s for a [%lld, %lld] matrix", tensor->file_dtype,
                    mox_shape_text(tensor->view.shape, tensor->view.rank, found, sizeof found), format->id, expected,
                    (long long)s->wanted.n, (long long)s->wanted.k);
    return false;
}

static void report_missing(mox_lint_layer *l, const char *name, const char *suffix, const char *why)
{
    char full[NAME_SIZE];
    snprintf(full, sizeof full, "%s%s", name, suffix);
    mox_lint_report(l->lint->report, MOX_LINT_MISSING, (mox_lint_where) { .layer = l->layer, .tensor = full },
                    "it is absent; %s", why);
}

/* Group extents that a format leaves open (-2) are taken from a matrix that fits, or are the writer's default. */
static moxie_quant weight_of(const mox_match *usual, const mox_hf_quant *format, int64_t k)
{
    return usual && usual->format == format ? usual->weight : mox_hf_quant_weight(format, k);
}

static void diagnose(mox_lint_layer *l, const mox_lint_stored *s, const mox_match *usual)
{
    const mox_hf_quant *format = usual ? usual->format : nearest_format(l, s);
    char why[120];
    if (!format && !mox_match_exists(&l->reader.matcher, s->name, s->wanted.stacked > 0)) {
        report_missing(l, s->name, s->wanted.stacked > 0 ? "" : ".weight", "no tensor of this matrix exists");
        return;
    }
    if (!format) {
        l->unknown = true;
        return;
    }
    const moxie_quant weight = weight_of(usual, format, s->wanted.k);
    bool reported = false;
    snprintf(why, sizeof why, "the format %s needs it", format->id);
    for (int p = 0; p < MOX_MAX_PARTS && format->parts[p].role != MOX_PART_NONE; p++) {
        const mox_part *part = &format->parts[p];
        const bool present = find_part(l, s, part) != NULL;
        if (present)
            reported = !check_part(l, s, format, part, &weight) || reported;
        else if (!part->optional) {
            report_missing(l, s->name, suffix_of(s, part), why);
            reported = true;
        }
    }
    l->unknown = l->unknown || !reported;
}

/* Biases of experts: read by the loader where they exist. */
static void mark_bias(mox_lint_layer *l, const mox_lint_stored *s)
{
    mox_lint_mark(l->lint, find_suffix(l, s->name, ".bias"));
}

static void check_matrices(mox_lint_layer *l)
{
    mox_match usual[KINDS];
    bool have[KINDS];
    for (int kind = 0; kind < KINDS; kind++) {
        const mox_match *match = usual_match(l, kind);
        have[kind] = match != NULL;
        usual[kind] = match ? *match : (mox_match) { 0 };
    }
    for (int64_t i = 0; i < l->n_stored; i++) {
        mox_lint_stored *s = &l->stored[i];
        const int kind = kind_of(s);
        mark_bias(l, s);
        /* In GGUF files gate and up may be of different types. */
        if (s->matched && (usual[kind].format == s->match.format || l->lint->gguf)) {
            for (int p = 0; p < MOX_MAX_PARTS; p++)
                mox_lint_mark(l->lint, s->match.parts[p]);
            continue;
        }
        diagnose(l, s, have[kind] ? &usual[kind] : NULL);
        s->matched = false;
    }
}

/* ---- plain tensors -------------------------------------------------------------------------------- */

static bool is_float(moxie_dtype dtype)
{
    return dtype == MOXIE_F32 || dtype == MOXIE_F16 || dtype == MOXIE_BF16;
}

/* The tensor `name`, or the first that quantization would put in its place: "gate.qweight" for "gate.weight". */
static const mox_file_tensor *find_quantized(const mox_lint_layer *l, const char *name)
{
    static const char *const suffixes[] = { "_scale", "_scale_inv", "_scale_2", "_packed", "_blocks" };
    static const char *const others[] = { ".qweight", ".weight_packed", ".scales", ".weight_scale" };
    char full[256], stem[256];
    if (!name || !mox_expand_name(full, sizeof full, l->reader.prefix, name, l->layer, -1))
        return NULL;
    const mox_file_tensor *plain = mox_tensor_set_find(l->lint->model->set, full);
    if (plain && !is_float(plain->view.dtype))
        return plain;
    const mox_file_tensor *found = NULL;
    for (size_t i = 0; !found && i < sizeof suffixes / sizeof suffixes[0]; i++)
        found = find_suffix(l, full, suffixes[i]);
    snprintf(stem, sizeof stem, "%s", full);
    char *dot = strrchr(stem, '.');
    if (!found && dot)
        *dot = '\0';
    for (size_t i = 0; !found && dot && i < sizeof others / sizeof others[0]; i++)
        found = find_suffix(l, stem, others[i]);
    return found;
}

static void mark_prefix(mox_lint *lint, const char *prefix)
{
    const size_t length = strlen(prefix);
    for (int64_t i = 0; i < lint->n_tensors; i++)
        if (strncmp(lint->tensors[i].name, prefix, length) == 0)
            lint->read[i] = 1;
}

/* What lies beside a plain tensor: "mlp.gate.weight" -> "mlp.gate.". */
static void mark_beside(mox_lint_layer *l, const char *name)
{
    char stem[256];
    if (!mox_expand_name(stem, sizeof stem, l->reader.prefix, name, l->layer, -1))
        return;
    char *dot = strrchr(stem, '.');
    if (dot)
        dot[1] = '\0';
    mark_prefix(l->lint, stem);
}

static void check_plain(mox_lint_layer *l, const char *name, mox_lint_id id)
{
    const mox_file_tensor *found = find_quantized(l, name);
    char shape[96];
    if (!found)
        return;
    mox_lint_report(l->lint->report, id, mox_lint_at(l->lint, l->layer, found), "it is %s %s", found->file_dtype,
                    mox_shape_text(found->view.shape, found->view.rank, shape, sizeof shape));
    mark_beside(l, name);
}

/* Plain tensors without which the family's layers cannot be computed. */
static void check_required(mox_lint_layer *l)
{
    const mox_family *f = l->lint->model->family;
    const mox_names *n = l->reader.names;
    const mox_dims *d = &l->reader.dims;
    const bool shared = d->shared_intermediate > 0 && d->expert_width == d->hidden;
    const struct {
        const char *name, *why;
        bool needed;
    } required[] = {
        { n->router_bias, "the routers of this family have it", f->router_bias_always },
        { n->per_expert_scale, "the routing of this family needs it", true },
        { n->shared_expert_gate, "it scales the shared expert", shared },
        { n->fused_gate_up_bias, "the experts of this family have biases", f->expert_bias && l->fused },
        { n->fused_down_bias, "the experts of this family have biases", f->expert_bias && l->fused },
        { n->table, "config.json says that this layer routes by table", l->layer < d->n_hash_layers },
    };
    char full[256];
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++)
        if (required[i].needed && required[i].name && !mox_layer_find(&l->reader, required[i].name) &&
            !find_quantized(l, required[i].name) &&
            mox_expand_name(full, sizeof full, l->reader.prefix, required[i].name, l->layer, -1))
            report_missing(l, full, "", required[i].why);
}

/* Rows and columns of the router against config.json. */
static void check_router(mox_lint_layer *l)
{
    const mox_dims *d = &l->reader.dims;
    const mox_names *names = l->reader.names;
    const mox_file_tensor *router = mox_layer_find(&l->reader, names->router);
    char full[256], shape[96];
    if (!router && !find_quantized(l, names->router) &&
        mox_expand_name(full, sizeof full, l->reader.prefix, names->router, l->layer, -1))
        report_missing(l, full, "", "experts of this layer exist");
    moxie_grid grid;
    if (router && is_float(router->view.dtype) && !mox_lint_router(l, &grid))
        mox_lint_report(l->lint->report, MOX_LINT_CONFIG_CONTRADICTS, mox_lint_at(l->lint, l->layer, router),
                        "config.json has %lld experts and hidden size %lld, but the router is %s",
                        (long long)(d->experts + d->zero_experts), (long long)d->hidden,
                        mox_shape_text(router->view.shape, router->view.rank, shape, sizeof shape));
}

/* The name of a matrix of an expert that config.json does not count, if it exists. */
static bool exists_beyond(const mox_lint_layer *l, const char *name, int64_t expert, char *full, size_t size)
{
    return name && mox_expand_name(full, size, l->reader.prefix, name, l->layer, expert) &&
           mox_match_exists(&l->reader.matcher, full, false);
}

static void check_count(mox_lint_layer *l)
{
    const mox_names *n = l->reader.names;
    const char *const names[] = { n->down, n->up, n->gate };
    const int64_t experts = l->reader.dims.experts;
    char full[256];
    if (l->fused || !n->down || !strstr(n->down, "{e}") || !exists_beyond(l, n->down, experts, full, sizeof full))
        return;
    mox_lint_report(l->lint->report, MOX_LINT_CONFIG_CONTRADICTS,
                    (mox_lint_where) { l->layer, l->lint->model->config_path, full },
                    "config.json has %lld experts, but this one exists", (long long)experts);
    for (int64_t e = experts; exists_beyond(l, n->down, e, full, sizeof full); e++)
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            if (exists_beyond(l, names[i], e, full, sizeof full)) {
                strcat(full, ".");
                mark_prefix(l->lint, full);
            }
}

static void mark_plain(mox_lint_layer *l)
{
    const mox_names *n = l->reader.names;
    const char *const plain[] = { n->router,           n->router_bias,        n->correction_bias, n->table,
                                  n->per_expert_scale, n->fused_gate_up_bias, n->fused_down_bias, n->shared_expert_gate,
                                  n->router_scale,     n->latent_in,          n->latent_out,      n->latent_norm };
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        mox_lint_mark(l->lint, mox_layer_find(&l->reader, plain[i]));
}

void mox_lint_tensors(mox_lint_layer *l)
{
    check_matrices(l);
    mark_plain(l);
    check_plain(l, l->reader.names->router, MOX_LINT_ROUTER_QUANTIZED);
    if (l->reader.dims.shared_intermediate > 0)
        check_plain(l, l->reader.names->shared_expert_gate, MOX_LINT_SHARED_GATE_QUANTIZED);
    check_required(l);
    check_router(l);
    check_count(l);
}
