#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the code obeys the layers: a file of src/ includes only its own
folder and lower layers; each foreign library is included in one place; public
headers need nothing but the C library; only src/api defines public functions;
a transport is named only in its own folder and in the list of transports, and
other code selects transports by capability; only the settings and the table of
launchers read the environment.

check_layers.py [ROOT]
"""
import os
import re
import sys

LEVELS = {
    "base": 0,
    "topology": 1,
    "device": 1,
    "transport": 2,
    "bootstrap": 3,
    "comm": 4,
    "collectives": 5,
    "attention": 6,
    "api": 7,
}

# header pattern -> where in the tree it may be included
FOREIGN = [
    (r"(hwloc\b|expat\.h)", r"src/topology/"),
    (r"(ucp|uct|ucs)/", r"src/transport/ucx/|tests/transport/ucx"),
    (r"(cuda|cudart|cublas|nvml|nvrtc|cooperative_groups|mma\.h)",
     r"src/device/|src/collectives/device/|(.*/)?cuda/|.*\.cuh?$|tests/|perf/|"
     r"examples/"),
    (r"nccl\.h", r"src/transport/nccl/|tests/transport/nccl|perf/"),
    (r"pmix", r"src/bootstrap/"),
    (r"mpi\.h", r"perf/|examples/|tests/"),
    (r"jansson\.h", r"perf/|tools/|tests/"),
]

PUBLIC_MAY_INCLUDE = re.compile(
    r"ulyx/|(stddef|stdint|stdbool|limits)\.h$")
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]')
TRANSPORT = re.compile(r"\buli_tr_(\w+)_ops\b")
NAMES_TRANSPORTS = ("src/transport/transport.h",
                    "src/transport/transport_list.c", "tests/")
DEFINITION = re.compile(r"^(ulyx_\w+)\(")
SOURCES = (".c", ".h", ".cu", ".cuh", ".cc")


def check_internal(path, target):
    """An include of one layer by a file of src/<layer>/."""
    layer = path.split("/")[1]
    parts = target.split("/")
    if layer not in LEVELS or parts[0] not in LEVELS:
        return None
    if parts[0] != layer and LEVELS[parts[0]] >= LEVELS[layer]:
        return f"{layer} (L{LEVELS[layer]}) includes {target}, of a layer " \
            f"that is not lower (L{LEVELS[parts[0]]})"
    if parts[0] == "transport" and layer != "transport" and len(parts) > 2:
        return f"includes {target}: transports are seen by " \
            "transport/transport.h only"
    return None


ENVIRONMENT = re.compile(r"\b(secure_)?getenv\s*\(|\benviron\b")
READS_ENVIRONMENT = ("src/base/settings.c", "src/bootstrap/launch/launcher.c")


def check_include(path, target):
    if path.startswith("include/"):
        if not PUBLIC_MAY_INCLUDE.match(target):
            return f"public header includes {target}"
        return None
    for pattern, allowed in FOREIGN:
        if re.match(pattern, target) and not re.match(allowed, path):
            return f"includes {target}, which only {allowed} may"
    if path.startswith("src/") and path.count("/") > 1:
        return check_internal(path, target)
    return None


def check_definition(path, line):
    match = DEFINITION.match(line)
    if match and path.startswith("src/") and not path.startswith("src/api/"):
        return f"defines {match.group(1)}: only src/api defines public names"
    return None


def check_transport(path, line):
    """uli_tr_<name>_ops may appear in the transport's folder, in the list, and
    in the header of the list."""
    for name in TRANSPORT.findall(line):
        if path.startswith(NAMES_TRANSPORTS) or \
                path.startswith(f"src/transport/{name}/"):
            continue
        return f"names uli_tr_{name}_ops: select a transport by " \
            "uli_tr_select, or go through uli_tr_list"
    return None


def check_environment(path, line):
    if path.startswith("src/") and ENVIRONMENT.search(line) and \
            path not in READS_ENVIRONMENT:
        return "reads the environment: add it to base/settings"
    return None


def check_file(root, path):
    found = []
    with open(os.path.join(root, path), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            match = INCLUDE.match(line)
            error = check_include(path, match.group(1)) if match \
                else check_definition(path, line) or \
                check_transport(path, line) or check_environment(path, line)
            if error:
                found.append(f"{path}:{number}: {error}")
    return found


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else \
        os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    errors, count = [], 0
    for top in ("include", "src", "tests", "perf", "tools", "examples"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith(SOURCES):
                    path = os.path.relpath(os.path.join(folder, name), root)
                    errors += check_file(root, path)
                    count += 1
    print("\n".join(errors + [f"{count} files, {len(errors)} errors"]))
    return 1 if errors or count == 0 else 0


sys.exit(main())
