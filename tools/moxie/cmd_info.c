/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_info.c - `moxie info`: the processor, its instruction sets found and allowed, back ends, kernel rows.
 */
#include "cli.h"

#include <dlfcn.h>

static bool json_wanted;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    switch (key) {
    case 'j': json_wanted = true; return 0;
    case ARGP_KEY_ARG: argp_error(state, "info takes no argument"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static bool cuda_present(void)
{
    void *library = dlopen("libmoxie_cuda.so.0", RTLD_LAZY | RTLD_LOCAL);
    if (library)
        dlclose(library);
    return library != NULL;
}

static void print_text(const moxie_machine *machine, bool cuda)
{
    printf("moxie        %s\n", moxie_version());
    printf("processor    %s, %d usable\n", machine->cpu, machine->processors);
    printf("instructions %s found, %s allowed (MOXIE_MAX_ISA caps it)\n", machine->isa_found, machine->isa_allowed);
    printf("features     %s\n", machine->features);
    printf("back ends    ref, cpu%s\n\n", cuda ? ", cuda" : "; cuda: libmoxie_cuda.so.0 was not found");

    static const char *const headings[] = { "family", "kernel", "isa", "layout", "class", "here" };
    cli_table table;
    cli_table_begin(&table, 6, headings);
    moxie_kernel_info row;
    for (int i = 0; moxie_kernel_at(i, &row); i++) {
        cli_table_add(&table, "%s", row.family);
        cli_table_add(&table, "%s", row.name);
        cli_table_add(&table, "%s", row.isa);
        cli_table_add(&table, "%s", row.layout);
        cli_table_add(&table, "%s", row.exactness);
        cli_table_add(&table, "%s", row.runnable ? "yes" : "no");
    }
    cli_table_print(&table);
    cli_table_free(&table);
}

static void print_json(const moxie_machine *machine, bool cuda)
{
    json_t *object = cli_json_begin("info"), *kernels = json_array();
    moxie_kernel_info row;
    for (int i = 0; moxie_kernel_at(i, &row); i++)
        json_array_append_new(kernels, json_pack("{s:s, s:s, s:s, s:s, s:s, s:b}", "family", row.family, "kernel",
                                                 row.name, "isa", row.isa, "layout", row.layout, "class", row.exactness,
                                                 "runnable", row.runnable));
    json_object_set_new(object, "version", json_string(moxie_version()));
    json_object_set_new(object, "cpu", json_string(machine->cpu));
    json_object_set_new(object, "processors", json_integer(machine->processors));
    json_object_set_new(object, "isa_found", json_string(machine->isa_found));
    json_object_set_new(object, "isa_allowed", json_string(machine->isa_allowed));
    json_object_set_new(object, "features", json_string(machine->features));
    json_object_set_new(object, "cuda", json_boolean(cuda));
    json_object_set_new(object, "kernels", kernels);
    cli_json_end(object);
}

int cmd_info(int argc, char **argv)
{
    static const struct argp_option options[] = { { "json", 'j', NULL, 0, "print one JSON object", 0 }, { 0 } };
    static const struct argp parser = { options, parse, "", "What this machine and this build can run.", 0, 0, 0 };
    argp_parse(&parser, argc, argv, 0, NULL, NULL);

    moxie_error error = { 0 };
    moxie_machine machine = MOXIE_MACHINE_INIT;
    const moxie_status status = moxie_machine_info(&machine, &error);
    if (status != MOXIE_OK)
        return cli_fail("info", json_wanted, status, &error);
    if (json_wanted)
        print_json(&machine, cuda_present());
    else
        print_text(&machine, cuda_present());
    return CLI_OK;
}
