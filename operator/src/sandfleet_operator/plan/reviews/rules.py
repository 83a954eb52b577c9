"""Rules that approve what is plainly harmless. Each approval names its rule (pure)."""

import ast
import json
from collections.abc import Collection, Sequence
from typing import TypeGuard

from sandfleet_operator.api.kinds.template import ReviewRule
from sandfleet_operator.plan.reviews.program import program
from sandfleet_operator.plan.reviews.record import CELL, Request, SessionRecord

MAX_EXPRESSION_BYTES = 2000
# Settings that change nothing about what an expression does.
PLAIN_SETTINGS = frozenset({"context_id", "language", "timeout", "output_limit_bytes", "on_failure"})
HARMLESS_CALLS = frozenset(
    {"abs", "all", "any", "bool", "dict", "float", "int", "len", "list", "max", "min", "repr", "round", "set"}
    | {"sorted", "str", "sum", "tuple", "type"}
)
# Powers, shifts and products of sequences grow without bound; the sandbox's limits hold products.
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr, ast.BitXor)
PARTS = (
    ast.Constant,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Tuple,
    ast.List,
    ast.Set,
    ast.Dict,
    ast.Subscript,
    ast.Slice,
    ast.expr_context,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    *OPERATORS,
)


def approving(request: Request, record: SessionRecord, rules: Sequence[ReviewRule]) -> ReviewRule | None:
    """The first of the rules that approves the request; None: a person has to.

    A rule approves only what runs in an interpreter whose variables are all its cells'.
    """
    if request.kind != CELL or not request.incarnation:
        return None
    if ReviewRule.SAME_CELL in rules and request.digest in record.digests:
        return ReviewRule.SAME_CELL
    if ReviewRule.PURE_EXPRESSION in rules and _is_plain(request):
        known = record.bound(request)
        if known is not None and is_pure_expression(request.content, known):
            return ReviewRule.PURE_EXPRESSION
    return None


def is_pure_expression(code: bytes, known: Collection[str]) -> bool:
    """Whether it only computes with constants and names that approved cells have bound.

    Operators of the session's own classes may run, as approved cells have defined them.
    """
    if len(code) > MAX_EXPRESSION_BYTES:
        return False
    tree = program(code)
    if tree is None or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        return False
    nodes = list(ast.walk(tree.body[0].value))
    calls = {id(node.func) for node in nodes if _is_harmless_call(node, known)}
    return all(_is_pure(node, known, calls) for node in nodes)


def _is_pure(node: ast.AST, known: Collection[str], calls: Collection[int]) -> bool:
    match node:
        case ast.Name(id=name):
            return name in known or id(node) in calls
        case ast.Call(func=func):
            return id(func) in calls
        case _:
            return isinstance(node, PARTS)


def _is_harmless_call(node: ast.AST, known: Collection[str]) -> TypeGuard[ast.Call]:
    match node:
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return name in HARMLESS_CALLS and name not in known
        case _:
            return False


def _is_plain(request: Request) -> bool:
    try:
        settings = json.loads(request.settings)
    except ValueError:
        return False
    return isinstance(settings, dict) and settings.keys() <= PLAIN_SETTINGS
