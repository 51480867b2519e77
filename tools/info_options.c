/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the options of a command; see info_options.h.
 */
#include "info_options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int
info_reject(const char *command, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fprintf(stderr,
        "usage: ulyx_info %s [options]; --help lists them\nulyx_info: ",
        command[0] != 0 ? command : "COMMAND");
    if (command[0] != 0)
        fprintf(stderr, "%s: ", command);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    return INFO_USAGE;
}

static bool
option_is_operand(const struct info_option *option)
{
    return option->name[0] != '-';
}

static int
command_print_help(const struct info_command *command)
{
    printf("usage: ulyx_info %s", command->name);
    for (int i = 0; i < command->count; i++)
        if (option_is_operand(&command->options[i]))
            printf(" %s%s", command->options[i].name,
                command->options[i].kind == INFO_LIST ? "..." : "");
    printf(" [options]\n\n%s\n", command->about);
    for (int i = 0; i < command->count; i++) {
        const struct info_option *option = &command->options[i];

        if (option->help)
            printf("  %-18s %s\n", option->name, option->help);
    }
    printf("  %-18s %s\n", "-h, --help", "this text");
    return 0;
}

/* Prints the source of manual pages and completion: lines of fields with
 * tabs. */
static int
command_print_table(const struct info_command *command)
{
    printf("command\t%s\t", command->name);
    for (int i = 0; i < command->count; i++)
        if (option_is_operand(&command->options[i]))
            printf("%s%s", command->options[i].name,
                command->options[i].kind == INFO_LIST ? "..." : "");
    putchar('\t');
    for (const char *text = command->about; *text != 0; text++)
        if (*text != '\n' || text[1] != 0) /* in one line */
            putchar(*text != '\n' ? *text : ' ');
    putchar('\n');
    for (int i = 0; i < command->count; i++) {
        const struct info_option *o = &command->options[i];

        if (o->help && !option_is_operand(o))
            printf("option\t\t%s\t%s\t%s\n", o->name,
                o->value                 ? o->value
                : o->kind == INFO_NUMBER ? "N"
                : o->kind == INFO_TEXT   ? "LIST"
                                         : "",
                o->help);
    }
    return 0;
}

/* Is the text one of the words that value lists ("heads|balanced")? Where value
 * lists no words, every text is valid. */
static bool
option_takes_word(const char *value, const char *text)
{
    const char *words = value;

    while (value && strchr(value, '|')) {
        size_t length = strcspn(words, "|");

        if (strlen(text) == length && strncmp(words, text, length) == 0)
            return true;
        if (words[length] == 0)
            return false;
        words += length + 1;
    }
    return true;
}

/* Turns "heads|balanced" into "heads or balanced". */
static const char *
words_as_text(const char *words, char *text_p, size_t bytes)
{
    size_t at = 0;

    text_p[0] = 0;
    for (const char *c = words; *c != 0 && at + 8 < bytes; c++) {
        const char *more = strchr(c + 1, '|');

        if (*c != '|')
            text_p[at++] = *c;
        else
            at += (size_t)snprintf(
                text_p + at, bytes - at, "%s", more ? ", " : " or ");
        text_p[at] = 0;
    }
    return text_p;
}

static bool
parse_number(const char *text, int64_t *value_p)
{
    char *end;

    errno = 0;
    *value_p = strtoll(text, &end, 10);
    return end != text && *end == 0 && errno == 0;
}

/* returns -1, or the exit code of an error that was printed. */
static int
option_store(const struct info_command *command,
    const struct info_option *option, const char *value)
{
    int64_t number;
    char text[200];

    if (!option_takes_word(option->value, value))
        return info_reject(command->name, "%s %s: expected %s", option->name,
            value, words_as_text(option->value, text, sizeof(text)));
    if (option->kind == INFO_TEXT) {
        *(const char **)option->to = value;
        return -1;
    }
    if (!parse_number(value, &number) || number < option->low ||
        number > option->high)
        return info_reject(command->name,
            "%s %s: expected a number from %lld to %lld", option->name, value,
            (long long)option->low, (long long)option->high);
    *(int64_t *)option->to = number;
    return -1;
}

