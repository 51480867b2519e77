#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make.py --version V --include DIR --tuning FILE --out SHARE PROGRAM...

Makes manual pages and completion from texts that exist for other reasons: the
programs' tables of options, the table of settings, the comments of the public
headers, and the commented example of a tuning file."""
import argparse
import glob
import os
import shutil

import completion
import headers
import roff
import tables

MANUALS = {1: "User commands", 3: "Library functions", 5: "File formats",
           7: "Settings"}


def signature(option):
    names = ", ".join(f"\\fB{roff.escape(name)}\\fR" for name in option.names)
    return names + (f" \\fI{roff.escape(option.value)}\\fR"
                    if option.value else "")


def program_page(program, new_page, others):
    page = new_page(program.name, 1, program.what)
    page.section_title("SYNOPSIS")
    operand = program.operand and f" [{program.operand}]"
    command = ""
    if program.commands:
        command, operand = f"{program.operand or '[command]'} ", ""
    page.out.append(f"\\fB{program.name}\\fR {command}[options]{operand}")
    page.section_title("DESCRIPTION")
    page.prose(program.head)
    if program.commands:
        page.section_title("COMMANDS")
    for command in program.commands:
        page.subsection(f"{command.name} {command.operand}".strip())
        page.paragraph(command.summary[0].upper() + command.summary[1:]
                       + ("" if command.summary.endswith(".") else "."))
        for option in command.options:
            page.item(signature(option), option.help)
    page.section_title("OPTIONS")
    for option in program.options:
        page.item(signature(option), option.help)
    page.section_title("NOTES")
    page.prose(program.tail)
    page.see_also(others)
    return page


def setting_bounds(row):
    if row.type == "word":
        words = [word or "nothing" for word in row.default.split("|")]
        return f"One of {', '.join(words)}; {words[0]} by default."
    low, high = float(row.low), float(row.high)
    bounds = f" from {row.low} to {row.high}" if low < high < 2 ** 60 else ""
    default = f", {row.default} by default" if row.default else ""
    return f"{row.type[0].upper()}{row.type[1:]}{bounds}{default}."


def settings_page(program, new_page, others):
    page = new_page("ulyx-settings", 7, "environment variables of ulyx")
    page.section_title("DESCRIPTION")
    about = next(c for c in program.commands if c.name == "settings")
    page.paragraph(about.summary)
    page.section_title("ENVIRONMENT")
    for row in program.settings:
        page.item(f"\\fB{row.name}\\fR",
                  f"{row.help}. {setting_bounds(row)}")
    page.see_also(others)
    return page


def tuning_page(path, new_page, others):
    """The page of the tuning file: comments of the example become the text, and
    its other lines become examples."""
    page = new_page("ulyx-tuning", 5, "tuning file of ulyx")
    page.section_title("DESCRIPTION")
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file
                 if not line.startswith("# SPDX")]
    page.prose([line[2:] if line.startswith("# ") else
                "  " + line if line.strip("#") else "" for line in lines])
    page.see_also(others)
    return page


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("version", "include", "tuning", "out"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("programs", nargs="+")
    args = parser.parse_args()

    def new_page(name, section, what):
        return roff.Page(name, section, what, args.version, MANUALS[section])

    for made in ("man", "bash-completion", "zsh"):
        shutil.rmtree(os.path.join(args.out, made), ignore_errors=True)
    programs, same = [], []
    for path in args.programs:
        program, called = tables.read_program(path), os.path.basename(path)
        if called == program.name:
            programs.append(program)
        else:
            same.append((called, program.name))
    others = [(program.name, 1) for program in programs]
    others += [("ulyx-settings", 7), ("ulyx-tuning", 5), ("ulyx", 3)]
    folder = os.path.join(args.out, "man")
    for program in programs:
        program_page(program, new_page, others).write(folder)
        completion.write(program, args.out)
        if program.settings:
            settings_page(program, new_page, others).write(folder)
    for called, name in same:
        roff.write_alias(folder, called, 1, name)
    tuning_page(args.tuning, new_page, others).write(folder)

    pages = [headers.header_page(path, new_page) for path in sorted(
        glob.glob(os.path.join(args.include, "ulyx", "*.h")))]
    index = [(page.name, 3) for page, _ in pages] + others
    for page, aliases in pages:
        page.see_also(index)
        page.write(folder)
        for name in aliases:
            roff.write_alias(folder, name, 3, page.name)


if __name__ == "__main__":
    main()
