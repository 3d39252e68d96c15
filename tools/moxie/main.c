/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c - `moxie COMMAND ...`: finds the sub-command and hands it the rest of the arguments.
 *
 * Exit codes: 0 fine, 1 a check failed, 2 usage, 3 input unreadable or invalid, or output that could not be written,
 * 4 unsupported, 5 out of memory or time.
 */
#include "cli.h"

#include <string.h>

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} command;

static const command commands[] = {
    { "info", cmd_info, "what this machine and this build can run" },
    { "synth", cmd_synth, "write a synthetic checkpoint with a real model's names, shapes and formats" },
    { "inspect", cmd_inspect, "what a checkpoint holds: layers, experts, formats, bytes, routing" },
    { "lint", cmd_lint, "what is wrong or suspicious in a checkpoint or an adapter" },
    { "explain", cmd_explain, "the plan a layer gets, and why every better kernel was rejected" },
    { "run", cmd_run, "run one layer on random or given hidden states" },
    { "bench", cmd_bench, "time one layer for several batch sizes, against the floor that this machine sets" },
    { "prepare", cmd_prepare,
      "a checkpoint's experts as another engine's kernels, or moxie's own, want them, and back" },
    { "bake", cmd_bake, "merge LoRA adapters into a checkpoint's experts" },
    { "quantize", cmd_quantize, "a checkpoint with its experts in another number format, and its error" },
    { "balance", cmd_balance, "which expert lies on which rank, with replicas, so that ranks have equal loads" },
    { "trace", cmd_trace, "routing traces: record, show, exchange with vLLM and SGLang, simulate caches of experts" },
    { "diff", cmd_diff, "compare a back end with the oracle stage by stage, or two checkpoints" },
    { "report", cmd_report, "one HTML page about a layer: times, roofline, routing, errors, kernels" },
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static const char *command_at(int32_t i)
{
    return i < N_COMMANDS ? commands[i].name : NULL;
}

static void print_usage(FILE *out)
{
    fprintf(out, "Usage: moxie COMMAND [OPTION...]\n\nQuantized fused mixture-of-experts layers.\n\nCommands:\n");
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].summary);
    fprintf(out,
            "\n`moxie COMMAND --help` describes one. Every command takes --json: one object, with \"error\" after a "
            "failure.\n\n%s\n",
            cli_exit_codes);
}

/* The library, then a line for each back end: what it runs on, or why it cannot. */
static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    moxie_machine machine = MOXIE_MACHINE_INIT;
    moxie_cuda_info cuda = MOXIE_CUDA_INFO_INIT;
    moxie_cuda_device device = MOXIE_CUDA_DEVICE_INIT;
    fprintf(stream, "moxie %s\nref   the oracle, in double precision\n", moxie_version());
    if (moxie_machine_info(&machine, NULL) == MOXIE_OK) {
        fprintf(stream, "cpu   %s", machine.isa_allowed);
        if (strcmp(machine.isa_allowed, machine.isa_found))
            fprintf(stream, " (%s found, MOXIE_MAX_ISA caps it)", machine.isa_found);
        fprintf(stream, ", %d processor%s\n", machine.processors, machine.processors == 1 ? "" : "s");
    }
    if (moxie_cuda_get_info(&cuda, NULL) != MOXIE_OK || cuda.missing[0]) {
        fprintf(stream, "cuda  not available: %s\n", cuda.missing);
        return;
    }
    fprintf(stream, "cuda  %s", cuda.opened);
    for (int32_t i = 0; moxie_cuda_device_at(i, &device, NULL) == MOXIE_OK; i++)
        fprintf(stream, "; device %d: %s, sm_%d%s", i, device.name, device.sm, device.usable ? "" : ", too old");
    fputc('\n', stream);
}

static int refuse_command(const char *given)
{
    static const cli_names names = { .kind = "command", .at = command_at };
    char text[400];
    fprintf(stderr, "moxie: %s\n", cli_no_such_name(&names, given, text, sizeof text));
    return CLI_USAGE;
}

static int run_command(int argc, char **argv)
{
    static const cli_names names = { .at = command_at };
    const int32_t i = cli_find_name(&names, argv[1]);
    if (i < 0)
        return refuse_command(argv[1]);
    /* argp prints argv[0] in its messages, so it becomes the command's full name. */
    char name[32];
    snprintf(name, sizeof name, "moxie %s", commands[i].name);
    argv[1] = name;
    return commands[i].run(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    cli_begin();
    argp_err_exit_status = CLI_USAGE;
    argp_program_version_hook = print_version;
    cli_end_install();
    if (argc < 2) {
        print_usage(stderr);
        return cli_note_code(CLI_USAGE);
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        print_usage(stdout);
        return cli_note_code(CLI_OK);
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        print_version(stdout, NULL);
        return cli_note_code(CLI_OK);
    }
    return cli_note_code(run_command(argc, argv));
}
