#!/usr/bin/env python3
"""Checks the rules of the source tree that no compiler checks.

    check.py CHECK --source DIR [--library FILE]... [--verbose]
    check.py --self-test --source DIR

Every check returns the list of its violations. The self-test plants one violation after the other in
a copy of the tree and expects the check to name it.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

STANDARD = "-std=c++20"
COMPILERS = ("g++", "clang++")
UMBRELLA = "idempotency/idempotency.hpp"
UMBRELLA_LINES = 49_000
HEADER_LINES = 400

# Arrows point down only: a header may reach headers of its own layer and of lower ones. Headers in
# detail/ belong to whoever reaches them.
LAYERS = {
    "clock.hpp": 0,
    "error.hpp": 0,
    "fingerprint.hpp": 0,
    "key.hpp": 0,
    "lease.hpp": 0,
    "record.hpp": 0,
    "transition.hpp": 0,
    "version.hpp": 0,
    "codec.hpp": 1,
    "execution.hpp": 1,
    "key_resolver.hpp": 1,
    "observer.hpp": 1,
    "operation.hpp": 1,
    "policy.hpp": 1,
    "run_result.hpp": 1,
    "sql_transaction.hpp": 1,
    "store.hpp": 1,
    "codecs/": 2,
    "protocol.hpp": 2,
    "guard.hpp": 3,
    "stores/breaker.hpp": 3,
    "stores/caching.hpp": 3,
    "idempotency.hpp": 4,
    "operations/": 5,
    "patterns/": 4,
    "edges/": 5,
    "stores/": 4,
    "testing/": 5,
}

BACKENDS = ("memory", "sqlite", "redis", "mysql")
# What is no store and uses the connections of one.
USERS_OF_A_BACKEND = {"src/edges/redis_streams/": "redis"}
# In one library and on the same parts: the cache's table is built from the memory store's.
SHARED_PARTS = {"src/caching/": ("memory/slot_table.hpp", "memory/byte_hash.hpp")}

UMBRELLA_FORBIDDEN = (
    "functional", "thread", "random", "iostream", "memory", "map", "algorithm",
)

CLIENT_HEADERS = (
    r"/sqlite3(ext)?\.h$", r"/hiredis/", r"/mysql/", r"/mysql\.h$", r"/mariadb/", r"/openssl/",
    r"/fmt/", r"/amqp[^/]*\.h$", r"/librdkafka/",
)
THIRD_PARTY_ROOMS = {  # where a third party's headers may be reached from
    r"/nlohmann/": ("codecs/json.hpp",),
    r"/google/protobuf/": ("codecs/protobuf.hpp", "edges/grpc", "detail/grpc_edge.hpp"),
    r"/gtest/": ("testing/",),
    r"/prometheus/": ("operations/prometheus.hpp",),
    r"/httplib\.h$": ("edges/httplib.hpp",),
    r"/boost/": ("edges/beast.hpp",),
    r"/grpcpp/": ("edges/grpc", "detail/grpc_edge.hpp"),
}


class Tree:
    def __init__(self, root, libraries=(), verbose=False):
        self.root = pathlib.Path(root)
        self.include = self.root / "include"
        self.libraries = list(libraries)
        self.verbose = verbose

    def headers(self):
        """Public headers as they are included: idempotency/key.hpp, ..."""
        found = (p.relative_to(self.include).as_posix() for p in self.include.rglob("*.hpp"))
        return sorted(found)

    def text(self, header):
        return (self.include / header).read_text(encoding="utf-8")

    def own_includes(self, header):
        return [name for name in included_names(self.text(header)) if name.startswith("idempotency/")]


def included_names(text):
    return re.findall(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', text, re.MULTILINE)


def without_room(header):
    return header.removeprefix("idempotency/")


def layer_of(header):
    name = without_room(header)
    if name in LAYERS:
        return LAYERS[name]
    room = name.split("/")[0] + "/"
    return LAYERS.get(room)


def is_detail(header):
    return without_room(header).startswith("detail/")


def run(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **options)


def in_parallel(function, items):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return [violation for found in pool.map(function, items) for violation in found]


# --- layers and backends -----------------------------------------------------------------------


def check_layers(tree):
    violations = []
    headers = set(tree.headers())

    def reached(header, seen):
        for name in tree.own_includes(header):
            if name in seen or name not in headers:
                continue
            seen.add(name)
            if is_detail(name):
                reached(name, seen)
        return seen

    for header in sorted(headers):
        if is_detail(header):
            continue
        own = layer_of(header)
        if own is None:
            violations.append(f"{header}: has no layer; give it one in {pathlib.Path(__file__).name}")
            continue
        for name in sorted(reached(header, set())):
            other = None if is_detail(name) else layer_of(name)
            if other is not None and other > own:
                violations.append(f"{header}: includes {name}, which lies above it")
    return violations + include_cycles(tree, headers)


def include_cycles(tree, headers):
    violations = []
    done = set()

    def visit(header, path):
        if header in path:
            violations.append("cycle: " + " -> ".join(path[path.index(header):] + [header]))
        elif header not in done and header in headers:
            for name in tree.own_includes(header):
                visit(name, path + [header])
            done.add(header)

    for header in sorted(headers):
        visit(header, [])
    return violations


def check_backends(tree):
    violations = []
    files = [tree.include / h for h in tree.headers()]
    files += sorted(p for p in (tree.root / "src").rglob("*") if p.suffix in (".hpp", ".cpp"))
    for path in files:
        relative = path.relative_to(tree.root).as_posix()
        own = next((b for b in BACKENDS if relative == f"include/idempotency/stores/{b}.hpp"
                    or relative.startswith(f"src/{b}/")), None)
        if own is None and "/stores/" not in relative and not relative.startswith("src/"):
            continue  # guards, edges and tests are free to name a store where layers allow it
        if own is None:
            own = next((b for room, b in USERS_OF_A_BACKEND.items() if relative.startswith(room)), None)
        shared = next((names for room, names in SHARED_PARTS.items() if relative.startswith(room)), ())
        for name in included_names(path.read_text(encoding="utf-8")):
            if name in shared:
                continue
            for other in BACKENDS:
                if other == own or relative.startswith("src/open/"):
                    continue
                if re.search(rf"(^|/)stores/{other}\.hpp$|^{other}/|^\.\./{other}/", name):
                    violations.append(f"{relative}: includes {name} of another backend")
    return violations


# --- what preprocessing reaches ------------------------------------------------------------------


def reached_files(tree, header, compiler="g++"):
    source = f'#include "{header}"\n'
    result = run([compiler, STANDARD, "-E", "-I", str(tree.include), "-x", "c++", "-"], input=source)
    if result.returncode != 0:
        return None, result.stdout
    return sorted(set(re.findall(r'^# \d+ "([^"<]+)"', result.stdout, re.MULTILINE))), ""


def check_clients(tree, only=None):
    def of_header(header):
        files, problem = reached_files(tree, header)
        if files is None:
            return [f"{header}: does not preprocess: {first_line(problem)}"]
        found = []
        for path in files:
            if any(re.search(pattern, path) for pattern in CLIENT_HEADERS):
                found.append(f"{header}: reaches {path}")
            for pattern, rooms in THIRD_PARTY_ROOMS.items():
                if re.search(pattern, path) and not without_room(header).startswith(rooms):
                    found.append(f"{header}: reaches {path}")
        return found[:1]  # the first says which

    return in_parallel(of_header, only or tree.headers())


def first_line(text):
    lines = [line for line in text.splitlines() if "error" in line] or text.splitlines() or [""]
    return lines[0]


def check_umbrella(tree):
    files, problem = reached_files(tree, UMBRELLA)
    if files is None:
        return [f"{UMBRELLA}: does not preprocess: {first_line(problem)}"]
    violations = []
    for path in files:
        name = pathlib.PurePosixPath(path).name
        if name in UMBRELLA_FORBIDDEN and "/c++/" in path and "/bits/" not in path:
            violations.append(f"{UMBRELLA}: reaches <{name}>")
        if any(re.search(p, path) for p in (*CLIENT_HEADERS, *THIRD_PARTY_ROOMS)):
            violations.append(f"{UMBRELLA}: reaches {path}")
    text = (tree.include / UMBRELLA).read_text(encoding="utf-8")
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    if re.sub(r"^[ \t]*#[ \t]*(include|pragma once)[^\n]*$", "", code, flags=re.MULTILINE).strip():
        violations.append(f"{UMBRELLA}: contains more than includes")
    return violations


def check_umbrella_size(tree, limit=UMBRELLA_LINES):
    source = f'#include "{UMBRELLA}"\n'
    command = ["g++", STANDARD, "-E", "-P", "-I", str(tree.include), "-x", "c++", "-"]
    result = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return [f"{UMBRELLA}: does not preprocess: {first_line(result.stderr)}"]
    lines = result.stdout.count("\n")
    print(f"{UMBRELLA}: {lines} preprocessed lines of {limit} allowed")
    return [f"{UMBRELLA}: {lines} preprocessed lines, more than {limit}"] if lines > limit else []


# --- headers one by one ----------------------------------------------------------------------------


def check_headers_alone(tree, only=None):
    """Each alone with the first compiler; with the other all in one unit, which costs a tenth."""
    headers = list(only or tree.headers())
    jobs = [(COMPILERS[0], [header]) for header in headers] + [(c, headers) for c in COMPILERS[1:]]

    def compile_one(job):
        compiler, included = job
        command = [compiler, STANDARD, "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow",
                   "-Wconversion", "-Werror", "-I", str(tree.include), "-x", "c++", "-"]
        # Included twice: a missing #pragma once shows as well.
        result = run(command, input="".join(f'#include "{header}"\n' * 2 for header in included))
        if result.returncode == 0:
            return []
        name = included[0] if len(included) == 1 else "all headers together"
        return [f"{name}: does not compile alone with {compiler}: {first_line(result.stdout)}"]

    return in_parallel(compile_one, jobs)


def check_header_length(tree):
    return [f"{header}: {lines} lines, more than {HEADER_LINES}" for header in tree.headers()
            if (lines := tree.text(header).count("\n")) > HEADER_LINES]


# --- listing: nothing is globbed, so nothing may be forgotten ------------------------------------


def check_listed(tree):
    """Every header, source and test stands in a CMakeLists.txt of its room, and exists."""
    violations = []
    lists = [p for p in tree.root.rglob("CMakeLists.txt") if "build" not in p.relative_to(tree.root).parts]
    texts = {p: re.sub(r"#[^\n]*", "", p.read_text(encoding="utf-8")) for p in lists}
    for path, text in texts.items():
        if re.search(r"file\s*\(\s*GLOB", text, re.IGNORECASE):
            violations.append(f"{path.relative_to(tree.root)}: uses file(GLOB)")
    words = set(re.findall(r"[\w./+-]+\.(?:hpp|cpp)\b", "\n".join(texts[p] for p in lists if "src" in p.parts)))
    for header in tree.headers():
        if header not in words:
            violations.append(f"{header}: is in no CMakeLists.txt below src/ and would not be installed")
    expanded = {p: t.replace("${PROJECT_SOURCE_DIR}", str(tree.root)) for p, t in texts.items()}
    for room in ("src", "tests", "tools", "examples", "benchmarks"):
        for source in sorted((tree.root / room).rglob("*.cpp")):
            if source.is_relative_to(tree.root / "tests" / "package"):
                continue
            if not named_in_a_list(source, tree.root, expanded):
                violations.append(f"{source.relative_to(tree.root)}: is in no CMakeLists.txt")
    return violations


def named_in_a_list(source, root, texts):
    """By its path, from any list; or by its stem in a list above it, where a function appends '.cpp'."""
    for path, text in texts.items():
        for token in re.findall(r"[\w./-]+\.cpp(?![\w.])", text):
            if (path.parent / token).resolve() == source.resolve():
                return True
    folder = source.parent
    while folder != root.parent:
        stem = source.relative_to(folder).as_posix().removesuffix(".cpp")
        if re.search(rf"(?<![\w./-]){re.escape(stem)}(?![\w./-])", texts.get(folder / "CMakeLists.txt", "")):
            return True
        folder = folder.parent
    return False


# --- words -----------------------------------------------------------------------------------------


def check_words(tree):
    """No unfinished work, no disabled test, no promise that only a transaction keeps."""
    violations = []
    for path in text_files(tree):
        relative = path.relative_to(tree.root).as_posix()
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            if re.search(r"\b(TODO|FIXME|XXX)\b", line):
                violations.append(f"{relative}:{number}: unfinished work")
            if re.search(r"\bDISABLED_\w", line):
                violations.append(f"{relative}:{number}: disabled test")
            if re.search(r"\bexactly[ -]once\b", line, re.IGNORECASE):
                near = " ".join(lines[max(0, number - 4):number + 3])
                if not re.search(r"transaction|\b(never|not|no|nobody|nothing)\b", near, re.IGNORECASE):
                    violations.append(f"{relative}:{number}: 'exactly once' without a transaction")
    return violations


def text_files(tree):
    rooms = ("include", "src", "tests", "examples", "benchmarks", "docs", "scripts", "tools")
    for room in rooms:
        for path in sorted((tree.root / room).rglob("*")):
            if path.is_file() and path.suffix in (".hpp", ".cpp", ".md", ".txt", ".sh", ".pml", ""):
                if path.name != pathlib.Path(__file__).name:
                    yield path
    for name in ("README.md", "CHANGELOG.md", "CMakeLists.txt"):
        if (tree.root / name).exists():
            yield tree.root / name


# --- code in the documentation -------------------------------------------------------------------

DIRECTIVE = re.compile(r"<!--\s*cpp:\s*(prelude|body|continue)\s*([\w.-]*)\s*-->\s*$")


def code_blocks(path):
    """(line number, directive, argument, code) of each ```cpp block.

    A comment on the line before a block says what else it takes to compile:
      <!-- cpp: prelude NAME -->  tests/architecture/preludes/NAME.hpp comes first
      <!-- cpp: body NAME -->     the same, and the block is the body of a function
      <!-- cpp: continue -->      the blocks before it on the page come first
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    blocks = []
    number = 0
    while number < len(lines):
        fence = re.match(r"^(\s*)```(cpp|c\+\+)\s*$", lines[number])
        if not fence:
            number += 1
            continue
        start = number
        directive = None
        for before in range(start - 1, max(-1, start - 3), -1):
            if before >= 0 and lines[before].strip():
                directive = DIRECTIVE.search(lines[before].strip())
                break
        number += 1
        code = []
        while number < len(lines) and lines[number].strip() != "```":
            code.append(lines[number])
            number += 1
        number += 1
        kind, argument = directive.groups() if directive else (None, "")
        blocks.append((start + 1, kind, argument, "\n".join(code) + "\n"))
    return blocks


