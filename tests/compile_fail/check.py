#!/usr/bin/env python3
"""Compiles one misuse and asserts that it is refused with exactly one error, which says what we say.

    check.py CASE --compiler g++ --include DIR [--must-compile]

In the case:
    // EXPECT: a part of the error's line
    // EXPECT g++: ...      for one compiler only, where the words are the compiler's own
    // SAYS: a part of what stands anywhere in the output
    // FLAGS: -Werror=...
"""

import argparse
import pathlib
import re
import subprocess
import sys


def marked(text, word, compiler):
    own = re.findall(rf"^// {word} {re.escape(compiler)}: (.+)$", text, re.MULTILINE)
    return own or re.findall(rf"^// {word}: (.+)$", text, re.MULTILINE)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("case", type=pathlib.Path)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--include", required=True)
    parser.add_argument("--must-compile", action="store_true")
    options = parser.parse_args()

    text = options.case.read_text(encoding="utf-8")
    flags = [flag for line in marked(text, "FLAGS", options.compiler) for flag in line.split()]
    command = [options.compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-ferror-limit=0",
               "-I", options.include, *flags, str(options.case)]
    if options.compiler.startswith("g"):
        command[command.index("-ferror-limit=0")] = "-fmax-errors=0"
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    output = result.stdout + result.stderr
    errors = re.findall(r"^.*\berror: .*$", output, re.MULTILINE)

    problems = []
    if options.must_compile:
        if result.returncode != 0 or output:
            problems.append("does not compile without a word")
    else:
        expected = marked(text, "EXPECT", options.compiler)
        if not expected:
            problems.append("says not what it expects")
        if result.returncode == 0:
            problems.append("compiles")
        if len(errors) != 1:
            problems.append(f"gives {len(errors)} errors instead of one")
        for sentence in expected:
            if not any(sentence in line for line in errors):
                problems.append(f"no error says '{sentence}'")
        for sentence in marked(text, "SAYS", options.compiler):
            if sentence not in output:
                problems.append(f"nowhere stands '{sentence}'")

    for problem in problems:
        print(f"{options.case.name}, {options.compiler}: {problem}")
    print(output)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
