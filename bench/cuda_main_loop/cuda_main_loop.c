/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_main_loop.c - the Hopper main loop by itself, on a machine with the GPU:
 *
 *     cuda_main_loop check          every shape of the check; exit 1 when one fails
 *     cuda_main_loop bench [NAME]   the table: DeepSeek-V3 and Qwen3, or the one whose name contains NAME
 */
#include <stdio.h>
#include <string.h>

#include "main_loop.h"

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && strcmp(argv[1], "check") == 0)
        return main_loop_check(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], "bench") == 0)
        return main_loop_bench(argc - 2, argv + 2);
    fprintf(stderr, "usage: %s check | bench [NAME]\n", argv[0]);
    return 2;
}
