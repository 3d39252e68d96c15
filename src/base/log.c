/* SPDX-License-Identifier: Apache-2.0
 *
 * log.c - the message callback.
 *
 * Callback, user pointer and level change together, under a mutex. The callback runs outside of it, so it may log
 * itself or set another callback. While none is set, a message costs one atomic load.
 */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/status.h"

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static moxie_log_fn sink_fn;
static void *sink_user;
static _Atomic int sink_level; /* 0: drop everything */

void mox_set_log(moxie_log_fn fn, void *user, moxie_log_level level)
{
    pthread_mutex_lock(&sink_lock);
    sink_fn = fn;
    sink_user = user;
    atomic_store_explicit(&sink_level, fn ? (int)level : 0, memory_order_relaxed);
    pthread_mutex_unlock(&sink_lock);
}

void mox_log(moxie_log_level level, const char *format, ...)
{
    char text[1024];
    va_list arguments;

    if ((int)level > atomic_load_explicit(&sink_level, memory_order_relaxed))
        return;
    pthread_mutex_lock(&sink_lock);
    const moxie_log_fn fn = sink_fn;
    void *const user = sink_user;
    pthread_mutex_unlock(&sink_lock);
    if (!fn)
        return;

    va_start(arguments, format);
    mox_format_text(text, sizeof text, format, arguments);
    va_end(arguments);
    fn(user, level, text);
}
