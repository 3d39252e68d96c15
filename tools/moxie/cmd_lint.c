/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_lint.c - `moxie lint DIR`: what is wrong or suspicious in a checkpoint, or in a LoRA adapter.
 *
 * A table of findings, then what each kind means. Exit code 1 when a finding is an error, 3 when a file could not be
 * read (what could be checked is reported all the same), else 0.
 */
#include "cli.h"

#include <moxie/moxie_lint.h>

#include <string.h>

typedef struct arguments {
    const char *dir;
    moxie_lint_options lint;
    bool list, json;
} arguments;

enum { OPT_DEEP = 256, OPT_LAYERS, OPT_ONLY, OPT_LIST, OPT_MODEL };

static const char *rule_name(int32_t i)
{
    moxie_lint_rule rule = MOXIE_LINT_RULE_INIT;
    return moxie_lint_rule_at(i, &rule) ? rule.name : NULL;
}

static const cli_names rule_names = { .kind = "finding", .at = rule_name };

static void check_arguments(struct argp_state *state, const arguments *args)
{
    if (args->list && args->dir)
        argp_error(state, "--list takes no directory; leave out \"%s\"", cli_printable(args->dir));
    const char *examines = args->lint.deep          ? "--deep"
                           : args->lint.some_layers ? "--layers"
                           : args->lint.model       ? "--model"
                           : args->lint.only        ? "--only"
                                                    : NULL;
    if (args->list && examines)
        argp_error(state,
                   "--list shows every finding that there is, and %s is for a checkpoint: leave one of the two out",
                   examines);
    if (!args->list && !args->dir)
        argp_error(state, "the checkpoint's directory is needed, and none is given: name one with config.json and "
                          "*.safetensors");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *args = state->input;
    switch (key) {
    case OPT_DEEP: args->lint.deep = 1; return 0;
    case OPT_LAYERS:
        cli_parse_layers(state, arg, &args->lint.first_layer, &args->lint.last_layer);
        args->lint.some_layers = 1;
        return 0;
    case OPT_ONLY: args->lint.only = rule_name(cli_parse_name(state, &rule_names, arg)); return 0;
    case OPT_LIST: args->list = true; return 0;
    case OPT_MODEL: args->lint.model = arg; return 0;
    case 'j': args->json = true; return 0;
    case ARGP_KEY_ARG: cli_parse_operand(state, "directory", arg, &args->dir); return 0;
    case ARGP_KEY_END: check_arguments(state, args); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- the list ---------------------------------------------------------------------------------------- */

static json_t *json_rule(const moxie_lint_rule *rule)
{
    return cli_pack("{s:s, s:s, s:s, s:b, s:s, s:s, s:s}", "name", rule->name, "severity",
                    moxie_severity_name(rule->severity), "topic", rule->topic, "deep", rule->deep, "meaning",
                    rule->meaning, "engines", rule->engines, "remedy", rule->remedy);
}

static void print_rule(const moxie_lint_rule *rule)
{
    printf("%s (%s, %s%s)\n  %s\n  Concerns: %s.\n  Remedy: %s.\n\n", rule->name, moxie_severity_name(rule->severity),
           rule->topic, rule->deep ? ", --deep" : "", rule->meaning, rule->engines, rule->remedy);
}

static int print_list(bool json)
{
    json_t *rules = json_array();
    moxie_lint_rule rule = MOXIE_LINT_RULE_INIT;
    for (int32_t i = 0; moxie_lint_rule_at(i, &rule); i++) {
        if (json)
            cli_json_append(rules, json_rule(&rule));
        else
            print_rule(&rule);
    }
    if (!json) {
        json_decref(rules);
        return CLI_OK;
    }
    json_t *object = cli_json_begin("lint");
    cli_json_set(object, "rules", rules);
    cli_json_end(object);
    return CLI_OK;
}

/* ---- findings ---------------------------------------------------------------------------------------- */

static json_t *json_finding(const moxie_finding *f)
{
    json_t *object = cli_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:s}", "name", f->name, "severity",
                              moxie_severity_name(f->severity), "file", cli_utf8(f->file), "tensor",
                              cli_utf8(f->tensor), "found", cli_utf8(f->found), "more", (json_int_t)f->more, "meaning",
                              f->meaning, "engines", f->engines, "remedy", f->remedy);
    cli_json_set(object, "layer", f->layer < 0 ? json_null() : json_integer((json_int_t)f->layer));
    return object;
}