def block_source(tree, blocks, index):
    _, kind, argument, code = blocks[index]
    if kind == "continue":
        return block_source(tree, blocks, index - 1) + code
    if kind not in ("prelude", "body"):
        return code
    prelude = (tree.root / "tests/architecture/preludes" / f"{argument}.hpp").read_text("utf-8")
    if kind == "prelude":
        return prelude + code
    includes = "\n".join(re.findall(r"^#include.*$", code, re.MULTILINE))
    rest = re.sub(r"^#include.*$", "", code, flags=re.MULTILINE)
    return f"{includes}\n{prelude}\nvoid body() {{\n{rest}\n}}\n"


def check_documentation(tree, only=None):
    pages = only or [p for p in [tree.root / "README.md", *sorted((tree.root / "docs").rglob("*.md"))]
                     if p.exists()]
    jobs = []
    for page in pages:
        blocks = code_blocks(page)
        for index, block in enumerate(blocks):
            if block[1] == "continue" and index == 0:
                return [f"{page.relative_to(tree.root)}:{block[0]}: continues nothing"]
            name = f"{page.relative_to(tree.root).as_posix()}:{block[0]}"
            # Each with one compiler, in turn: what a block uses, other tests compile with both.
            jobs.append((name, COMPILERS[len(jobs) % len(COMPILERS)], block_source(tree, blocks, index)))
    print(f"{len(jobs)} C++ blocks on {len(pages)} pages")

    def check_one(job):
        name, compiler, source = job
        violations = []
        result = run([compiler, STANDARD, "-fsyntax-only", "-Wall", "-Wextra", "-I",
                      str(tree.include), "-x", "c++", "-"], input=source)
        if result.returncode != 0:
            violations.append(f"{name}: does not compile with {compiler}: {first_line(result.stdout)}")
            if tree.verbose:
                print(result.stdout)
        if not violations and re.search(r"\bint main\(", source):
            violations += run_block(tree, name, source)
        return violations

    return in_parallel(check_one, jobs)


