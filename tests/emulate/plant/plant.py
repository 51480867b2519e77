# SPDX-License-Identifier: Apache-2.0
"""What the scripts that plant faults have in common: copies of sources in which
each fault stands behind a number, NAME_planted, that a test sets at run time;
and NAME_planted.h, which declares it and lists the faults. A place that is not
found, or found twice, is an error, so a script's list keeps up with the
sources."""
import os
import sys


def choice(test, text, instead):
    """Returns what replaces the text, which is a statement, ending in ";" or a
    comment, or an expression."""
    if text.endswith((";", "*/")):
        return f"{{ if ({test}) {{ {instead} }} else {{ {text} }} }}"
    return f"({test} ? ({instead}) : ({text}))"


class Sources:
    """The files of the folder `source`, and their changed copies."""

    def __init__(self, source, names):
        self.clean = {}
        for name in names:
            with open(os.path.join(source, name), encoding="utf-8") as file:
                self.clean[name] = file.read()
        self.texts = dict(self.clean)

    def put(self, fault, name, text, change):
        """Plants a fault. A second fault at the same place is planted within
        the change of the first, which contains the original text."""
        if self.clean[name].count(text) != 1:
            sys.exit(f"{name}: not one place for {fault}: {text}")
        if text not in self.texts[name]:
            sys.exit(f"{name}: another fault has the place of {fault}: {text}")
        self.texts[name] = self.texts[name].replace(text, change, 1)

    def write(self, output, name, faults):
        """Writes the copies, and name_planted.h with NAME_FAULTS(X): X(fault)
        for each fault."""
        header = f"{name}_planted.h"
        for path, text in self.texts.items():
            path = os.path.join(output, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace(
                    "#include ", f'#include "{header}"\n#include ', 1))
        with open(os.path.join(output, header), "w", encoding="utf-8") as file:
            file.write("/* SPDX-License-Identifier: Apache-2.0 */\n"
                       "#pragma once\n"
                       f"#ifdef __cplusplus\nextern \"C\" int {name}_planted;\n"
                       f"#else\nextern int {name}_planted;\n#endif\n"
                       f"#define {name.upper()}_FAULTS(X)")
            for fault in faults:
                file.write(f" \\\n    X({fault})")
            file.write("\n")
