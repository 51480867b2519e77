#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ptxas_gate.sh COMMAND...: runs a compiler. If it compiles a kernel of
# attention (forward_*.cu, backward_*.cu, with -Xptxas=-v), this script fails
# where ptxas has serialized wgmma, inserted a wait for it, ignored setmaxnreg,
# or spilled registers. Such a kernel has correct results, but may be several
# times slower.
set -u
case "$*" in
*forward_*.cu* | *backward_*.cu*) ;;
*) exec "$@" ;;
esac
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" 2>"$log" || {
    cat "$log" >&2
    exit 1
}
grep -E 'warning|error' "$log" >&2
if grep -E 'serialized|warpgroup.wait is injected|setmaxnreg.*ignored|[1-9][0-9]* bytes spill' "$log" >&2
then
    echo "ptxas_gate.sh: the kernel is refused, see above" >&2
    exit 1
fi
exit 0