def run_block(tree, name, source):
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "block")
        built = run(["g++", STANDARD, "-I", str(tree.include), "-x", "c++", "-", "-x", "none",
                     *tree.libraries, "-lsqlite3", "-lprotobuf", "-lcrypto", "-pthread", "-o", program],
                    input=source)
        if built.returncode != 0:
            return [f"{name}: does not link: {first_line(built.stdout)}"]
        ran = run([program], cwd=folder, timeout=60)
        if ran.returncode != 0:
            return [f"{name}: ended with {ran.returncode}: {first_line(ran.stdout)}"]
    return []


# --- the command line ----------------------------------------------------------------------------

CHECKS = {
    "layers": check_layers,
    "backends": check_backends,
    "clients": check_clients,
    "umbrella": check_umbrella,
    "umbrella_size": check_umbrella_size,
    "headers_alone": check_headers_alone,
    "header_length": check_header_length,
    "listed": check_listed,
    "words": check_words,
    "documentation": check_documentation,
}


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def plantings():
    """(check, what is planted, how, what the check must name, arguments of the check)."""

    def header(name, text):
        return lambda tree: write(tree.include / "idempotency" / name, "#pragma once\n" + text)

    def append(name, text):
        def plant(tree):
            path = tree.root / name
            write(path, (path.read_text("utf-8") if path.exists() else "") + text)
        return plant

    def forget_once(tree):
        path = tree.include / "idempotency/planted_alone.hpp"
        write(path, "struct Twice {};\n")

    def page(text):
        return lambda tree: write(tree.root / "docs/planted.md", text)

    alone = {"only": ["idempotency/planted_alone.hpp"]}
    yield ("layers", "a leaf that includes the guard",
           append("include/idempotency/key.hpp", '#include "idempotency/guard.hpp"\n'), "key.hpp", {})
    yield ("layers", "a leaf that reaches a contract through detail",
           lambda tree: (header("detail/planted_hop.hpp", '#include "idempotency/store.hpp"\n')(tree),
                         append("include/idempotency/error.hpp",
                                '#include "idempotency/detail/planted_hop.hpp"\n')(tree)), "error.hpp", {})
    yield ("layers", "a header without a layer", header("planted_new.hpp", ""), "planted_new.hpp", {})
    yield ("layers", "two headers that include each other",
           lambda tree: (header("detail/planted_a.hpp", '#include "idempotency/detail/planted_b.hpp"\n')(tree),
                         header("detail/planted_b.hpp", '#include "idempotency/detail/planted_a.hpp"\n')(tree)),
           "cycle", {})
    yield ("backends", "a store's header that includes another store",
           append("include/idempotency/stores/memory.hpp", '#include "idempotency/stores/sqlite.hpp"\n'),
           "stores/memory.hpp", {})
    yield ("backends", "a store's source that includes another store",
           append("src/sqlite/planted.cpp", '#include "idempotency/stores/memory.hpp"\n'),
           "src/sqlite/planted.cpp", {})
    yield ("clients", "a public header that includes SQLite's", header("planted_alone.hpp", "#include <sqlite3.h>\n"),
           "sqlite3.h", alone)
    yield ("clients", "a core header that includes nlohmann/json",
           header("planted_alone.hpp", "#include <nlohmann/json.hpp>\n"), "nlohmann", alone)
    yield ("clients", "a core header that includes GoogleTest",
           header("planted_alone.hpp", "#include <gtest/gtest.h>\n"), "gtest", alone)
    for name in UMBRELLA_FORBIDDEN:
        yield ("umbrella", f"<{name}> below the umbrella",
               append("include/idempotency/key.hpp", f"#include <{name}>\n"), f"<{name}>", {})
    yield ("umbrella", "code in the umbrella",
           append(f"include/{UMBRELLA}", "int planted = 0;\n"), "more than includes", {})
    yield ("umbrella_size", "many lines below the umbrella",
           append("include/idempotency/key.hpp",
                  "".join(f"struct Planted{i};\n" for i in range(UMBRELLA_LINES + 1))), "more than", {})
    yield ("headers_alone", "a header that lacks an include",
           header("planted_alone.hpp", "inline std::string planted() { return {}; }\n"),
           "planted_alone.hpp", alone)
    yield ("headers_alone", "a header without #pragma once", forget_once, "planted_alone.hpp", alone)
    yield ("header_length", "a long header", header("planted_long.hpp", "// line\n" * HEADER_LINES),
           "planted_long.hpp", {})
    yield ("listed", "a header that is not installed", header("planted_new.hpp", ""), "planted_new.hpp", {})
    yield ("listed", "a test that is not built", append("tests/unit/planted_test.cpp", "\n"),
           "planted_test.cpp", {})
    yield ("listed", "a glob", append("tests/unit/CMakeLists.txt", "file(GLOB files *.cpp)\n"),
           "file(GLOB)", {})
    yield ("words", "unfinished work", append("src/core/planted.cpp", "// TO" + "DO: later\n"),
           "src/core/planted.cpp", {})
    yield ("words", "a disabled test", append("tests/unit/planted.cpp", "TEST(A, DISABLED" + "_B) {}\n"),
           "tests/unit/planted.cpp", {})
    yield ("words", "a promise too many", page("Calls happen exactly" + " once.\n"), "docs/planted.md", {})
    page_only = {"only": "docs/planted.md"}
    yield ("documentation", "a block that does not compile", page("```cpp\nint main() { return x; }\n```\n"),
           "docs/planted.md:1: does not compile", page_only)
    yield ("documentation", "a program that fails", page("```cpp\nint main() { return 3; }\n```\n"),
           "ended with 3", page_only)
    yield ("documentation", "a body that does not compile",
           page("<!-- cpp: body empty -->\n```cpp\nreturn 1;\n```\n"), "docs/planted.md:2", page_only)


