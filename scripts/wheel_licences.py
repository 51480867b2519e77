#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds the licences of bundled libraries to a wheel that auditwheel has
repaired.

wheel_licences.py WHEEL FOLDER [LICENCES]

auditwheel has copied shared libraries of the distribution into ulyx.libs/ of
the wheel. This script copies the copyright file of each library's package into
the wheel's licenses folder, and writes the wheel to FOLDER. The folder
LICENCES has the licences of libraries that are linked in statically. The exit
code is 1 if a library has no licence.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile


def package_of(library):
    """The Debian package that has a library of this name, and its licence."""
    found = subprocess.run(["dpkg-query", "-S", f"*/{library}"],
                           capture_output=True, text=True)
    for line in found.stdout.splitlines():
        package = line.split(":")[0]
        licence = f"/usr/share/doc/{package}/copyright"
        if os.path.exists(licence):
            return package, licence
    # Not a Debian system: the licence files that rpm lists.
    found = subprocess.run(
        f"rpm -q --whatprovides --licensefiles $(rpm -qal | grep '/{library}$')",
        shell=True, capture_output=True, text=True)
    files = [line for line in found.stdout.splitlines() if os.path.exists(line)]
    if found.returncode == 0 and files:
        return os.path.basename(os.path.dirname(files[0])), files[0]
    return None


def original_name(bundled):
    """The name of a library before auditwheel added a hash: libhwloc.so.15.6.1
    for libhwloc-75dae53a.so.15.6.1."""
    return re.sub(r"-[0-9a-f]{8}(?=\.so)", "", bundled)


def main(wheel, folder, more=None):
    with tempfile.TemporaryDirectory() as work:
        tool = [sys.executable, "-m", "wheel"]
        subprocess.run([*tool, "unpack", "--dest", work, wheel], check=True,
                       stdout=subprocess.DEVNULL)
        tree = os.path.join(work, os.listdir(work)[0])
        info = next(name for name in os.listdir(tree)
                    if name.endswith(".dist-info"))
        licenses = os.path.join(tree, info, "licenses")
        os.makedirs(licenses, exist_ok=True)
        libraries = os.path.join(tree, "ulyx.libs")
        bundled = os.listdir(libraries) if os.path.isdir(libraries) else []
        for name in os.listdir(more) if more else []:
            shutil.copy(os.path.join(more, name), licenses)
            print(f"wheel: licence of {name.split('.')[0]}, linked in")
        missing = []
        for name in bundled:
            found = package_of(original_name(name))
            if found is None:
                missing.append(name)
                continue
            package, licence = found
            shutil.copy(licence, os.path.join(licenses, f"{package}.txt"))
            print(f"wheel: {original_name(name)}, licence of {package}")
        if missing:
            print(f"wheel: no licence is found for {', '.join(missing)}",
                  file=sys.stderr)
            return 1
        subprocess.run([*tool, "pack", "--dest-dir", folder, tree], check=True,
                       stdout=subprocess.DEVNULL)
    return 0


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(*sys.argv[1:]))
