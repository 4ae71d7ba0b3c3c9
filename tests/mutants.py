"""Small faults for labkit's code: one operator, constant, condition or statement changed."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LABKIT = Path(__file__).resolve().parent.parent / "labkit"
PAIRS = [
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div),
    (ast.FloorDiv, ast.Mod),
    (ast.Pow, ast.Mult),
    (ast.BitAnd, ast.BitOr),
    (ast.And, ast.Or),
    (ast.Eq, ast.NotEq),
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
]
OTHER = {new: old for old, new in PAIRS} | dict(PAIRS)
NEGATED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)  # by the table above
# Words for people, types, and what fails at once without its name.
LEFT_ALONE = (ast.JoinedStr, ast.arg, ast.Import, ast.ImportFrom)

# Faults that nobody can observe. The name says what the code would be; the reason says why no
# test can tell. A fault that changes a result, an error or a limit has no place here.
EQUIVALENT = {
    "ledger/nested.agrees: return all((abs(a - b) < reach for a, b in zip(flat(stated), "
    "flat(computed), strict=True)))": "The reach has a margin; at its very end nothing is decided.",
    "ledger/nested.agrees: return all((abs(a - b) <= reach for a, b in zip(flat(stated), "
    "flat(computed), strict=False)))": "The shapes were found equal before, so the lengths are.",
    "ledger/consistency.differ: return any((abs(a - b) > reach for a, b in zip(*map(flat, stated), "
    "strict=False)))": "The shapes were found equal before, so the lengths are.",
    "fused.module: CAUSAL_BLOCK = 257": "The queries of a block decide speed and memory only.",
    "tiles.merge: of_a, of_b = (part.lse.masked_fill(alike, 1) for part in (a, b))": "Whatever "
    "finite number stands for two infinite sums, their difference is 0 and their own is kept.",
    "counting.count_flops: with torch.inference_mode(True), torch.set_grad_enabled(gradients), "
    "FlopCounterMode(display=False, custom_mapping=refusals) as counter:": "Only older versions of "
    "PyTorch count nothing under inference_mode.",
}


@dataclass(frozen=True)
class Mutant:
    """A module of labkit with one fault."""

    module: str
    function: str
    line: int
    before: str
    after: str
    source: str

    @property
    def name(self) -> str:
        """Name the fault by what the code becomes, not by its line, which moves."""
        return f"{self.module}.{self.function}: {self.after}"

    def __str__(self) -> str:
        return f"labkit/{self.module}.py, line {self.line}: {self.before}  ->  {self.after}"


def mutants(module: str) -> Iterator[Mutant]:
    """Make every fault of a module, such as ``ledger/claims``, one at a time."""
    tree = ast.parse((LABKIT / f"{module}.py").read_text(encoding="utf-8"))
    parts = [ast.unparse(statement) for statement in tree.body]
    for at, statement in enumerate(tree.body):
        alone = ast.Module([statement], [])
        for parent, field, index, child, inside in list(places(alone)):
            for fault in faults(child):
                located = ast.fix_missing_locations(ast.copy_location(fault, child))
                put(parent, field, index, located)
                part = ast.unparse(alone)
                put(parent, field, index, child)
                lines = zip(parts[at].splitlines(), part.splitlines(), strict=False)
                before, after = next((a.strip(), b.strip()) for a, b in lines if a != b)
                source = "\n".join([*parts[:at], part, *parts[at + 1 :]])
                yield Mutant(module, inside or "module", child.lineno, before, after, source)


def places(node: ast.AST, inside: str = "") -> Iterator[tuple]:
    """Run through a tree: each node, where its parent holds it, and the function it is in."""
    for field, value in ast.iter_fields(node):
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or isinstance(child, LEFT_ALONE):
                continue
            if field in ("annotation", "returns"):
                continue
            yield node, field, index if isinstance(value, list) else None, child, inside
            named = isinstance(child, (ast.FunctionDef, ast.ClassDef))
            yield from places(child, f"{inside}.{child.name}".lstrip(".") if named else inside)


def faults(node: ast.AST) -> Iterator[ast.AST]:
    """Give what may stand in a node's place."""
    match node:
        case ast.Expr(value=ast.Constant()):  # a docstring
            return
        case ast.Expr() | ast.Raise() | ast.Delete():
            yield ast.Pass()
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in OTHER:
            yield changed(node, op=OTHER[type(op)]())
        case ast.Compare(ops=[op, *others]) if type(op) in OTHER:
            yield changed(node, ops=[OTHER[type(op)](), *others])
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.If(test=ast.Compare(ops=[op])) | ast.IfExp(test=ast.Compare(ops=[op])) if (
            isinstance(op, NEGATED)
        ):
            return
        case ast.If(test=test) | ast.IfExp(test=test):
            yield changed(node, test=ast.UnaryOp(ast.Not(), test))


def changed(node: ast.AST, **fields: object) -> ast.AST:
    """Copy a node with other fields."""
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def put(parent: ast.AST, field: str, index: int | None, child: ast.AST) -> None:
    """Set a child in its place."""
    if index is None:
        setattr(parent, field, child)
    else:
        getattr(parent, field)[index] = child
