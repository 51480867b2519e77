#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# documents_test.sh BUILD SOURCE PYTHON: the installed documents: every document
# of the sources is there, every relative link has a target, and no program
# stands in a folder that only a build has.
set -eu
. "$(dirname "$0")/stage.sh"
source=$2
python=$3
documents=$prefix/share/doc/ulyx
"$python" "$source/scripts/check_links.py" --installed "$documents"
(cd "$source" && ls ./*.md docs/*.md docs/*/*.md perf/*.md) >"$work/wanted"
while read -r document; do
    [ -s "$documents/$document" ] || fail "$document is not installed"
done <"$work/wanted"
if grep -rn 'build/bin/' "$documents" --include='*.md'; then
    fail "these lines name a folder of a build"
fi
grep -q '^    ulyx_info plan --ranks 4 ' "$documents/README.md" \
    || fail "README.md shows no program"

# A link to nothing is found.
echo '[a](nothing.md)' >"$documents/docs/more.md"
if "$python" "$source/scripts/check_links.py" --installed "$documents" \
    >"$work/log"; then
    fail "a link to nothing has passed"
fi
grep -q 'docs/more.md: link to nothing.md' "$work/log" || fail "which link"
