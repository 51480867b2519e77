#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_header.sh HEADER LANGUAGE COMPILER FLAGS...: compiles a program that
# includes a public header twice and nothing else, and that initializes a
# ulyx_x_t by each macro ULYX_X_INIT. The program is compiled with the folder of
# headers as pkg-config gives it (-I) and as CMake gives it (-isystem), with the
# warnings that users usually enable.
set -eu
header=$1
language=$2
shift 2
include=${header%/ulyx/*}
program=$({
    echo "#include <ulyx/${header##*/}>"
    echo "#include <ulyx/${header##*/}>"
    sed -n 's/^#define \(ULYX_[A-Z0-9_]*\)_INIT\>.*/\1/p' "$header" \
        | while read -r name; do
        type=$(echo "$name" | tr '[:upper:]' '[:lower:]')_t
        echo "$type use_$type(void);"
        echo "$type use_$type(void) { $type v = ${name}_INIT; return v; }"
    done
    echo "int nothing_else(void);"
})
for how in -I -isystem; do
    echo "$program" | "$@" -x "$language" "$how" "$include" -Wall -Wextra \
        -Wshadow -pedantic-errors -Werror -fsyntax-only -
done
