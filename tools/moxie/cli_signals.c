/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_signals.c - what a signal that ends the program does first: removes unfinished files, then ends it by that
 * signal, so that a shell sees why.
 *
 * A limit on the size of files is an error of the write, not the end.
 */
#include "cli.h"

#include <signal.h>
#include <stdatomic.h>

static void (*_Atomic clean_up)(void);

void cli_on_end(void (*clean)(void))
{
    atomic_store(&clean_up, clean);
}

static void end(int number)
{
    moxie_temporaries_remove();
    void (*const clean)(void) = atomic_exchange(&clean_up, NULL);
    if (clean)
        clean();
    /* As if nobody had listened. */
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    signal(number, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
    raise(number);
}

void cli_signals_install(void)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXCPU };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction before, ending = { .sa_handler = end };
        sigfillset(&ending.sa_mask);
        /* Whoever started the program may want a signal to be ignored: nohup does. */
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &ending, NULL);
    }
    signal(SIGXFSZ, SIG_IGN);
}
