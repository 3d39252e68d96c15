/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_names.c - every name that the tool accepts, by kind, and a suggestion for a name that is none of them.
 *
 *     gpt-oss     ->  gpt-oss-20b          what was given begins a name, or lies within one
 *     avx215      ->  avx512               or a few letters are wrong, missing, too many or exchanged
 *     mxpf4       ->  mxfp4-ct             in the beginning of a name, too
 *     q4_k_s      ->  gguf-q4_k_m          and behind its first dash
 *
 * The distance is Damerau's (optimal string alignment). A third of the letters may be wrong, and always one.
 */
#include "cli.h"

#include <string.h>
#include <strings.h>

#include <moxie/moxie_prepare.h>
#include <moxie/moxie_store.h>
#include <moxie/moxie_trace.h>

enum { MAX_LETTERS = 64, SHORT_LIST = 20 };

/* ---- which one was meant ------------------------------------------------------------------------- */

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static bool same_letter(char a, char b)
{
    return strncasecmp(&a, &b, 1) == 0;
}

/* How many letters to change, add, leave out or exchange with their neighbour; MAX_LETTERS for long names. */
static int distance(const char *a, const char *b)
{
    const int n = (int)strnlen(a, MAX_LETTERS), m = (int)strnlen(b, MAX_LETTERS);
    int rows[3][MAX_LETTERS + 1]; /* three rows of the table, for letters i - 2, i - 1 and i of `a` */
    if (n == MAX_LETTERS || m == MAX_LETTERS)
        return MAX_LETTERS;
    for (int j = 0; j <= m; j++)
        rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *const here = rows[i % 3], *const before = rows[(i + 2) % 3], *const second = rows[(i + 1) % 3];
        here[0] = i;
        for (int j = 1; j <= m; j++) {
            here[j] = smaller(before[j] + 1, here[j - 1] + 1);
            here[j] = smaller(here[j], before[j - 1] + !same_letter(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1]))
                here[j] = smaller(here[j], second[j - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

/* The distance between two names; MAX_LETTERS and above: not similar. Of two names that begin alike, the shorter one is
 * nearer. */
static int farness(const char *given, const char *name)
{
    char start[MAX_LETTERS];
    const int length = (int)strnlen(given, MAX_LETTERS), rest = (int)strnlen(name, MAX_LETTERS) - length;
    const int wrong = distance(given, name), allowed = length < 3 ? 1 : length / 3;
    if (length >= 2 && strncasecmp(given, name, (size_t)length) == 0)
        return rest;
    if (wrong <= allowed && wrong < length)
        return wrong;
    snprintf(start, sizeof start, "%.*s", length, name);
    const int wrong_start = distance(given, start);
    const char *tail = strchr(name, '-');
    const int wrong_tail = length >= 4 && tail ? distance(given, tail + 1) : MAX_LETTERS;
    if (length >= 4 && rest > 0 && wrong_start <= allowed)
        return smaller(wrong_start + rest, MAX_LETTERS - 1);
    if (wrong_tail <= allowed)
        return smaller(wrong_tail + (int)(tail + 1 - name), MAX_LETTERS - 1);
    return length >= 3 && strcasestr(name, given) ? smaller(rest, MAX_LETTERS - 1) : MAX_LETTERS;
}

static const char *name_at(const cli_names *names, int32_t i)
{
    return names->at ? names->at(i) : names->fixed[i];
}

const char *cli_nearest(const cli_names *names, const char *given)
{
    const char *nearest = NULL, *name;
    int min = MAX_LETTERS;
    for (int32_t i = 0; (name = name_at(names, i)) != NULL; i++) {
        const int far = farness(given, name);
        if (far < min) {
            min = far;
            nearest = name;
        }
    }
    return nearest;
}

/* ---- what to say --------------------------------------------------------------------------------- */

/* After a question mark a new sentence begins. */
static void list_all(const cli_names *names, bool behind_question, char *text, size_t size)
{
    const char *name;
    size_t used = strlen(text);
    for (int32_t i = 0; (name = name_at(names, i)) != NULL && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s",
                                 i                 ? ", "
                                 : behind_question ? " There are "
                                                   : "; there are ",
                                 name);
}

/* From a long list, the names with the same first word: versions and variants follow after a dash. */
static void list_alike(const cli_names *names, const char *given, const char *nearest, char *text, size_t size)
{
    const size_t word = strcspn(given, "-_");
    const char *name;
    size_t used = strlen(text);
    bool any = false;
    for (int32_t i = 0; nearest && (name = name_at(names, i)) != NULL && used < size; i++) {
        if (name == nearest || strcspn(name, "-_") != word || strncasecmp(name, given, word) != 0)
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s", any ? ", " : " Or ", name);
        any = true;
    }
    if (any && used < size)
        snprintf(text + used, size - used, "?");
}

int32_t cli_find_name(const cli_names *names, const char *given)
{
    const char *name;
    for (int32_t i = 0; (name = name_at(names, i)) != NULL; i++)
        if (!strcmp(name, given))
            return i;
    return -1;
}

const char *cli_no_such_name(const cli_names *names, const char *given, char *text, size_t size)
{
    const char *nearest = cli_nearest(names, given);
    int32_t count = 0;
    while (name_at(names, count))
        count++;
    snprintf(text, size, "there is no %s \"%.200s\"", names->kind, cli_printable(given));
    if (nearest)
        snprintf(text + strlen(text), size - strlen(text), ": did you mean %s?", nearest);
    if (count <= SHORT_LIST || (!nearest && !names->listed_by)) {
        list_all(names, nearest != NULL, text, size);
        return text;
    }
    list_alike(names, given, nearest, text, size);
    if (names->listed_by)
        snprintf(text + strlen(text), size - strlen(text), "%s `%s` lists %s", nearest ? "" : ";", names->listed_by,
                 nearest ? "all" : "them");
    return text;
}

int32_t cli_parse_name(struct argp_state *state, const cli_names *names, const char *given)
{
    char text[2048];
    const int32_t found = cli_find_name(names, given);
    if (found < 0)
        argp_error(state, "%s", cli_no_such_name(names, given, text, sizeof text));
    return found;
}

static const char *policy_at(int32_t i)
{
    return moxie_cache_policy_at(i, NULL);
}

const char *cli_parse_policy(struct argp_state *state, const char *given)
{
    static const cli_names policies = { .kind = "cache policy", .at = policy_at };
    return policy_at(cli_parse_name(state, &policies, given));
}

bool cli_is_gguf_format(const char *format)
{
    return strncmp(format, "gguf-", strlen("gguf-")) == 0;
}

void cli_check_output(struct argp_state *state, const char *format, const char *out)
{
    const size_t length = strlen(out);
    if (!cli_is_gguf_format(format) && length > 5 && strcasecmp(out + length - 5, ".gguf") == 0)
        argp_error(state,
                   "%s makes a directory, and -o %s is named like a GGUF file: name a directory, or give a format that "
                   "begins with gguf-",
                   format, cli_printable(out));
}

/* ---- the lists ----------------------------------------------------------------------------------- */

static const char *preset_at(int32_t i)
{
    moxie_preset_info info = MOXIE_PRESET_INFO_INIT;
    return moxie_preset_at(i, &info) ? info.name : NULL;
}

static const char *layout_at(int32_t i)
{
    moxie_prepare_layout layout = MOXIE_PREPARE_LAYOUT_INIT;
    int32_t count = 0;
    if (moxie_prepare_layout_at(i, &layout))
        return layout.name;
    while (moxie_prepare_layout_at(count, &layout))
        count++;
    moxie_expert_target target = MOXIE_EXPERT_TARGET_INIT; /* those of our own kernels follow */
    return moxie_expert_target_at(i - count, &target) ? target.name : NULL;
}

/* In the order of moxie_backend, moxie_mode and moxie_activations_choice. */
static const char *const backends[] = { "auto", "ref", "cpu", "cuda", NULL };
static const char *const modes[] = { "exact", "fast", NULL };
static const char *const activations[] = { "checkpoint", "16bit", "ggml", NULL };
static const char *const isas[] = { "scalar", "neon", "avx2", "avx512", "amx", NULL };

const cli_names cli_presets = { .kind = "preset", .at = preset_at, .listed_by = "moxie synth --list" };
const cli_names cli_formats = { .kind = "format", .at = moxie_checkpoint_format_at };
const cli_names cli_layouts = { .kind = "layout", .at = layout_at, .listed_by = "moxie prepare --list" };
const cli_names cli_schemes = { .kind = "scheme constructor", .at = moxie_scheme_constructor_at };
const cli_names cli_routings = { .kind = "routing method", .at = moxie_routing_name_at };
const cli_names cli_backends = { .kind = "back end", .fixed = backends };
const cli_names cli_modes = { .kind = "mode", .fixed = modes };
const cli_names cli_activations = { .kind = "choice of --activations", .fixed = activations };
const cli_names cli_isas = { .kind = "instruction set", .fixed = isas };
