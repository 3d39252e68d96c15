/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_end.c - how the program ends early: by a signal, or without memory (cli_out_of_memory). Both remove unfinished
 * files first. A signal then ends it as if nobody had listened, so that a shell sees why.
 *
 * Jansson (2.14) is not safe without memory: its parser loses characters or fails an assertion, its writer loses keys.
 * It never learns of it here.
 */
#include "cli.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

static void (*_Atomic clean_up)(void);

void cli_on_end(void (*clean)(void))
{
    atomic_store(&clean_up, clean);
}

void cli_remove_unfinished(void)
{
    moxie_temporaries_remove();
    void (*const clean)(void) = atomic_exchange(&clean_up, NULL);
    if (clean)
        clean();
}

static void end_by_signal(int number)
{
    cli_remove_unfinished();
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    signal(number, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
    raise(number);
}

void cli_end_install(void)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXCPU };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction before, ending = { .sa_handler = end_by_signal };
        sigfillset(&ending.sa_mask);
        /* Whoever started the program may want a signal to be ignored: nohup does. */
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &ending, NULL);
    }
    /* A limit on the size of files is an error of the write, not the end. */
    signal(SIGXFSZ, SIG_IGN);
    json_set_alloc_funcs(cli_alloc, free);
}
