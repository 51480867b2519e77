# SPDX-License-Identifier: Apache-2.0
"""Reads how a program describes itself: the lines of `--help=table`, whose
fields are separated by tabs,

    name     NAME  WHAT
    operand  WORDS      of a program with commands: one of them must be given
    option   BRIEF LONG VALUE HELP      of the program, or of the command above
    command  NAME  OPERAND SUMMARY
    setting  NAME  TYPE DEFAULT LOW HIGH HELP

and the prose above and below the options in `--help`."""
import os
import re
import subprocess
from dataclasses import dataclass, field


@dataclass
class Option:
    brief: str
    name: str
    value: str
    help: str

    @property
    def words(self):
        """The words that the value may be; empty where any value is allowed."""
        plain = re.fullmatch(r"[a-z0-9_|]+", self.value)
        return self.value.split("|") if plain else []

    @property
    def names(self):
        return [name for name in (self.brief, self.name) if name]


@dataclass
class Command:
    name: str
    operand: str
    summary: str
    options: list = field(default_factory=list)


@dataclass
class Setting:
    name: str
    type: str
    default: str
    low: str
    high: str
    help: str


@dataclass
class Program:
    name: str = ""
    what: str = ""
    operand: str = ""
    options: list = field(default_factory=list)
    commands: list = field(default_factory=list)
    settings: list = field(default_factory=list)
    head: list = field(default_factory=list)
    tail: list = field(default_factory=list)


def output(path, word):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("ULYX_")}
    return subprocess.run([path, word], check=True, text=True,
                          capture_output=True, env=environment).stdout


def read_table(text):
    program = Program()
    options = program.options
    for line in text.splitlines():
        kind, *words = line.split("\t")
        if kind == "name":
            program.name, program.what = words
        elif kind == "operand":
            program.operand, = words
        elif kind == "option":
            options.append(Option(*words))
        elif kind == "command":
            program.commands.append(Command(*words))
            options = program.commands[-1].options
        elif kind == "setting":
            program.settings.append(Setting(*words))
        else:
            raise ValueError(f"a line of an unknown kind: {line}")
    return program


def split_help(program, text):
    """The prose above and below the lines of options and commands."""
    known = {name for option in program.options for name in option.names}
    known |= {command.name for command in program.commands}
    starts = tuple(f"{name}{after}" for name in known for after in " ,")
    lines = text.splitlines()[1:]  # without usage
    rows = [at for at, line in enumerate(lines)
            if line.startswith("  ") and line.strip().startswith(starts)]
    head = lines[:rows[0]]
    while head and re.fullmatch(r"\s*|.*:|\s+[A-Z]+", head[-1]):
        head.pop()  # headings of argparse
    after = rows[-1] + 1
    while after < len(lines) and lines[after].strip():
        after += 1  # help that goes on in a second line
    return head, lines[after:]


def read_program(path):
    program = read_table(output(path, "--help=table"))
    program.head, program.tail = split_help(program, output(path, "--help"))
    return program