static void print_json(const arguments *args, const moxie_lint *lint, const moxie_lint_info *info)
{
    json_t *object = cli_json_begin("lint"), *findings = json_array();
    moxie_finding f = MOXIE_FINDING_INIT;
    for (int64_t i = 0; moxie_lint_finding_at(lint, i, &f); i++)
        cli_json_append(findings, json_finding(&f));
    cli_json_merge(object,
                   cli_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:o}", "dir", cli_utf8(args->dir),
                            "family", info->family, "deep", info->deep, "layers", (json_int_t)info->n_layers, "tensors",
                            (json_int_t)info->n_tensors, "files", (json_int_t)info->n_files, "errors",
                            (json_int_t)info->n_errors, "warnings", (json_int_t)info->n_warnings, "notes",
                            (json_int_t)info->n_notes, "input", moxie_status_name((moxie_status)info->input),
                            "input_text", cli_utf8(info->input_text), "findings", findings));
    cli_json_end(object);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void add_row(cli_table *table, const moxie_finding *f)
{
    char more[40] = "";
    if (f->more > 0)
        snprintf(more, sizeof more, " (and %lld more)", (long long)f->more);
    cli_table_add(table, "%s", moxie_severity_name(f->severity));
    cli_table_add(table, "%s", f->name);
    if (f->layer >= 0)
        cli_table_add(table, "%lld", (long long)f->layer);
    else
        cli_table_add(table, "-");
    cli_table_add(table, "%s", f->file[0] ? cli_printable(base_name(f->file)) : "-");
    cli_table_add(table, "%s", f->tensor[0] ? cli_printable(f->tensor) : "-");
    cli_table_add(table, "%s%s", cli_printable(f->found), more);
}

static bool has_finding(const moxie_lint *lint, const char *name)
{
    moxie_finding f = MOXIE_FINDING_INIT;
    for (int64_t i = 0; moxie_lint_finding_at(lint, i, &f); i++)
        if (strcmp(f.name, name) == 0)
            return true;
    return false;
}

static void print_findings(const arguments *args, const moxie_lint *lint, const moxie_lint_info *info)
{
    static const char *const headings[] = { "severity", "finding", ">layer", "file", "tensor", "found" };
    cli_table table;
    moxie_finding f = MOXIE_FINDING_INIT;
    moxie_lint_rule rule = MOXIE_LINT_RULE_INIT;
    cli_table_begin(&table, 6, headings);
    for (int64_t i = 0; moxie_lint_finding_at(lint, i, &f); i++)
        add_row(&table, &f);
    if (info->n_findings > 0) {
        cli_table_print(&table);
        printf("\n");
    }
    cli_table_free(&table);
    for (int32_t i = 0; moxie_lint_rule_at(i, &rule); i++)
        if (has_finding(lint, rule.name))
            print_rule(&rule);
    printf("%s: %lld %s, %lld %s, %lld %s; %lld MoE %s, %lld %s, %lld %s, %s\n", cli_printable(args->dir),
           CLI_COUNT(info->n_errors, "error"), CLI_COUNT(info->n_warnings, "warning"), CLI_COUNT(info->n_notes, "note"),
           CLI_COUNT(info->n_layers, "layer"), CLI_COUNT(info->n_tensors, "tensor"), CLI_COUNT(info->n_files, "file"),
           info->deep ? "headers and numbers" : "headers only (--deep reads the numbers)");
}

static int run_lint(arguments *args)
{
    moxie_error error = { 0 };
    moxie_lint *lint = NULL;
    cli_progress progress;
    cli_progress_begin(&progress, args->lint.deep ? "experts" : "layers");
    args->lint.progress = cli_progress_experts;
    args->lint.progress_user = &progress;
    const moxie_status status = moxie_lint_run(args->dir, &args->lint, &lint, &error);
    cli_progress_end(&progress);
    if (status != MOXIE_OK)
        return cli_fail("lint", args->json, status, &error);
    moxie_lint_info info = MOXIE_LINT_INFO_INIT;
    moxie_lint_get_info(lint, &info, NULL);
    if (args->json)
        print_json(args, lint, &info);
    else
        print_findings(args, lint, &info);
    if (info.input != MOXIE_OK)
        fprintf(stderr, "moxie lint: not everything could be read: %s\n", cli_printable(info.input_text));
    const int code = info.input != MOXIE_OK ? CLI_BAD_INPUT : info.n_errors > 0 ? CLI_CHECK_FAILED : CLI_OK;
    moxie_lint_free(lint);
    return code;
}

int cmd_lint(int argc, char **argv)
{
    static const struct argp_option options[] = {
        { "deep", OPT_DEEP, NULL, 0, "read the numbers, too, not only the headers", 0 },
        { "layers", OPT_LAYERS, "A-B", 0, "only these layers of the checkpoint (or one, A)", 0 },
        { "only", OPT_ONLY, "NAME", 0, "only findings of this name (--list lists them)", 0 },
        { "model", OPT_MODEL, "DIR", 0, "of an adapter: the model whose layers and sizes it must have", 0 },
        { "list", OPT_LIST, NULL, 0, "every finding that there is, what it means, and its remedy", 1 },
        { "json", 'j', NULL, 0, "print one JSON object", 2 },
        { 0 },
    };
    static const struct argp parser = {
        options,
        parse,
        "DIR\n--list",
        "What is wrong or suspicious in a checkpoint: missing, unread and misshapen tensors, scales, calibration, "
        "experts unlike the rest; or in a LoRA adapter (a directory with adapter_config.json): targets, ranks, halves, "
        "shapes. Exit code 1 when a finding is an error, 3 when a file could not be read.",
        0,
        0,
        0
    };
    arguments args = { .lint = MOXIE_LINT_OPTIONS_INIT };
    cli_parse(&parser, argc, argv, &args);
    return args.list ? print_list(args.json) : run_lint(&args);
}
