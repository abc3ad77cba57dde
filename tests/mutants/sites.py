# Finds every place in the C++ sources where one operator, constant or condition can be changed.
#
# A site is a dict: file, start and end (byte offsets), line, kind, before and after (texts). The
# parsing is libclang's, so a site is a whole expression with known types. Places that cannot be
# changed (a pointer minus a pointer, a literal that the compiler must know) are left out.
#
# SPDX-License-Identifier: MIT

import json
import os
import re
from concurrent.futures import ProcessPoolExecutor

from clang import cindex
from clang.cindex import CursorKind as K
from clang.cindex import TypeKind as T

ROOMS = ("libtok/", "libindexed/", "tools/", "trainer/", "convert/")
LEFT_OUT = re.compile(r"/cuda/|_tables\.cc$|nccl")
LIBRARY = "/usr/lib/x86_64-linux-gnu/libclang-14.so.1"

SWAPS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "+": "-",
    "-": "+",
    "*": "/",
    "/": "*",
    "%": "*",
    "&&": "||",
    "||": "&&",
    "&": "|",
    "|": "&",
    "<<": ">>",
    ">>": "<<",
    "+=": "-=",
    "-=": "+=",
    "*=": "/=",
    "/=": "*=",
    "|=": "&=",
    "&=": "|=",
}
COMPARED = {"<", "<=", ">", ">=", "==", "!=", "&&", "||"}
INTEGERS = {
    T.CHAR_U,
    T.UCHAR,
    T.USHORT,
    T.UINT,
    T.ULONG,
    T.ULONGLONG,
    T.CHAR_S,
    T.SCHAR,
    T.SHORT,
    T.INT,
    T.LONG,
    T.LONGLONG,
}
FLOATS = {T.FLOAT, T.DOUBLE, T.LONGDOUBLE}
# Within these the compiler needs the value, or no code is ever run.
CONSTANT = {
    K.STATIC_ASSERT,
    K.ENUM_CONSTANT_DECL,
    K.TEMPLATE_NON_TYPE_PARAMETER,
    K.TEMPLATE_TYPE_PARAMETER,
    K.TYPE_ALIAS_DECL,
    K.TYPEDEF_DECL,
    K.ALIGNED_ATTR,
}


def arithmetic(cursor):
    return cursor.type.get_canonical().kind in INTEGERS | FLOATS | {T.BOOL}


class File:
    """The sites of one translation unit."""

    def __init__(self, root, sources):
        self.root, self.sources, self.found = root, sources, []

    def text_of(self, cursor):
        start, end = cursor.extent.start, cursor.extent.end
        return self.sources[self.name][start.offset : end.offset].decode()

    def add(self, cursor, kind, after, before=None):
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        text = self.text_of(cursor)
        if not text or (before is not None and text != before):
            return
        self.found.append(
            {
                "file": self.name,
                "start": start,
                "end": end,
                "kind": kind,
                "line": cursor.extent.start.line,
                "before": text,
                "after": after,
            }
        )

    def operator_between(self, left, right):
        """The operator's text and position, or nothing if a macro is in the way."""
        source = self.sources[self.name]
        at, end = left.extent.end.offset, right.extent.start.offset
        between = source[at:end].decode()
        found = re.fullmatch(r"(\s*)([-+*/%<>=!&|]{1,3})(\s*(?://[^\n]*\n\s*)*)", between)
        return (found.group(2), at + len(found.group(1))) if found else None

    def swap(self, cursor, left, right, needs):
        found = self.operator_between(left, right)
        if not found or found[0] not in SWAPS:
            return
        operator, at = found
        if operator not in needs and not (arithmetic(left) and arithmetic(right)):
            return
        if operator in ("%", "&", "|", "<<", ">>") and not (
            left.type.get_canonical().kind in INTEGERS
        ):
            return
        start = cursor.extent.start.offset
        text = self.text_of(cursor)
        at = len(self.sources[self.name][start:at].decode())
        self.add(cursor, "operator", text[:at] + SWAPS[operator] + text[at + len(operator) :])

    def literal(self, cursor):
        text = self.text_of(cursor)
        if cursor.kind == K.INTEGER_LITERAL and re.fullmatch(r"[\d']+[uUlL]*", text):
            number = re.match(r"[\d']+", text).group()
            self.add(
                cursor, "constant", str(int(number.replace("'", "")) + 1) + text[len(number) :]
            )
        elif cursor.kind == K.FLOATING_LITERAL and re.fullmatch(r"[\d.eE+-]+[fF]?", text):
            self.add(
                cursor,
                "constant",
                f"(1 + {text})" if float(text.rstrip("fF")) < 1 else f"({text} / 2)",
            )
        elif cursor.kind == K.CXX_BOOL_LITERAL_EXPR and text in ("true", "false"):
            self.add(cursor, "constant", "false" if text == "true" else "true")

    def named_constant(self, cursor):
        """A use of a constexpr integer: one more."""
        what = cursor.referenced
        if what is None or what.kind != K.VAR_DECL or not re.match(r"k[A-Z]", what.spelling):
            return
        if what.type.get_canonical().kind in INTEGERS and what.type.is_const_qualified():
            self.add(cursor, "constant", f"({self.text_of(cursor)} + 1)")

    def condition(self, cursor):
        if cursor.type.get_canonical().kind == T.BOOL and cursor.kind != K.UNARY_OPERATOR:
            self.add(cursor, "condition", f"!({self.text_of(cursor)})")

    def unary(self, cursor, child):
        text, operand = self.text_of(cursor), self.text_of(child)
        if not operand:
            return
        if text == "!" + operand:
            self.add(cursor, "condition", f"static_cast<bool>({operand})")
        elif text == "-" + operand and arithmetic(child):
            self.add(cursor, "operator", operand)
        elif arithmetic(child) and text == "++" + operand:
            self.add(cursor, "operator", "--" + operand)
        elif arithmetic(child) and text == "--" + operand:
            self.add(cursor, "operator", "++" + operand)

    def here(self, cursor):
        children = list(cursor.get_children())
        kind = cursor.kind
        if kind == K.BINARY_OPERATOR and len(children) == 2:
            self.swap(cursor, *children, COMPARED)
        elif kind == K.COMPOUND_ASSIGNMENT_OPERATOR and len(children) == 2:
            self.swap(cursor, *children, set())
        elif kind == K.CALL_EXPR and cursor.spelling in ("operator==", "operator!="):
            if len(children) == 3:
                self.swap(cursor, children[0], children[2], {"==", "!="})
        elif kind in (K.INTEGER_LITERAL, K.FLOATING_LITERAL, K.CXX_BOOL_LITERAL_EXPR):
            self.literal(cursor)
        elif kind == K.UNARY_OPERATOR and len(children) == 1:
            self.unary(cursor, children[0])
        elif kind == K.DECL_REF_EXPR:
            self.named_constant(cursor)
        elif kind == K.IF_STMT and children and children[0].kind.is_expression():
            self.condition(children[0])
        elif kind == K.CONDITIONAL_OPERATOR and len(children) == 3:
            self.condition(children[0])
        return children

    def needs_constants(self, cursor):
        if cursor.kind in CONSTANT or (cursor.kind == K.FIELD_DECL and cursor.is_bitfield()):
            return True
        if cursor.kind != K.VAR_DECL:
            return False
        if cursor.type.kind == T.CONSTANTARRAY and cursor.type.is_const_qualified():
            return True
        head = self.text_of(cursor)[:200].split("=")[0].split("{")[0]
        return "constexpr" in head

    def walk(self, cursor):
        if self.needs_constants(cursor):
            return
        children = self.here(cursor)
        if cursor.kind == K.CASE_STMT:
            children = children[1:]
        for child in children:
            at = child.extent.start.file
            if at is not None and os.path.relpath(at.name, self.root) == self.name:
                self.walk(child)


