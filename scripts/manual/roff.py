# SPDX-License-Identifier: Apache-2.0
"""Writes manual pages with the man macros, which groff and mandoc both read."""
import os
import re
import textwrap
import time


def escape(text):
    """The text with the characters escaped that roff would interpret."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def quoted(text):
    return '"' + escape(text).replace('"', '\\(dq') + '"'


def filled(text):
    """Prose as lines of a page's source; roff breaks the lines again."""
    return escape(textwrap.fill(" ".join(text.split()), 76,
                                break_long_words=False,
                                break_on_hyphens=False))


def build_date():
    """The date of SOURCE_DATE_EPOCH if a packager sets it, so that builds can
    be reproduced; else today."""
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


class Page:
    def __init__(self, name, section, what, version, manual):
        self.name, self.section = name, section
        self.out = [
            f".TH {quoted(name.upper())} {section} \"{build_date()}\" "
            f"{quoted('ulyx ' + version)} {quoted(manual)}",
            ".SH NAME", f"{escape(name)} \\- {escape(what)}"]
        self.fresh = False  # right below a heading, where .PP is not needed

    def section_title(self, title):
        self.out.append(f".SH {quoted(title)}")
        self.fresh = True

    def subsection(self, title):
        self.out.append(f".SS {quoted(title)}")
        self.fresh = True

    def _begin(self):
        if not self.fresh:
            self.out.append(".PP")
        self.fresh = False

    def paragraph(self, text):
        """Adds the text; "returns: " and "ownership: " begin new paragraphs."""
        text = " ".join(text.split())
        for part in re.split(r"(?:^| )(?=(?:returns|ownership): )", text):
            if part:
                self._begin()
                self.out.append(filled(re.sub(r"^(returns|ownership)",
                                              lambda m: m[1].title(), part)))

    def literal(self, lines):
        """Adds lines without changing where they break."""
        self._begin()
        self.out += [".nf", ".RS 2"]
        self.out += [escape(line) if line.strip() else "" for line in lines]
        self.out += [".RE", ".fi"]

    def prose(self, lines):
        """Adds paragraphs, which empty lines separate; indented lines are not
        filled."""
        block, indented = [], False
        for line in [*lines, ""]:
            now = line.startswith("  ")
            if block and (not line.strip() or now != indented):
                if indented:
                    self.literal(block)
                else:
                    self.paragraph(" ".join(block))
                block = []
            if line.strip():
                block.append(line.strip() if not now else line[2:])
                indented = now

    def item(self, term, text):
        self.out += [".TP", term, filled(text)]
        self.fresh = False

    def see_also(self, pages):
        self.section_title("SEE ALSO")
        others = [page for page in sorted(set(pages))
                  if page != (self.name, self.section)]
        self.out.append(",\n".join(
            f"\\fB{escape(name)}\\fR({section})" for name, section in others))

    def write(self, folder):
        path = os.path.join(folder, f"man{self.section}")
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, f"{self.name}.{self.section}"), "w",
                  encoding="utf-8") as file:
            file.write("\n".join(self.out) + "\n")


def write_alias(folder, name, section, target):
    """Writes a page that only refers to another page, so that man finds it by
    the name of a function."""
    path = os.path.join(folder, f"man{section}", f"{name}.{section}")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f".so man{section}/{target}.{section}\n")
