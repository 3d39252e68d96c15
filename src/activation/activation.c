/* SPDX-License-Identifier: Apache-2.0
 *
 * activation.c - the tables of activation functions, made from activations.def: one of kinds, one of names.
 */
#include "activation/activation.h"

#include <stdio.h>
#include <string.h>

#define GATED      true
#define UNGATED    false
#define ALPHA      MOX_ACTIVATION_ALPHA
#define BETA       MOX_ACTIVATION_BETA
#define GATE_LIMIT MOX_ACTIVATION_GATE_LIMIT
#define UP_LIMIT   MOX_ACTIVATION_UP_LIMIT

#define MOX_ACTIVATION(id, kind, formula, gating, honours, alpha, beta, limit, name, config_names)                     \
    enum { KIND_##id = kind };                                                                                         \
    _Static_assert((kind < MOXIE_ACT_SILU_NO_MUL) == gating, "kinds below 16 are gated: " #id);
#include "activation/activations.def"

/* An alpha of 1 is the default of most kinds, and is left 0. */
#define PARAMETERS(id, alpha_, beta_, limit_)                                                                          \
    {                                                                                                                  \
        .kind = KIND_##id, .alpha = (alpha_) == 1 ? 0 : (alpha_), .beta = beta_, .gate_limit = limit_,                 \
        .up_limit = limit_                                                                                             \
    }

#define MOX_ACTIVATION(id, kind, formula, gating, honours_, alpha, beta, limit, name_, config_names_)                  \
    { .usual = PARAMETERS(id, alpha, beta, limit), .name = name_, .config_names = config_names_, .honours = honours_ },
static const mox_activation_info kinds[] = {
#include "activation/activations.def"
};

#define MOX_ACTIVATION(id, kind, formula, gating, honours, alpha, beta, limit, name, config_names)                     \
    { name, PARAMETERS(id, alpha, beta, limit) },
#define MOX_ACTIVATION_PRESET(name, id, alpha, beta, limit) { name, PARAMETERS(id, alpha, beta, limit) },
static const struct {
    const char *name;
    moxie_activation activation;
} names[] = {
#include "activation/activations.def"
};

const mox_activation_info *mox_activation_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof kinds / sizeof kinds[0] ? &kinds[i] : NULL;
}

const mox_activation_info *mox_activation_of_kind(int32_t kind)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].usual.kind == kind)
            return &kinds[i];
    return NULL;
}

const char *mox_activation_name_at(int32_t i, moxie_activation *out)
{
    if (i < 0 || (size_t)i >= sizeof names / sizeof names[0])
        return NULL;
    *out = names[i].activation;
    return names[i].name;
}

/* ---- names in model configurations --------------------------------------------------------------- */

/* `name` is one of `list`'s words. */
static bool is_listed(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *word = list; *word != '\0'; word += strspn(word, " ")) {
        const size_t n = strcspn(word, " ");
        if (n == length && strncmp(word, name, n) == 0)
            return true;
        word += n;
    }
    return false;
}

const mox_activation_info *mox_activation_from_config(const char *name, bool gated)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (mox_activation_is_gated(kinds[i].usual.kind) == gated && is_listed(kinds[i].config_names, name))
            return &kinds[i];
    return NULL;
}

const char *mox_activation_config_names(bool gated, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const char *list = mox_activation_is_gated(kinds[i].usual.kind) == gated ? kinds[i].config_names : "";
        for (const char *word = list; *word != '\0' && used < size; word += strspn(word, " ")) {
            const int n = (int)strcspn(word, " ");
            used += (size_t)snprintf(text + used, size - used, "%s%.*s", used > 0 ? ", " : "", n, word);
            word += n;
        }
    }
    return text;
}
