"""The mutations of a source file: one small change each, which should make a test fail.

Assertions (also `strict` of zip), log lines, texts, annotations, decorators and module-level
constants are not mutated, because no test should assert them; a test could only repeat most of the
constants.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

OPERATORS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
}
FUNCTIONS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
LOG_METHODS: Final = {"debug", "info", "warning", "error", "exception", "critical", "log"}


@dataclass(frozen=True, slots=True)
class Mutation:
    """A range of bytes in a file, and its replacement."""

    path: str
    scope: str
    """The function or class that contains the change, as in a traceback."""
    line: int
    kind: str
    start: int
    end: int
    text: str
    before: str
    """The changed lines, with single spaces."""
    after: str

    @property
    def key(self) -> str:
        """Identifies the mutation until the changed lines or the name of their function change."""
        return f"{self.path} {self.scope}: {self.before} -> {self.after}"

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]

    def __str__(self) -> str:
        return f"{self.path}:{self.line} ({self.kind})\n    - {self.before}\n    + {self.after}"


def mutations(path: str, source: bytes) -> Iterator[Mutation]:
    """Yield all mutations, in the order of the source."""
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    for scope, (node, kind, text) in _changes(ast.parse(source), "", is_generator=False):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = lines[node.lineno - 1] + node.col_offset
        end = lines[node.end_lineno - 1] + node.end_col_offset
        first, last = lines[node.lineno - 1], lines[node.end_lineno]
        before = source[first:last].decode()
        after = (source[first:start] + text.encode() + source[end:last]).decode()
        joined = " ".join(before.split()), " ".join(after.split())
        yield Mutation(path, scope, node.lineno, kind, start, end, text, *joined)


Change = tuple[ast.expr | ast.stmt, str, str]
"""(node, kind, text): the replaced node, the kind of mutation, and the replacement."""


def _changes(node: ast.AST, scope: str, *, is_generator: bool) -> Iterator[tuple[str, Change]]:
    if isinstance(node, ast.stmt):
        changes = _of_statement(node, is_generator=is_generator)
    else:
        changes = _of_expression(node) if isinstance(node, ast.expr) else iter(())
    yield from ((scope, change) for change in changes)
    for child in _children(node):
        inner, has_yield = scope, is_generator
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{scope}.{child.name}".lstrip(".")
            has_yield = any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(child))
        yield from _changes(child, inner, is_generator=has_yield)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children that may be mutated."""
    skipped: list[ast.AST | None] = []
    match node:
        # Before Python 3.12, positions inside an f-string are not those of the source.
        case ast.Assert() | ast.JoinedStr():
            return
        case ast.Call(func=ast.Attribute(attr=name, value=value)) if name in LOG_METHODS:
            if "log" in ast.unparse(value).lower():
                return
        case ast.Call(func=ast.Name(id="announce")):
            return
        case ast.Call(func=ast.Name(id="zip")):
            skipped = [*node.keywords]
        case ast.FunctionDef(name="__repr__" | "__str__"):
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            skipped = [node.returns, *node.decorator_list]
        case ast.ClassDef():
            skipped = [*node.decorator_list]
        case ast.AnnAssign() | ast.arg():
            skipped = [node.annotation]
        case ast.Module():
            skipped = [one for one in node.body if isinstance(one, ast.Assign | ast.AnnAssign)]
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return
    yield from (child for child in ast.iter_child_nodes(node) if child not in skipped)


def _of_statement(node: ast.stmt, *, is_generator: bool) -> Iterator[Change]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
            if any(True for _ in _children(node.value)):
                yield node, "call removed", "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign():
            yield node, "assignment removed", "pass"
        case ast.Raise() | ast.Delete() | ast.Break() | ast.Continue():
            yield node, "statement removed", "pass"
        case ast.Return(value=ast.Tuple(elts=[first, second, *others])):
            swapped = ast.Tuple([second, first, *others], ast.Load())
            yield node, "results swapped", f"return {ast.unparse(swapped)}"
        case ast.Return(value=ast.expr() as value) if not is_generator:
            if not (isinstance(value, ast.Constant) and value.value is None):
                yield node, "result removed", "return None"
        case ast.If() | ast.While() if not isinstance(node.test, ast.Compare | ast.Constant):
            yield node.test, "condition negated", f"not ({ast.unparse(node.test)})"


def _of_expression(node: ast.expr) -> Iterator[Change]:
    changed: Any = copy.deepcopy(node)
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                changed = copy.deepcopy(node)
                changed.ops[index] = OPERATORS[type(operator)]()
                yield node, "comparison", f"({ast.unparse(changed)})"
        case ast.BoolOp() | ast.BinOp() if type(node.op) in OPERATORS:
            changed.op = OPERATORS[type(node.op)]()
            yield node, "operator", f"({ast.unparse(changed)})"
        case ast.UnaryOp(op=ast.Not()):
            yield node, "negation removed", f"({ast.unparse(node.operand)})"
        case ast.Constant(value=bool() as value):
            yield node, "constant", str(not value)
        case ast.Constant(value=int() | float() as value):
            yield node, "constant", f"{value + 1}"
            if value:
                yield node, "constant", f"({value - 1})"
        case ast.IfExp():
            changed.body, changed.orelse = node.orelse, node.body
            yield node, "branches swapped", f"({ast.unparse(changed)})"
        case ast.Call():
            yield from _of_call(node)


def _of_call(node: ast.Call) -> Iterator[Change]:
    if not any(True for _ in _children(node)):
        return
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name in FUNCTIONS:
        yield node.func, "function", FUNCTIONS[name]
    elif (
        len(node.args) > 1
        and not any(isinstance(argument, ast.Starred) for argument in node.args[:2])
        and name not in {"isinstance", "cast"}
    ):
        changed = copy.deepcopy(node)
        changed.args[:2] = node.args[1::-1]
        yield node, "arguments swapped", ast.unparse(changed)
    for index, keyword in enumerate(node.keywords if name != "zip" else ()):
        if isinstance(keyword.value, ast.JoinedStr) or (
            isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str)
        ):
            continue
        changed = copy.deepcopy(node)
        del changed.keywords[index]
        yield node, "argument removed", ast.unparse(changed)
