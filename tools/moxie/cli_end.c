/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_end.c - how the program ends early: by a signal, or because there is no memory for something small. Both remove
 * unfinished files first. A signal then ends it by its default action, so that a shell sees why.
 *
 * Jansson (2.14) is not safe without memory: its parser loses characters or fails an assertion, its writer loses keys.
 * So its allocations end the program here instead of failing.
 */
#include "cli.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static void (*_Atomic clean_up)(void);
static atomic_bool by_signal;

void cli_on_end(void (*clean)(void))
{
    atomic_store(&clean_up, clean);
}

/* Async-signal-safe. */
static void remove_unfinished(void)
{
    moxie_temporaries_remove();
    void (*const clean)(void) = atomic_exchange(&clean_up, NULL);
    if (clean)
        clean();
}

void cli_no_memory(void)
{
    static const char words[] =
        "moxie: memory: there is none left; free some, or ask for less. What was not finished is removed\n";
    remove_unfinished();
    const ssize_t written = write(STDERR_FILENO, words, sizeof words - 1);
    (void)written; /* no other message can be made */
    _exit(CLI_RESOURCES);
}

static void *malloc_or_end(size_t bytes)
{
    void *block = malloc(bytes);
    if (!block)
        cli_no_memory();
    return block;
}

void cli_end_wait(void)
{
    while (atomic_load(&by_signal))
        pause();
}

static void end_by_signal(int number)
{
    atomic_store(&by_signal, true);
    remove_unfinished();
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
        /* The program may have been started with a signal ignored, as nohup does: then it stays ignored. */
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &ending, NULL);
    }
    /* A limit on file sizes makes the write fail; it does not end the program. */
    signal(SIGXFSZ, SIG_IGN);
    json_set_alloc_funcs(malloc_or_end, free);
}