def self_test(source):
    failures = 0
    count = 0
    for name, what, plant, expected, arguments in plantings():
        count += 1
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "tree"
            for room in ("include", "src", "tests", "tools", "docs", "examples", "benchmarks"):
                if (source / room).exists():
                    shutil.copytree(source / room, copy / room)
            for file in ("README.md", "CMakeLists.txt"):
                if (source / file).exists():
                    shutil.copy(source / file, copy / file)
            tree = Tree(copy)
            plant(tree)
            if arguments.get("only") == "docs/planted.md":
                arguments = {"only": [copy / "docs/planted.md"]}
            violations = CHECKS[name](tree, **arguments)
        found = any(expected in violation for violation in violations)
        print(f"{'red as it should be' if found else 'NOT FOUND'}: {name}: {what}")
        failures += not found
    print(f"{count} violations planted, {count - failures} found")
    return failures == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("check", nargs="?", choices=sorted(CHECKS))
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--library", dest="libraries", metavar="LIBRARY", action="append", default=[],
                        help="linked into documented programs")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="the compiler's whole answer")
    options = parser.parse_args()
    if options.self_test:
        return 0 if self_test(options.source.resolve()) else 1
    if options.check is None:
        parser.error("name a check, or --self-test")
    tree = Tree(options.source.resolve(), options.libraries, options.verbose)
    violations = CHECKS[options.check](tree)
    for violation in violations:
        print(violation)
    print(f"{options.check}: {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
