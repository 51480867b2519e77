#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ptxas_log.sh COMMAND...: runs a compiler. If it has -Xptxas=-v, what ptxas
# says about each kernel goes to OBJECT.ptxas, which spills_test.sh reads, and
# not to the terminal.
set -u
case "$*" in
*-Xptxas=-v*) ;;
*) exec "$@" ;;
esac
object=
follows=0
for word in "$@"; do
    [ "$follows" -eq 0 ] || object=$word
    follows=0
    [ "$word" != -o ] || follows=1
done
"$@" 2>"$object.ptxas"
code=$?
grep -Ev '^ptxas info|bytes stack frame' "$object.ptxas" >&2
exit $code
