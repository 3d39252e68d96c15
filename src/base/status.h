/* SPDX-License-Identifier: Apache-2.0
 *
 * status.h - how errors are reported inside the library.
 *
 * A fallible function returns moxie_status and takes a `moxie_error *` (may be NULL) as its last
 * parameter. The function that finds the failure fills the error: what was asked, what was found,
 * which limit failed, what to try. Its callers only return it:
 *
 *     MOX_TRY(mox_grid_check(grid, error));                        // pass on
 *     MOX_FAIL_IF(k > e, MOXIE_ERR_ARGUMENT, error, "top_k %lld is larger than ...", ...);
 *
 * A function that owns resources uses one `out:` label and `goto out` instead of these macros.
 */
#ifndef MOX_BASE_STATUS_H
#define MOX_BASE_STATUS_H

#include <stdarg.h>

#include <moxie/moxie.h>

#ifdef __cplusplus
extern "C" { /* CUDA C++ reports errors in the same way */
#endif

/* Body of moxie_status_name; "unknown" for a number that is none. */
const char *mox_status_name(moxie_status status);

/* vsnprintf into `size` (at least 4) bytes, where a text that does not fit ends in "...". */
void mox_format_text(char *buffer, size_t size, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

/* Fills `error` (if not NULL) and returns `code`. */
moxie_status mox_fail(moxie_status code, moxie_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As mox_fail, for a failure at `offset` (or -1) of `file`. The name is escaped. */
moxie_status mox_fail_file(moxie_status code, moxie_error *error, const char *file, int64_t offset, const char *format,
                           ...) __attribute__((format(printf, 5, 6)));

/* Adds " (while ...)" to an error that `code` was returned for and that is already filled; nothing is added when
 * it does not fit. Returns `code`. */
moxie_status mox_fail_context(moxie_status code, moxie_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Copies `name` to `buffer` with control characters, quotes, backslashes and invalid UTF-8 as \xNN; always
 * terminated, "..." at the end when cut. Returns `buffer`. For text from files that a terminal will see. */
const char *mox_escape(char *buffer, size_t size, const char *name);

/* Puts '?' in the place of every byte that is not printable ASCII, and ends the text within `size` bytes. For names
 * that devices and processors give themselves. */
void mox_make_printable(char *text, size_t size);

#define MOX_TRY(call)                                                                                                  \
    do {                                                                                                               \
        const moxie_status mox_try_status_ = (call);                                                                   \
        if (mox_try_status_ != MOXIE_OK)                                                                               \
            return mox_try_status_;                                                                                    \
    } while (0)

/* Returns `code` itself, not the result of mox_fail(): so compilers see that it is not MOXIE_OK, and do not warn about
 * results that are unset after a failure. */
#define MOX_FAIL_IF(condition, code, error, ...)                                                                       \
    do {                                                                                                               \
        if (condition) {                                                                                               \
            (void)mox_fail((code), (error), __VA_ARGS__);                                                              \
            return (code);                                                                                             \
        }                                                                                                              \
    } while (0)

#ifdef __cplusplus
}
#endif

#endif
