# SPDX-License-Identifier: Apache-2.0
"""Turns public headers into manual pages of section 3. The comment above a
declaration becomes its text, so that the header is the only text to maintain.

A header is read as units: a comment and the code right below it, up to an empty
line. Comments inside code stay with the code."""
import os
import re
from dataclasses import dataclass

# Lines that only compilers need.
MACHINERY = re.compile(
    r"^#ifdef __cplusplus\n(?:extern \"C\" \{|\})\n#endif\n"
    r"|^#ifndef ULYX_\w+_H\n#define ULYX_\w+_H\n|^#endif\n\Z"
    r"|^#include .*\n", re.M)


@dataclass
class Unit:
    comment: list
    code: list

    @property
    def functions(self):
        return re.findall(r"\b(ulyx_\w+)\s*\([^;]*?\)\s*;",
                          "\n".join(line for line in self.code
                                    if not line.startswith("typedef"))) \
            if "ULYX_API" in "\n".join(self.code) else []

    @property
    def names(self):
        """The names that the unit declares, for its heading."""
        code = re.sub(r"/\*.*?\*/", "", "\n".join(self.code), flags=re.S)
        types = re.findall(r"^(?:typedef [^;{}()]*?\b|\} )(\w+);"
                           r"|^typedef [^;{}]*?\(\*(\w+)\)", code, re.M)
        types = ["".join(pair) for pair in types]
        macros = re.findall(r"^#define (ULYX_\w+)", code, re.M)
        found = self.functions or types or macros or \
            re.findall(r"^\s+(ULYX_\w+)\s*[=,]", code, re.M)
        return list(dict.fromkeys(found))


def comment_text(lines):
    """The lines of a comment without stars and slashes."""
    lines = [re.sub(r"^\s*(/\*| \*/?)", "", line) for line in lines]
    lines[-1] = re.sub(r"\s*\*/\s*$", "", lines[-1])
    lines = [line[1:] if line.startswith(" ") else line for line in lines]
    while lines and not lines[0].strip():
        lines.pop(0)
    return lines


def comment_end(lines, at):
    while "*/" not in lines[at]:
        at += 1
    return at + 1


def code_end(lines, at):
    """The index of the line after a unit's code: the first line that is empty
    or a comment, outside of braces and of macros over several lines."""
    depth = 0
    while at < len(lines):
        line = lines[at]
        goes_on = at > 0 and lines[at - 1].endswith("\\")
        if depth == 0 and not goes_on and \
                (not line.strip() or line.startswith("/*")):
            break
        plain = re.sub(r"/\*.*?(\*/|$)|\"[^\"]*\"", "", line)
        depth += plain.count("{") - plain.count("}")
        at += 1
    return at


def read_units(text):
    """The comment at the top of the header, and the units."""
    lines = MACHINERY.sub("", text).splitlines()
    at = comment_end(lines, 0)
    about = comment_text(lines[:at])[1:]  # without the licence
    units = []
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        comment = []
        if lines[at].startswith("/*"):
            end = comment_end(lines, at)
            comment = comment_text(lines[at:end])
            at = end
        if at < len(lines) and lines[at].strip() and \
                not lines[at].startswith("/*"):
            end = code_end(lines, at)
            code = lines[at:end]
            at = end
        else:
            code = []
        if not any(line.startswith("#define ULYX_API") for line in code):
            units.append(Unit(comment, code))
    return about, units


def add_unit(page, unit):
    if unit.names:
        page.subsection(", ".join(unit.names))
    page.prose(unit.comment)
    if unit.code:
        page.literal([re.sub(r"^ULYX_API ", "", line) for line in unit.code])


def header_page(path, new_page):
    """The page of a header, and the functions whose names also lead to it."""
    base = os.path.splitext(os.path.basename(path))[0]
    name = "ulyx" if base == "ulyx" else f"ulyx_{base}"
    with open(path, encoding="utf-8") as file:
        about, units = read_units(file.read())
    while about and not about[0].strip():
        about.pop(0)
    text = " ".join(about).strip().removeprefix("ulyx: ")
    what = re.split(r"(?<=[a-z])[.:](?:\s|$)", text)[0]
    what = what[0].lower() + what[1:]
    page = new_page(name, 3, what)
    page.section_title("SYNOPSIS")
    page.literal([f"#include <ulyx/{base}.h>"])
    page.section_title("DESCRIPTION")
    page.prose(about)
    for title, wanted in (("FUNCTIONS", True), ("TYPES AND CONSTANTS", False)):
        chosen = [unit for unit in units if bool(unit.functions) == wanted]
        if chosen:
            page.section_title(title)
        for unit in chosen:
            add_unit(page, unit)
    functions = [f for unit in units for f in unit.functions]
    return page, [f for f in functions if f != name]
