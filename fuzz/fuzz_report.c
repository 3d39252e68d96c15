/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_report.c - the JSON files of `moxie report`, and the page that is made of them.
 *
 * Promise: what is read makes a page; no text in it becomes markup, and every coordinate is finite.
 */
#include "fuzz_targets.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"

/* Texts from outside have no quotation mark in the page, so none of them looks like an attribute. */
static void check_page(const char *page)
{
    static const char *const never[] = { "<script", "=\"nan", "=\"-nan", "=\"inf", "=\"-inf" };
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++)
        FUZZ_CHECK(!strstr(page, never[i]));
    for (const char *path = page; (path = strstr(path, " d=\"")) != NULL;) { /* letters: M, L, Z */
        path += 4;
        FUZZ_CHECK(strcspn(path, "ni") > strcspn(path, "\""));
    }
}

void mox_fuzz_report(const uint8_t *data, uint64_t size)
{
    for (int p = 0; p < REPORT_PARTS; p++) {
        moxie_error error = { 0 };
        report r = { .title = "fuzz" };
        size_t bytes = 0;
        r.file[p] = "in.json";
        if (cli_json_parse((const char *)data, (size_t)size, "in.json", &r.json[p], &error) != MOXIE_OK) {
            FUZZ_CHECK(error.text[0]);
            return;
        }
        if (report_read(&r, &error) == MOXIE_OK) {
            char *page = report_page(&r, &bytes);
            FUZZ_CHECK(page && strlen(page) == bytes);
            check_page(page);
            free(page);
        } else {
            FUZZ_CHECK(error.text[0]);
        }
        report_free(&r);
    }
}
