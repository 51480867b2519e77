/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of one command of ulyx_info: a table that is read from the
 * command line and printed as its help.
 */
#ifndef TOOLS_INFO_OPTIONS_H
#define TOOLS_INFO_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum info_kind {
    INFO_NUMBER, /* to: int64_t */
    INFO_TEXT,   /* to: const char * */
    INFO_FLAG,   /* to: bool */
    INFO_LIST,   /* to: struct info_list; the last operand, one word at least */
};
struct info_list {
    char **at; /* argv, whose first words are overwritten by the list */
    int count;
};

struct info_option {
    const char *name; /* "--seq"; without dashes: a required operand */
    enum info_kind kind;
    void *to;
    int64_t low, high; /* the range of an INFO_NUMBER */
    const char *help;  /* NULL: an old name of the row above */
    /* The name of a value in the help, "FILE"; "heads|balanced": the value is
     * one of these words. NULL: no name. */
    const char *value;
};

struct info_command {
    const char *name;  /* "plan" */
    const char *about; /* lines under the usage */
    const struct info_option *options;
    int count;
};

enum { INFO_USAGE = 6 };

/* Reads the command line into the variables that the options point to.
 * returns -1 to go on; else the exit code: 0 after --help, and after
 * --help=table, which prints the rows for manual pages and completion;
 * INFO_USAGE after an error, which is the last line on stderr. */
int info_options_read(
    const struct info_command *command, int argc, char **argv);

/* Prints how to get help, then the reason.
 * returns INFO_USAGE. */
int info_reject(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Reads "1,2,8" or "1-64" (which is 1, 2, 4, ... 64): at most `capacity`
 * numbers of at least 1, in ascending order. returns how many; 0: the text has
 * another form. */
int info_parse_numbers(const char *text, int64_t *numbers_p, int capacity);

#endif
