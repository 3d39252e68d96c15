/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_parse.c - argp_parse() with additions: it suggests a name for an unknown option, rejects empty values, prints
 * exit codes in every --help, accepts -h, and checks MOXIE_MAX_ISA.
 *
 *     moxie run model --treads 4
 *     -> moxie run: there is no option --treads: did you mean --threads?
 *
 * The arguments are checked once before getopt_long() reads them, in its own order.
 */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

const char cli_exit_codes[] =
    "Exit codes: 0 fine; 1 a check failed; 2 wrong usage; 3 input that cannot be read or is invalid, or output that "
    "cannot be written; 4 not supported, and why; 5 no memory, or no time.";

/* Options that argp adds itself. */
static const struct argp_option builtin[] = {
    { "help", '?', NULL, 0, NULL, 0 },
    { "usage", 1, NULL, 0, NULL, 0 },
    { "version", 'V', NULL, 0, NULL, 0 },
    { 0 },
};

/* ---- all options of a parser and its children ---------------------------------------------------- */

enum { MAX_OPTIONS = 64 };
typedef struct option_list {
    const struct argp_option *at[MAX_OPTIONS];
    const char *names[MAX_OPTIONS + 1]; /* those with a value, ended by NULL */
    int count, named;
} option_list;

static bool is_option(const struct argp_option *o)
{
    return (o->name || o->key) && !(o->flags & OPTION_DOC);
}

static void add_options(option_list *list, const struct argp_option *options)
{
    for (; options && (options->name || options->key || options->doc || options->group); options++) {
        if (!is_option(options) || list->count == MAX_OPTIONS)
            continue;
        list->at[list->count++] = options;
        if (options->name)
            list->names[list->named++] = options->name;
    }
}

static void add_parser(option_list *list, const struct argp *parser)
{
    add_options(list, parser->options);
    for (const struct argp_child *child = parser->children; child && child->argp; child++)
        add_parser(list, child->argp);
}

/* The option with this long name, or the first that begins with it: getopt_long() rejects ambiguous ones. */
static const struct argp_option *long_option(const option_list *list, const char *name, size_t length)
{
    const struct argp_option *found = NULL;
    for (int i = 0; i < list->count; i++) {
        const struct argp_option *o = list->at[i];
        if (!o->name || strncmp(o->name, name, length) != 0)
            continue;
        if (strlen(o->name) == length)
            return o;
        found = found ? found : o;
    }
    return found;
}

static const struct argp_option *short_option(const option_list *list, char letter)
{
    for (int i = 0; i < list->count; i++)
        if (list->at[i]->key == letter)
            return list->at[i];
    return NULL;
}

/* ---- what was given ------------------------------------------------------------------------------ */

static void reject(const char *command, const char *text)
{
    fprintf(stderr, "%s: %s\nTry `%s --help' for more information.\n", command, text, command);
    exit(cli_note_code(CLI_USAGE));
}

static void refuse_option(const char *command, const option_list *list, const char *name, size_t length)
{
    const cli_names names = { .kind = "option", .fixed = list->names };
    char given[80], text[400];
    snprintf(given, sizeof given, "%.*s", (int)length, name);
    const char *nearest = cli_nearest(&names, given);
    snprintf(text, sizeof text, "there is no option --%s%s%s%s", cli_printable(given),
             nearest ? ": did you mean --" : "", nearest ? nearest : "", nearest ? "?" : "");
    reject(command, text);
}

static void refuse_empty(const char *command, const struct argp_option *option)
{
    char text[200];
    if (option->name)
        snprintf(text, sizeof text, "--%s takes %s, and nothing was given: name it after the option", option->name,
                 option->arg);
    else
        snprintf(text, sizeof text, "-%c takes %s, and nothing was given: name it after the option", option->key,
                 option->arg);
    reject(command, text);
}

static void refuse_value(const char *command, const struct argp_option *option, const char *value)
{
    char text[300];
    snprintf(text, sizeof text, "--%s takes no value, and \"%.80s\" was given: leave it out", option->name,
             cli_printable(value));
    reject(command, text);
}

/* Checks "--name" or "--name=value". Returns whether the value is the next argument. */
static bool check_long(const char *command, const option_list *list, const char *argument, const char *next)
{
    const size_t length = strcspn(argument + 2, "=");
    const struct argp_option *option = long_option(list, argument + 2, length);
    if (!option)
        refuse_option(command, list, argument + 2, length);
    const bool inside = argument[2 + length] == '=';
    const char *value = inside ? argument + 2 + length + 1 : next;
    if (option->arg && (!value || !*value))
        refuse_empty(command, option);
    if (!option->arg && inside)
        refuse_value(command, option, value);
    return option->arg && !inside;
}

/* Checks "-j", "-oFILE", "-jo FILE". Returns whether the value is the next argument. */
static bool check_short(const char *command, const option_list *list, const char *argument, const char *next)
{
    for (const char *letter = argument + 1; *letter; letter++) {
        const struct argp_option *option = short_option(list, *letter);
        if (!option) {
            const char one[2] = { *letter, '\0' };
            char text[64];
            snprintf(text, sizeof text, "there is no option -%s", cli_printable(one));
            reject(command, text);
        }
        if (option->arg && !letter[1] && (!next || !*next))
            refuse_empty(command, option);
        if (option->arg)
            return !letter[1];
    }
    return false;
}

static void check_arguments(const struct argp *parser, int argc, char **argv)
{
    static char help[] = "--help";
    option_list list = { .count = 0 };
    add_parser(&list, parser);
    add_options(&list, builtin);
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "--"))
            return;
        if (!strcmp(argv[i], "-h"))
            argv[i] = help;
        if (!*argv[i])
            reject(argv[0], "an argument is empty: is a variable of the shell not set?");
        if (!strncmp(argv[i], "--", 2))
            i += check_long(argv[0], &list, argv[i], next);
        else if (argv[i][0] == '-' && argv[i][1])
            i += check_short(argv[0], &list, argv[i], next);
    }
}

/* The library reports an unknown name late, when it chooses kernels. Here it is rejected before anything is done. */
static void check_environment(const char *command)
{
    const char *cap = getenv("MOXIE_MAX_ISA");
    char reason[300], text[400];
    if (!cap || !*cap || cli_isa_fits(cap, reason, sizeof reason))
        return;
    snprintf(text, sizeof text, "the environment variable MOXIE_MAX_ISA: %s", reason);
    reject(command, text);
}

void cli_parse(const struct argp *parser, int argc, char **argv, void *input)
{
    struct argp with_codes = *parser;
    char *doc = cli_format("%s\v%s", parser->doc, cli_exit_codes);
    with_codes.doc = doc;
    check_arguments(parser, argc, argv);
    if (argp_parse(&with_codes, argc, argv, 0, NULL, input) != 0)
        cli_no_memory(); /* for all other errors argp has ended the program */
    check_environment(argv[0]);
    free(doc);
}

void cli_parse_operand(struct argp_state *state, const char *what, const char *text, const char **out)
{
    if (*out)
        argp_error(state, "one %s at a time; \"%s\" is a second one: leave one of them out", what, cli_printable(text));
    *out = text;
}
