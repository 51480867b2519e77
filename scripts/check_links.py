#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that what documents refer to exists: each relative link and its
section, and each path in backticks that begins with a folder of the tree.

check_links.py [--installed] [ROOT]    --installed: links only, for documents
                                      beside which there is no source tree
"""
import glob
import os
import re
import sys

FOLDERS = ("cmake", "docs", "examples", "include", "perf", "python", "scripts",
           "src", "tests", "tools")
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
PATH = re.compile(r"`((?:%s)/[\w./*\[\]-]+)`" % "|".join(FOLDERS))
FENCE = re.compile(r"^```.*?^```", re.M | re.S)


def sections(text):
    """The anchors that viewers of Markdown give to the headings."""
    for title in re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.M):
        title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()
        yield re.sub(r"[^\w\- ]", "", title).replace(" ", "-")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def errors_of(root, document, installed):
    path = os.path.join(root, document)
    text = FENCE.sub("", read(path))
    for target, anchor in LINK.findall(text):
        if "://" in target or target.startswith("mailto:"):
            continue
        where = os.path.normpath(os.path.join(os.path.dirname(path), target)) \
            if target else path
        if not os.path.exists(where):
            yield f"{document}: link to {target}, which is not there"
        elif anchor and where.endswith(".md") and \
                anchor not in sections(read(where)):
            yield f"{document}: no section #{anchor} in {target or document}"
    for name in () if installed else PATH.findall(text):
        if not glob.glob(os.path.join(root, name)) and \
                not glob.glob(os.path.join(root, name) + ".*"):
            yield f"{document}: `{name}` is not there"


def main():
    words = sys.argv[1:]
    installed = words[:1] == ["--installed"]
    del words[:installed]
    root = words[0] if words else \
        os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    documents = [os.path.relpath(path, root) for pattern in
                 ("*.md", "docs/**/*.md", "perf/*.md")
                 for path in glob.glob(os.path.join(root, pattern),
                                       recursive=True)]
    errors = [error for document in sorted(documents)
              for error in errors_of(root, document, installed)]
    print("\n".join(errors + [f"{len(documents)} documents, "
                              f"{len(errors)} errors"]))
    return 1 if errors or not documents else 0


sys.exit(main())
