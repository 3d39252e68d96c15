/* SPDX-License-Identifier: Apache-2.0
 *
 * py_tables.h - rows of the tables in py_tables.c and py_tables_ranks.c: field NAME of a C struct, its kind, and what
 * the kind needs besides.
 */
#ifndef PY_TABLES_H
#define PY_TABLES_H

#include "py_moxie.h"

#define F(type, field, kind)                                                                                           \
    {                                                                                                                  \
#field, MPY_##kind, offsetof(type, field), NULL, 0                                                             \
    }
#define FM(type, field, kind, more)                                                                                    \
    {                                                                                                                  \
#field, MPY_##kind, offsetof(type, field), more, 0                                                             \
    }
#define FN(type, field, kind, n)                                                                                       \
    {                                                                                                                  \
#field, MPY_##kind, offsetof(type, field), NULL, offsetof(type, n)                                             \
    }
#define END                                                                                                            \
    {                                                                                                                  \
        NULL, MPY_I32, 0, NULL, 0                                                                                      \
    }

#endif /* PY_TABLES_H */
