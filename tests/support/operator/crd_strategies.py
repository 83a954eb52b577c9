"""Objects that the custom resources' schemas let through, drawn from the schemas; hostile where they leave room.

CEL rules are followed as well, by their meaning in RULES: a rule that is missing there fails the tests that draw.
"""

import ipaddress
import math
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.quantities import parse_quantity
from support.operator.builders import ADDRESSES
from support.operator.crd_schemas import SCHEMAS

Json = dict[str, Any]
Values = st.SearchStrategy[Any]

QUANTITY = re.compile(
    r"isQuantity\(string\(self\)\)(?= && ).*quantity\('(\w+)'\)\) >= 0 && .*quantity\('(\w+)'\)\) <= 0"
)
MATCHES = re.compile(r"self\.matches\('(.*)\$'\)( && !self\.contains\('//'\))?")
LISTED = re.compile(r"!isCIDR\(self\) \|\| !\[(.*)\]\.exists\(one, cidr\(one\)\.containsCIDR\(self\)\)")
SYSTEM = "bin|boot|dev|etc|lib|lib32|lib64|libx32|proc|run|sbin|sys|tmp|usr|workspace|opt/sandfleet"
MOUNTED_OVER_SYSTEM = f"!self.matches('^/({SYSTEM})(/|$)') && self != '/opt'"
LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
SUBDOMAIN = rf"{LABEL}(\.{LABEL}){{0,3}}"
EXCEPT = (
    "!has(self.except) || !isCIDR(self.cidr) || self.except.all(one, !isCIDR(one) || "
    "(cidr(self.cidr).containsCIDR(one) && cidr(one).prefixLength() > cidr(self.cidr).prefixLength()))"
)
# Text with a special meaning for a shell, a kubelet, a path, a template or a terminal.
HOSTILE = (
    "", " ", "a", "linux", "$(SANDFLEET_POD_UID)", "$$(HOME)", "$$$(X)", "${HOME}", "..", "../../etc/passwd", "/", "-", "a\n", "\0",
    "\u202e", "\u00fc\U0001f600", "{{ .Values }}", "`id`", "'; true", '"', "\\", "null", "true", "0", "-1", "a=b", "x" * 40000, "$(" * 20000, "\u00fc" * 40000,
)  # fmt: skip


def specs(
    kind: str, *, usual: Mapping[str, Values] | None = None, always: frozenset[str] = frozenset(), never: frozenset[str] = frozenset()
) -> Values:  # fmt: skip
    """Strategies for a kind's `spec`. `usual` has values for paths; `always` and `never` say which paths exist."""
    return _Schemas(usual or {}, always, never).values(SCHEMAS[kind]["properties"]["spec"], "spec")


