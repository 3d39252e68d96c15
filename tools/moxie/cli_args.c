/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_args.c - option values that several sub-commands take.
 */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int64_t cli_parse_int(struct argp_state *state, const char *option, const char *text, int64_t low, int64_t high)
{
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 0);
    if (errno || end == text || *end || value < low || value > high)
        argp_error(state, "%s takes a whole number from %lld to %lld, not \"%s\"", option, (long long)low,
                   (long long)high, text);
    return value;
}

/* The index of `text` among `names` (ended by NULL), or argp_error. */
static int parse_name(struct argp_state *state, const char *option, const char *text, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (!strcmp(text, names[i]))
            return i;
    char known[256] = "";
    for (int i = 0; names[i]; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", names[i]);
    argp_error(state, "%s is one of %s, not \"%s\"", option, known, text);
    return 0;
}

moxie_backend cli_parse_backend(struct argp_state *state, const char *text)
{
    static const char *const names[] = { "auto", "ref", "cpu", "cuda", NULL };
    return (moxie_backend)parse_name(state, "a back end", text, names);
}

moxie_mode cli_parse_mode(struct argp_state *state, const char *text)
{
    static const char *const names[] = { "invariant", "throughput", NULL };
    return (moxie_mode)parse_name(state, "--mode", text, names);
}

moxie_activations_choice cli_parse_activations(struct argp_state *state, const char *text)
{
    static const char *const names[] = { "checkpoint", "16bit", NULL };
    return (moxie_activations_choice)parse_name(state, "--activations", text, names);
}