static const struct info_option *
command_find(
    const struct info_command *command, const char *word, size_t length)
{
    for (int i = 0; i < command->count; i++)
        if (strlen(command->options[i].name) == length &&
            strncmp(command->options[i].name, word, length) == 0)
            return &command->options[i];
    return NULL;
}

static bool
operand_has_value(const struct info_option *option)
{
    return option->kind == INFO_LIST
               ? ((const struct info_list *)option->to)->count > 0
               : *(const char **)option->to != NULL;
}

/* The first operand without a value; else the operand that is a list; NULL:
 * there is none. */
static const struct info_option *
command_next_operand(const struct info_command *command)
{
    const struct info_option *list = NULL;

    for (int i = 0; i < command->count; i++) {
        const struct info_option *option = &command->options[i];

        if (!option_is_operand(option))
            continue;
        if (!operand_has_value(option))
            return option;
        list = option->kind == INFO_LIST ? option : list;
    }
    return list;
}

static int
command_take(
    const struct info_command *command, int argc, char **argv, int *at_p)
{
    const char *word = argv[*at_p], *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    const struct info_option *option = word[0] == '-'
                                           ? command_find(command, word, length)
                                           : command_next_operand(command);

    if (!option)
        return info_reject(command->name, "%s is not understood", word);
    if (option_is_operand(option) && option->kind == INFO_LIST) {
        struct info_list *list = option->to;

        list->at = argv; /* the list has no more words than have been read */
        argv[list->count++] = argv[*at_p];
        return -1;
    }
    if (option_is_operand(option))
        return option_store(command, option, word);
    if (option->kind == INFO_FLAG && equals)
        return info_reject(command->name, "%s takes no value", option->name);
    if (option->kind == INFO_FLAG) {
        *(bool *)option->to = true;
        return -1;
    }
    if (!equals && *at_p + 1 == argc)
        return info_reject(command->name, "%s needs a value", word);
    return option_store(command, option, equals ? equals + 1 : argv[++*at_p]);
}

int
info_options_read(const struct info_command *command, int argc, char **argv)
{
    int code = -1;

    for (int i = 0; i < argc; i++)
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help"))
            return command_print_help(command);
        else if (!strcmp(argv[i], "--help=table"))
            return command_print_table(command);
    for (int i = 0; i < argc && code < 0; i++)
        code = command_take(command, argc, argv, &i);
    for (int i = 0; i < command->count && code < 0; i++)
        if (option_is_operand(&command->options[i]) &&
            !operand_has_value(&command->options[i]))
            code = info_reject(
                command->name, "%s is missing", command->options[i].name);
    return code;
}

/* Appends low, 2 low, 4 low and so on, as far as they are below high; then
 * high. */
static int
add_range(
    int64_t low, int64_t high, int64_t *numbers_p, int capacity, int count)
{
    for (int64_t n = low; n < high && count < capacity; n *= 2)
        numbers_p[count++] = n;
    if (count < capacity)
        numbers_p[count++] = high;
    return count;
}

int
info_parse_numbers(const char *text, int64_t *numbers_p, int capacity)
{
    int count = 0;

    for (;;) {
        char *end;
        int64_t low, high;

        errno = 0;
        low = high = strtoll(text, &end, 10);
        if (end != text && *end == '-') {
            text = end + 1;
            high = strtoll(text, &end, 10);
        }
        if (end == text || errno != 0 || low < 1 || high < low ||
            high > INT64_MAX / 4 || count == capacity ||
            (count > 0 && low <= numbers_p[count - 1]))
            return 0;
        count = add_range(low, high, numbers_p, capacity, count);
        if (*end == 0)
            return numbers_p[count - 1] == high ? count : 0;
        if (*end != ',')
            return 0;
        text = end + 1;
    }
}
