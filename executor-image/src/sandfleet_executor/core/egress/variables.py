"""The variables by which programs find the proxy (pure)."""

# Squid's port, which people know for a proxy's. The session's network is its own, so it is free.
PORT = 3128
JAVA = "JAVA_TOOL_OPTIONS"


# In the session's /tmp, which no snapshot keeps: the authority is of this fleet alone.
BUNDLE = ".sandfleet-authorities.pem"
BUNDLE_VARIABLES = (
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    # Where a machine gives npm a file of its own, that comes before the one above.
    "NPM_CONFIG_CAFILE",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
)


def trusting() -> dict[str, str]:
    """The variables by which programs find the session's own authority, beside those of the machine."""
    return dict.fromkeys(BUNDLE_VARIABLES, f"/tmp/{BUNDLE}")  # noqa: S108 - the namespace's own


def variables(java: str = "", port: int = PORT) -> dict[str, str]:
    """Each in both cases: curl reads http_proxy in lower case alone, others only in upper case.

    All are addresses of an HTTP proxy: httpx, and what is built on it, refuses to begin where ALL_PROXY has SOCKS and
    one more package is not installed. `java`: the options that Java has already.
    """
    proxy = f"http://127.0.0.1:{port}"
    found = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), proxy)
    found["NO_PROXY"] = "localhost,127.0.0.1,::1,sandbox"
    lower = {name.lower(): value for name, value in found.items()}
    # Node's own fetch reads the others only with this one, and Java none of them.
    options = [f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={port}" for scheme in ("http", "https")]
    return {**found, **lower, "NODE_USE_ENV_PROXY": "1", JAVA: " ".join([*java.split(), *options])}