def sites_of(task):
    """Sites of one translation unit and of the headers it includes, as a list of dicts."""
    root, source, arguments, headers = task
    if not cindex.Config.loaded:
        cindex.Config.set_library_file(LIBRARY)
    unit = cindex.Index.create().parse(source, args=arguments)
    names = {os.path.relpath(source, root)} | headers
    one = File(root, {name: open(os.path.join(root, name), "rb").read() for name in names})
    seen = set()

    def spaces(cursor):
        for child in cursor.get_children():
            at = child.extent.start.file
            name = os.path.relpath(at.name, root) if at else None
            if name not in names:
                continue
            if child.kind in (K.NAMESPACE, K.LINKAGE_SPEC, K.UNEXPOSED_DECL):
                spaces(child)
            else:
                one.name = name
                one.walk(child)

    spaces(unit.cursor)
    unique = []
    for site in one.found:
        key = (site["file"], site["start"], site["end"], site["after"])
        if key not in seen:
            seen.add(key)
            unique.append(site)
    return unique


def tasks_of(root, build):
    """What sites_of() takes, for every source that compile_commands.json in `build` names."""
    with open(os.path.join(build, "compile_commands.json")) as file:
        commands = json.load(file)
    tasks, done, headers_done = [], set(), set()
    for command in sorted(commands, key=lambda c: c["file"]):
        name = os.path.relpath(command["file"], root)
        if not name.startswith(ROOMS) or LEFT_OUT.search(name) or name in done:
            continue
        done.add(name)
        words = command["command"].replace('\\"', '"').split()
        words = [
            w
            for i, w in enumerate(words)
            if w[:2] in ("-I", "-D") or w.startswith("-std") or "-isystem" in words[i - 1 : i + 1]
        ]
        words += ["-isystem", "/usr/lib/llvm-14/lib/clang/14.0.6/include"]
        text = open(command["file"]).read()
        # A header is read with the source of its name, or with the first source that includes it.
        included = {
            h
            for h in re.findall(r'^#include "([^"]+)"', text, re.M)
            if h.startswith(ROOMS) and not LEFT_OUT.search(h)
        }
        fresh = {h for h in included - headers_done if os.path.exists(os.path.join(root, h))}
        headers_done |= fresh
        tasks.append((root, command["file"], words, fresh))
    return tasks


def all_sites(tasks, workers):
    """Every site of these tasks, by task."""
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(sites_of, tasks))
