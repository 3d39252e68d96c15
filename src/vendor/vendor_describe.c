/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_describe.c - which weights a vendor layout accepts, in one line: "u4b8 or i4, bf16 scales per 32 columns, no
 * zero points, no biases, gate and up". For lists; errors have texts of their own (vendor_plan.c).
 */
#include "vendor/vendor.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct line {
    char *buffer;
    size_t size, at;
} line;

static void add(line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(line *l, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(l->buffer + l->at, l->size - l->at, format, arguments);
    va_end(arguments);
    l->at += length > 0 ? (size_t)length : 0;
    l->at = l->at < l->size ? l->at : l->size - 1;
}

static void add_dtypes(line *l, const moxie_dtype *list, int count)
{
    for (int i = 0; i < count && list[i] != MOXIE_DTYPE_NONE; i++)
        add(l, "%s%s", i > 0 ? " or " : "", moxie_dtype_name(list[i]));
}

/* " per 32 columns", " per 128 rows and 128 columns", " per row", " per matrix"; alternatives by "or". */
static void add_groups(line *l, const mox_vendor_accepts *accepts)
{
    const int n_rows = sizeof accepts->group_rows / sizeof accepts->group_rows[0];
    const int n_cols = sizeof accepts->group_cols / sizeof accepts->group_cols[0];
    const char *before = " per";
    for (int r = 0; r < n_rows && (r == 0 || accepts->group_rows[r] != 0); r++)
        for (int c = 0; c < n_cols && accepts->group_cols[c] != 0; c++, before = " or") {
            const int32_t rows = accepts->group_rows[r], cols = accepts->group_cols[c];
            add(l, "%s", before);
            if (rows > 1)
                add(l, " %d rows and", rows);
            if (cols == -1)
                add(l, rows == -1 ? " matrix" : " row");
            else
                add(l, rows == -1 ? " all rows of %d columns" : " %d columns", cols);
        }
}

const char *mox_vendor_describe(const mox_vendor_layout *layout, char *buffer, size_t size)
{
    const mox_vendor_accepts *accepts = &layout->accepts;
    line l = { buffer, size, 0 };
    buffer[0] = '\0';
    add_dtypes(&l, accepts->elements, sizeof accepts->elements / sizeof accepts->elements[0]);
    if (accepts->scales[0] == MOXIE_DTYPE_NONE) {
        add(&l, ", no scales");
    } else {
        add(&l, ", ");
        add_dtypes(&l, accepts->scales, sizeof accepts->scales / sizeof accepts->scales[0]);
        add(&l, " scales");
        add_groups(&l, accepts);
        if (accepts->min_group > 0)
            add(&l, " (halved to %d at least where they do not divide a row)", accepts->min_group);
    }
    if (accepts->global != MOXIE_GLOBAL_NONE)
        add(&l, ", a global scale");
    add(&l,
        accepts->zeros ? accepts->no_zeros ? ", with or without zero points" : ", zero points" : ", no zero points");
    add(&l, accepts->bias ? ", biases or none" : ", no biases");
    add(&l, accepts->ungated ? ", gated or not" : ", gate and up");
    add(&l, "%s", accepts->static_acts ? ", static scales of activations" : "");
    return buffer;
}