def an_object(kind: str, spec: Json, name: str = "demo", namespace: str = "team-a") -> Json:
    meta = {"namespace": namespace, "name": name}
    return {"apiVersion": "sandfleet.io/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}


NAMES = st.from_regex(LABEL, fullmatch=True) | st.sampled_from(["a", "0", "a" * 63, f"a{'-' * 61}a"])


class _Schemas:
    def __init__(self, usual: Mapping[str, Values], always: frozenset[str], never: frozenset[str]) -> None:
        self._usual, self._always, self._never = usual, always, never

    def values(self, schema: Json, path: str) -> Values:
        drawn = self._drawn(schema, path)
        for rule in rules_of(schema):
            drawn = drawn.filter(meaning(rule))
        usual = self._usual.get(path)
        return drawn if usual is None else _one_in(8).flatmap(lambda other: drawn if other else usual)

    def _drawn(self, schema: Json, path: str) -> Values:
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        if "x-kubernetes-int-or-string" in schema:
            return _quantities(schema)
        if "additionalProperties" in schema:
            inner = self.values(schema["additionalProperties"], f"{path}{{}}")
            return st.dictionaries(st.sampled_from([*LABEL_KEYS, *HOSTILE]), inner, max_size=schema["maxProperties"])
        kind = schema["type"]
        if kind == "object":
            return self._objects(schema, path)
        if kind == "array":
            return self._arrays(schema, path)
        if kind == "integer":
            return st.integers(schema["minimum"], schema["maximum"])
        return st.booleans() if kind == "boolean" else _texts(schema)

    def _objects(self, schema: Json, path: str) -> Values:
        required = {*schema.get("required", ()), *(one.rpartition(".")[2] for one in self._always if one.rpartition(".")[0] == path)}  # fmt: skip
        parts = {
            name: self.values(inner, f"{path}.{name}")
            for name, inner in schema["properties"].items()
            if f"{path}.{name}" not in self._never
        }

        sometimes = _one_in(4)

        @st.composite
        def objects(draw: Any) -> Json:
            made = {}
            for name, inner in parts.items():
                if name in required or draw(sometimes):
                    made[name] = draw(inner)
            if "except" in made:
                made["except"] = draw(_inside(made["cidr"]))
            return made

        return objects()

    def _arrays(self, schema: Json, path: str) -> Values:
        item, most = self.values(schema["items"], f"{path}[]"), schema["maxItems"]
        least, how = schema.get("minItems", 0), schema["x-kubernetes-list-type"]
        if how == "set":
            return st.lists(item, min_size=least, max_size=min(most, 3), unique=True)
        few, many = {"min_size": least, "max_size": min(most, 3)}, item.map(lambda one: [one] * most)
        if how == "map":
            (key,) = schema["x-kubernetes-list-map-keys"]
            few["unique_by"] = lambda one: one[key]
            sign = "/" if key == "path" else ""
            many = item.map(lambda one: [{**one, key: f"{sign}a{number}"} for number in range(most)])
        usually = st.lists(item, **few)
        return _one_in(16).flatmap(lambda full: many if full else usually)


def _one_in(count: int) -> Values:
    return st.sampled_from([False] * (count - 1) + [True])


def rules_of(schema: Json) -> list[str]:
    """Those that say something of an object that is made."""
    rules = (one["rule"] for one in schema.get("x-kubernetes-validations", ()))
    return [rule for rule in rules if "oldSelf" not in rule]


def meaning(rule: str) -> Callable[[Any], bool]:
    """The meaning of a CEL rule in Python. Raises KeyError for an unknown rule."""
    if found := QUANTITY.match(rule):
        return _between(*found.groups())
    if found := MATCHES.fullmatch(rule):
        pattern, whole = re.compile(rf"{found[1]}\Z"), bool(found[2])
        return lambda text: bool(pattern.match(text)) and not (whole and "//" in text)
    if found := LISTED.fullmatch(rule):
        listed = [ipaddress.ip_network(one.strip(" '")) for one in found[1].split(",")]
        return lambda text: not any(_covers(one, _network(text)) for one in listed)
    return RULES[rule]


def _between(low: str, high: str) -> Callable[[Any], bool]:
    least, most = (parse_quantity(one, "a bound") for one in (low, high))
    return lambda value: least <= parse_quantity(value, "a quantity") <= most


def _network(text: str) -> Any:
    return ipaddress.ip_network(text, strict=False)


def _covers(whole: Any, part: Any) -> bool:
    return bool(whole.version == part.version and part.subnet_of(whole))


def _is_masked(text: str) -> bool:
    return bool(str(_network(text).network_address) == text.partition("/")[0])


def _most(pool: Json, bound: str) -> float:
    return pool.get(bound, math.inf)


def _within_quota(quantity: str) -> Callable[[Any], bool]:
    def held(spec: Any) -> bool:
        lent, nominal = spec.get("lendingLimit", {}).get(quantity), spec["nominalQuota"].get(quantity)
        both = lent is not None and nominal is not None
        return not both or parse_quantity(lent, quantity) <= parse_quantity(nominal, quantity)

    return held


def _lending_rule(quantity: str) -> str:
    words = [f"self.{one}.{quantity}" for one in ("lendingLimit", "nominalQuota")]
    there = f"!has(self.lendingLimit) || !has({words[0]}) || !has({words[1]}) || "
    if quantity == "sandboxes":
        return there + " <= ".join(words)
    lent, nominal = (f"quantity(string({one}))" for one in words)
    return f"{there}{lent}.compareTo({nominal}) <= 0"


RULES: Mapping[str, Callable[[Any], bool]] = {
    **{
        f"!has(self.{one}) || has(self.cohort)": lambda spec, one=one: one not in spec or "cohort" in spec
        for one in ("borrowingLimit", "lendingLimit")
    },
    **{_lending_rule(one): _within_quota(one) for one in ("sandboxes", "cpu", "memory")},
    "!format.dns1123Label().validate(self).hasValue()": lambda text: bool(re.fullmatch(LABEL, text)),
    "!format.dns1123Subdomain().validate(self).hasValue()": lambda text: (
        len(text) <= 253 and bool(re.fullmatch(SUBDOMAIN.replace("{0,61}", "*").replace("{0,3}", "*"), text))
    ),
    MOUNTED_OVER_SYSTEM: lambda path: path != "/opt" and not re.match(rf"/({SYSTEM})(/|\Z)", path),
    "has(self.sandboxRef) != has(self.snapshotID)": lambda spec: ("sandboxRef" in spec) != ("snapshotID" in spec),
    "has(self.templateRef) != has(self.inline)": lambda spec: ("templateRef" in spec) != ("inline" in spec),
    "!has(self.image) || !has(self.inline)": lambda spec: "image" not in spec or "inline" not in spec,
    "!has(self.poolRef) || !has(self.inline)": lambda spec: "poolRef" not in spec or "inline" not in spec,
    "!has(self.maxSize) || self.maxSize >= self.replicas": lambda pool: (
        _most(pool, "maxSize") >= pool.get("replicas", 0)
    ),
    "!has(self.maxWarm) || has(self.targetHitRate)": lambda pool: "maxWarm" not in pool or "targetHitRate" in pool,
    "!has(self.maxWarm) || self.maxWarm >= self.replicas": lambda pool: (
        _most(pool, "maxWarm") >= pool.get("replicas", 0)
    ),
    "!has(self.maxWarm) || !has(self.maxSize) || self.maxWarm <= self.maxSize": lambda pool: (
        pool.get("maxWarm", 0) <= _most(pool, "maxSize")
    ),
    "!has(self.defaultTimeoutSeconds) || !has(self.maxTimeoutSeconds) || self.maxTimeoutSeconds == 0 || self.defaultTimeoutSeconds <= self.maxTimeoutSeconds": lambda limits: (
        limits.get("defaultTimeoutSeconds", 0) <= (limits.get("maxTimeoutSeconds") or 1 << 31)
    ),
    "!has(self.ephemeral) || !self.ephemeral || ((!has(self.retention) || self.retention == 'Delete') && !has(self.storageClassName))": lambda workspace: (
        not workspace.get("ephemeral")
        or (workspace.get("retention", "Delete") == "Delete" and "storageClassName" not in workspace)
    ),
    "!has(self.claimName) || !(has(self.size) || has(self.storageClassName))": lambda workspace: (
        "claimName" not in workspace or not workspace.keys() & {"size", "storageClassName"}
    ),
    "!has(self.endPort) || self.endPort >= self.port": lambda port: port.get("endPort", 65536) >= port["port"],
    "!self.matches('(^|[.])([0-9]+|0[xX][0-9a-fA-F]*)$')": lambda host: (
        not re.search(r"(^|[.])([0-9]+|0[xX][0-9a-fA-F]*)\Z", host)
    ),
    "!self.matches('^[*][.][^.]*$')": lambda host: not re.match(r"[*][.][^.]*\Z", host),
    "isCIDR(self)": lambda text: bool(re.fullmatch(r"[0-9a-f:.]+/(0|[1-9][0-9]*)", text)) and bool(_network(text)),
    "!isCIDR(self) || cidr(self) == cidr(self).masked()": _is_masked,
    "isCIDR(self) && cidr(self) == cidr(self).masked()": _is_masked,
    EXCEPT: lambda rule: all(
        _covers(_network(rule["cidr"]), _network(one)) and one != rule["cidr"] for one in rule.get("except", ())
    ),
}


LABEL_KEYS = ("pool", "kubernetes.io/arch", f"{'a' * 63}.example/{'b' * 63}", "a..b/c", "a/b/c", f"{'a' * 254}/b", "-a")


def _texts(schema: Json) -> Values:
    """Bound by its length, and by the rules that say what a text is."""
    most, rules = schema["maxLength"], rules_of(schema)
    if any("isCIDR" in rule for rule in rules):
        return _networks()
    for rule in rules:
        if found := MATCHES.fullmatch(rule):
            pattern = rf"{found[1]}\Z"
            return st.from_regex(pattern) | _longest(st.from_regex(pattern), most)
        if "dns1123" in rule:
            pattern = LABEL if "Label" in rule else SUBDOMAIN
            return st.from_regex(pattern, fullmatch=True) | st.just("a" * 63)
    text = st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    found = text.map(lambda one: one[:most]) | st.sampled_from(LABEL_KEYS).map(lambda one: one[:most])
    return found.filter(lambda one: len(one) >= schema.get("minLength", 0))


def _longest(texts: Values, most: int) -> Values:
    return texts.filter(lambda text: "//" not in text and text[:1].isalpha()).map(lambda text: (text[:1] * most)[:most])


@st.composite
def _networks(draw: Any) -> str:
    """Often one of the same few, so that lists meet."""
    address = ipaddress.ip_address(draw(st.sampled_from(ADDRESSES)))
    length = draw(st.sampled_from([8, 16, 24, 32]) | st.integers(0, address.max_prefixlen))
    return str(ipaddress.ip_network(f"{address}/{length}", strict=False))


def _inside(cidr: str) -> Values:
    """Networks inside of one and smaller than it."""
    whole = ipaddress.ip_network(cidr)
    if whole.prefixlen == whole.max_prefixlen:
        return st.just([])
    longer = st.integers(whole.prefixlen + 1, whole.max_prefixlen)
    first = int(whole.network_address)

    def part(length: int, number: int) -> str:
        step = 1 << (whole.max_prefixlen - length)
        at = type(whole.network_address)(first + number % (1 << (length - whole.prefixlen)) * step)
        return f"{at}/{length}"

    return st.lists(st.builds(part, longer, st.integers(0, 1 << 16)), max_size=3, unique=True)


def _quantities(schema: Json) -> Values:
    """In the notations that Kubernetes knows, within the rule's bounds, which are often met."""
    (rule,) = rules_of(schema)
    found = QUANTITY.match(rule)
    assert found, rule
    low, high = (parse_quantity(one, "a bound") for one in found.groups())
    sizes = low >= 1
    units = ["", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "E6", "m"] if sizes else ["", "m", "u", "e2"]
    amounts = st.sampled_from([1, 2, 3, 64, 100, 128, 250, 255, 256, 500, 512, 1000, 1024, 1 << 20, 1 << 30])
    texts = st.builds(lambda sign, number, unit: f"{sign}{number}{unit}", st.sampled_from(["", "", "", "+"]), amounts, st.sampled_from(units))  # fmt: skip
    usual = (
        ["256Mi", "512Mi", "1Gi", "2Gi", "1.5Gi", "4Gi", "0.0000001Pi"]
        if sizes
        else ["500m", "0.1", ".5", "1.", "1", "0.0015"]
    )
    held = meaning(rule)
    whole = st.integers(_up(low), min(int(high), (1 << 63) - 1))
    return st.one_of(
        st.sampled_from(usual), st.sampled_from(usual), st.sampled_from(found.groups()), (texts | amounts).filter(held), whole
    ).filter(lambda value: held(value) and len(str(value)) <= schema["maxLength"])  # fmt: skip


def _up(value: Fraction) -> int:
    return -int(-value // 1)


def refusals(kind: str, spec: Json) -> list[str]:
    """What the API server says to a spec, as far as the rules of the schema go."""
    return list(_refusals(SCHEMAS[kind]["properties"]["spec"], spec, "spec"))


def _refusals(schema: Json, value: Any, path: str) -> Iterator[str]:
    for one in schema.get("x-kubernetes-validations", ()):
        if "oldSelf" not in one["rule"] and not _holds(one["rule"], value):
            yield f"{path}{one.get('fieldPath', '')}: {one['message']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: supported values: {', '.join(schema['enum'])}"
    if "properties" in schema:
        yield from (f"{path}: unknown field {name!r}" for name in value if name not in schema["properties"])
        yield from (f"{path}.{name}: Required value" for name in schema.get("required", ()) if name not in value)
        for name, inner in value.items():
            yield from _refusals(schema["properties"].get(name, {}), inner, f"{path}.{name}")
    elif "items" in schema:
        for number, inner in enumerate(value):
            yield from _refusals(schema["items"], inner, f"{path}[{number}]")


def _holds(rule: str, value: Any) -> bool:
    """What cannot be read as a quantity or a network holds to no rule that asks for one, and to every other."""
    try:
        return meaning(rule)(value)
    except (FleetError, ValueError):
        return rule.startswith("!isCIDR") or rule == EXCEPT
