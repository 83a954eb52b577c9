"""One HTTP/1.1 request and the status line of its answer. The server is hostile."""

import re

from sandfleet_executor.core.services.spec import Http

MAX_LINE = 1024
STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: |\r|\n|$)")


def question(check: Http) -> bytes:
    return f"GET {check.path} HTTP/1.1\r\nHost: localhost:{check.port}\r\nUser-Agent: sandfleet\r\nConnection: close\r\n\r\n".encode()


def is_whole(answer: bytes) -> bool:
    """Whether more of it would say no more."""
    return b"\n" in answer or len(answer) >= MAX_LINE


def trouble(check: Http, answer: bytes) -> str:
    """Why it is no answer that counts; empty where it is."""
    found = STATUS.match(answer[:MAX_LINE])
    if not found:
        return f"what port {check.port} answers is no HTTP" if answer else f"port {check.port} closed without an answer"
    status = int(found[1])
    if status == check.status or (not check.status and 200 <= status < 400):
        return ""
    wanted = f"{check.status}" if check.status else "200 to 399"
    return f"port {check.port} answers {check.path[:80]} with {status}, not with {wanted}"
