"""Write the row of a suite in docs/reference/integrations.md as it has just run: row.py SUITE REPORT."""

import sys
import xml.etree.ElementTree as ET
from importlib.metadata import version
from pathlib import Path

PAGE = Path("docs/reference/integrations.md")
# The framework, its package, what judges it, and what is left out of that with the reason.
SUITES: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "langchain": ("LangChain deepagents", "deepagents", "langchain-tests, sandbox", {}),
    "inspect": ("Inspect AI", "inspect-ai", "self_check", {}),
    "swerex": ("SWE-ReX", "swe-rex", "its tests of a runtime", {}),
    "openai_agents": ("OpenAI Agents SDK", "openai-agents", "its neutral tests of programs, terminals, paths", {}),
    "pydantic_ai": ("Pydantic AI", "pydantic-ai-slim", "WorkspaceBackendSuite", {}),
    "mini_swe_agent": ("mini-swe-agent", "mini-swe-agent", "none is published", {}),
    "ag2": ("AG2", "ag2", "none was run", {}),
    "google_adk": ("Google ADK", "google-adk", "none was run", {}),
    "gymnasium": ("Gymnasium", "gymnasium", "check_env", {}),
    "smolagents": (
        "smolagents",
        "smolagents",
        "its tests of remote executors",
        {"test_send_tools_with_default_wikipedia_search_tool": "left out, it fetches a package from the network"},
    ),
}
OURS = (
    "test_example",
    "test_failures",
    "test_tools",
    "test_environment",
    "test_episodes",
    "test_a_large_final_answer_arrives_whole",
)


def count(cases: list[ET.Element], left_out: int = 0) -> str:
    passed = sum(all(case.find(kind) is None for kind in ("skipped", "failure", "error")) for case in cases)
    return f"{passed} / {len(cases) + left_out}"


def missing(cases: list[ET.Element]) -> str:
    by_reason: dict[str, list[str]] = {}
    for case in cases:
        skipped = case.find("skipped")
        if skipped is not None:
            by_reason.setdefault(skipped.get("message") or "the suite itself expects it to fail", []).append(
                f"`{case.get('name')}`"
            )
        elif case.find("failure") is not None or case.find("error") is not None:
            by_reason.setdefault("failed", []).append(f"`{case.get('name')}`")
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())


def main(suite: str, report: str) -> None:
    label, package, judge, left_out = SUITES[suite]
    cases = ET.parse(report).findall(".//testcase")
    ours = [case for case in cases if {case.get("classname"), case.get("name")} & set(OURS)]
    theirs = [case for case in cases if case not in ours]
    absent = (f"`{name}`: {reason}" for name, reason in left_out.items())
    why = "; ".join(filter(None, (missing(theirs), *absent)))
    row = f"| {label} | {version(package)} | {judge} | {count(theirs, len(left_out))} | {why} | {count(ours)} |"
    lines = PAGE.read_text().splitlines()
    written = [row if line.startswith(f"| {label} |") else line for line in lines]
    PAGE.write_text("\n".join(written) + "\n")


main(*sys.argv[1:])
