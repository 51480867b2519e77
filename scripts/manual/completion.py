# SPDX-License-Identifier: Apache-2.0
"""Writes completion for bash and zsh."""
import os
import re


def function_name(program):
    return "_" + re.sub(r"\W", "_", program.name)


def bash_values(options):
    """The lines of bash that complete the value of each option: one of its
    words, a file, or nothing."""
    lines, free = [], []
    for option in options:
        names = "|".join(option.names)
        if option.words:
            lines.append(f"    {names}) words='{' '.join(option.words)}' ;;")
        elif option.value == "FILE":
            lines.append(f"    {names}) files=1 ;;")
        elif option.value:
            free.append(names)
    if free:
        lines.append(f"    {'|'.join(free)}) return ;;")
    return lines


def merge_commands(program):
    """{command: {option name: option}}; the options of "plan --nodes" are
    added to those of "plan". The name "" stands for an operand that is a
    file."""
    merged = {}
    for command in program.commands:
        options = merged.setdefault(command.name.split()[0], {})
        options.update((option.name, option) for option in command.options)
        if command.operand.lstrip("[").startswith("FILE"):
            options[""] = None
    return merged


def bash_words(options):
    return " ".join(name for option in options for name in option.names)


def bash_program(program):
    commands = merge_commands(program)
    every = {option.name: option for option in program.options}
    for options in commands.values():
        every.update((name, option) for name, option in options.items() if name)
    out = ["# SPDX-License-Identifier: Apache-2.0",
           f"# Completion of {program.name} for bash; made from its options.",
           f"{function_name(program)}()", "{",
           "    local cur=${COMP_WORDS[COMP_CWORD]} words= files=",
           "    case ${COMP_WORDS[COMP_CWORD - 1]} in",
           *bash_values(every.values()), "    esac",
           "    if [ -z \"$words$files\" ]; then",
           f"        words='{bash_words(program.options)}'"]
    if program.operand.startswith("FILE"):
        out.append("        files=1")
    if commands:
        out += ["        if [ \"$COMP_CWORD\" -eq 1 ]; then",
                f"            words=\"$words {' '.join(commands)}\"",
                "        fi", "        case ${COMP_WORDS[1]} in"]
        for name, options in commands.items():
            words = bash_words(option for option in options.values() if option)
            files = " files=1" if "" in options else ""
            if words or files:
                out.append(f"        {name}) words=\"$words {words}\"{files} ;;")
        out.append("        esac")
    out += ["    fi", "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))",
            "    [ -z \"$files\" ] || "
            "COMPREPLY+=($(compgen -f -- \"$cur\"))",
            "}", f"complete -o filenames -F {function_name(program)} "
            f"{program.name}"]
    return out


def zsh_option(option):
    text = re.sub(r"([\[\]:\\])", r"\\\1", option.help).replace("'", "'\\''")
    value = ""
    if option.words:
        value = f":value:({' '.join(option.words)})"
    elif option.value:
        value = f":{option.value}:" + \
            ("_files" if option.value == "FILE" else " ")
    if option.brief:
        names = f"({option.brief} {option.name})'{{{option.brief}," \
            f"{option.name}}}'"
    else:
        names = option.name
    return f"'{names}[{text}]{value}'"


def zsh_arguments(margin, specs):
    lines = [f"{margin}_arguments \\"]
    lines += [f"{margin}    {spec} \\" for spec in specs]
    lines[-1] = lines[-1][:-2]
    return lines


def zsh_program(program):
    commands = merge_commands(program)
    own = [zsh_option(option) for option in program.options]
    out = [f"#compdef {program.name}", "# SPDX-License-Identifier: Apache-2.0",
           f"# Completion of {program.name} for zsh; made from its options."]
    if program.operand.startswith("FILE"):
        own.append("'*:file:_files'")
    if not commands:
        return out + zsh_arguments("", own)
    out += ["case ${words[2]} in"]
    for name, options in commands.items():
        specs = [zsh_option(option) for option in options.values() if option]
        specs += ["'2:file:_files'"] if "" in options else []
        if specs:
            out += [f"{name})", *zsh_arguments(
                "    ", ["'1:command:'", *specs, *own]), "    ;;"]
    out += ["*)", *zsh_arguments(
        "    ", [f"'1:command:({' '.join(commands)})'", *own]), "    ;;",
            "esac"]
    return out


def write(program, folder):
    for part, name, lines in (
            ("bash-completion/completions", program.name,
             bash_program(program)),
            ("zsh/site-functions", "_" + program.name, zsh_program(program))):
        path = os.path.join(folder, part)
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, name), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
