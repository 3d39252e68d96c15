/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_lint.h - what is wrong or suspicious in a checkpoint directory, found without running it.
 *
 *     moxie_lint_run         DIR, options -> a report: a list of findings, each an instance of a rule
 *     moxie_lint_finding_at  finding i: rule, severity, file, tensor, what was found, what it means, the remedy
 *     moxie_lint_rule_at     every rule that there is (docs/lint.md)
 *
 * By default only the headers of files are read; `deep` reads the numbers, too, one expert at a time. What cannot be
 * read is a finding itself, and everything else is still checked.
 *
 * The rules of moxie.h about calls, threads and structs hold here too.
 */
#ifndef MOXIE_LINT_H
#define MOXIE_LINT_H

#include <moxie/moxie.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum moxie_severity {
    MOXIE_SEVERITY_NOTE = 0,    /* a fact that some engine cares about */
    MOXIE_SEVERITY_WARNING = 1, /* some engine may compute other numbers; or a suspicion from statistics */
    MOXIE_SEVERITY_ERROR = 2    /* the checkpoint contradicts itself, or cannot be read whole */
} moxie_severity;
/* "note", "warning", "error"; NULL for a number that is none. Immutable. */
MOXIE_API const char *moxie_severity_name(int32_t severity);

/* One kind of finding. Strings are static. */
typedef struct moxie_lint_rule {
    uint32_t struct_size;
    const char *name;  /* "global-gate-up" */
    const char *topic; /* "files", "config", "tensors", "scales", "calibration", "experts", "order", "layouts",
                        * "adapters" */
    int32_t severity;  /* moxie_severity */
    int32_t deep;      /* 1: only `deep` finds it */
    const char *meaning;
    const char *engines; /* which programs it matters to, and how */
    const char *remedy;
} moxie_lint_rule;
#define MOXIE_LINT_RULE_INIT MOXIE_INIT(moxie_lint_rule)
/* Rule i; returns 0 past the last, or when out->struct_size is wrong. Immutable. */
MOXIE_API int moxie_lint_rule_at(int32_t i, moxie_lint_rule *out);

typedef struct moxie_lint_options {
    uint32_t struct_size;
    int32_t deep;        /* 1: read the numbers */
    int32_t some_layers; /* 1: only layers first_layer to last_layer, as numbered in the tensors' names. One of them
                          * must be a mixture of experts, unless DIR is an adapter */
    int64_t first_layer, last_layer;
    const char *only;           /* report findings of this rule alone; NULL: all */
    moxie_progress_fn progress; /* NULL: none. Called with experts or layers done; non-zero ends the call */
    void *progress_user;
    const char
        *model; /* of an adapter: the directory or GGUF file of its model, whose sizes it must have; NULL: none */
} moxie_lint_options;
#define MOXIE_LINT_OPTIONS_INIT MOXIE_INIT(moxie_lint_options)

typedef struct moxie_lint moxie_lint;

/* A report as a whole. Strings live as long as the report. */
typedef struct moxie_lint_info {
    uint32_t struct_size;
    int64_t n_findings, n_errors, n_warnings, n_notes;
    int64_t n_layers, n_tensors, n_files; /* that were read */
    const char *family;                   /* "" when the model could not be opened */
    int32_t deep;
    int32_t input;          /* moxie_status: MOXIE_OK, or why the first file that could not be read could not be */
    const char *input_text; /* the same in words; "" */
} moxie_lint_info;
#define MOXIE_LINT_INFO_INIT MOXIE_INIT(moxie_lint_info)

/* One finding. Findings of one rule in one layer are one: `more` counts those besides the one described. Strings live
 * as long as the report; names from files are escaped. */
typedef struct moxie_finding {
    uint32_t struct_size;
    const char *name;   /* of its rule */
    int32_t severity;   /* moxie_severity */
    int64_t layer;      /* -1: no layer's */
    const char *file;   /* "" when it is about no file, or about several */
    const char *tensor; /* "" likewise */
    const char *found;  /* what was found: one sentence */
    int64_t more;
    const char *meaning, *engines, *remedy; /* the rule's */
} moxie_finding;
#define MOXIE_FINDING_INIT MOXIE_INIT(moxie_finding)

/* Checks the checkpoint in `dir`, a directory or a GGUF file; or the LoRA adapter in a directory that has an
 * adapter_config.json and no config.json (moxie_adapters.h). `options` may be NULL. MOXIE_OK whatever was found, also
 * when files of the directory could not be read: info.input says so. MOXIE_ERR_IO when there is no such directory,
 * MOXIE_ERR_ARGUMENT for an unknown `only`, MOXIE_ERR_TIMEOUT when progress() ended it, MOXIE_ERR_MEMORY. Files are
 * mapped: see moxie_model_open(). The report is the caller's: moxie_lint_free(). Thread-safe. */
MOXIE_API moxie_status moxie_lint_run(const char *dir, const moxie_lint_options *options, moxie_lint **out,
                                      moxie_error *error);
/* NULL is fine. One-thread-at-a-time. */
MOXIE_API void moxie_lint_free(moxie_lint *lint);
/* `info` was set by its INIT macro. Immutable. */
MOXIE_API moxie_status moxie_lint_get_info(const moxie_lint *lint, moxie_lint_info *info, moxie_error *error);
/* Finding i, worst severity first, then by layer; returns 0 past the last, or when out->struct_size is wrong.
 * Immutable.
 */
MOXIE_API int moxie_lint_finding_at(const moxie_lint *lint, int64_t i, moxie_finding *out);

#ifdef __cplusplus
}
#endif

#endif /* MOXIE_LINT_H */
