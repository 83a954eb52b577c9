"""What the agent of the show `services` writes: a guest book, a feature, and what it reads out of a log."""

import difflib
import re

# As they stand in the sources below.
DB_PORT, WEB_PORT = 5400, 8000

DB = '''"""A small database server: SQL over TCP, a line of JSON each way. SQLite keeps the file."""
import json, socketserver, sqlite3

store = sqlite3.connect("guests.db")
store.execute("CREATE TABLE IF NOT EXISTS guests (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")

class Question(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            sql, values = json.loads(line)
            try:
                with store:  # a transaction: on disk before the answer
                    answer = {"rows": store.execute(sql, values).fetchall()}
            except sqlite3.Error as error:
                answer = {"error": str(error)}
            self.wfile.write(json.dumps(answer).encode() + b"\\n")

class Server(socketserver.TCPServer):
    allow_reuse_address = True

print("guests.db is open", flush=True)
Server(("127.0.0.1", 5400), Question).serve_forever()
'''

WEB = '''"""The guest book: GET / lists the guests, POST / adds one."""
import json, socket
from http.server import BaseHTTPRequestHandler, HTTPServer

class DatabaseError(Exception): ...

def ask(sql, *values):
    with socket.create_connection(("127.0.0.1", 5400), timeout=5) as db:
        db.sendall(json.dumps([sql, values]).encode() + b"\\n")
        answer = json.loads(db.makefile().readline())
    if "error" in answer:
        raise DatabaseError(answer["error"])
    return answer["rows"]

def guests():
    rows = ask("SELECT id, name FROM guests ORDER BY id")
    return [dict(zip(("id", "name"), row)) for row in rows]

class Page(BaseHTTPRequestHandler):
    def answer(self, do):
        try:
            status, value = do()
        except (DatabaseError, OSError, ValueError) as error:
            status, value = 503, f"no database: {error}"
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def do_GET(self):
        self.answer(lambda: (200, guests()))

    def do_POST(self):
        new = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(lambda: (201, self.add(new)))

    def add(self, new):
        ask("INSERT INTO guests (name) VALUES (?)", new["name"])
        return guests()[-1]

    def log_message(self, *_):
        pass

print(f"{len(guests())} guests so far", flush=True)
HTTPServer(("127.0.0.1", 8000), Page).serve_forever()
'''

# The feature: what the agent changes in web.py. It forgets that there is a database already, of an older schema.
_FEATURE = (
    ('"SELECT id, name FROM guests', '"SELECT id, name, mood FROM guests'),
    ('("id", "name")', '("id", "name", "mood")'),
    (
        '"INSERT INTO guests (name) VALUES (?)", new["name"]',
        '"INSERT INTO guests (name, mood) VALUES (?, ?)", new["name"], new["mood"]',
    ),
)
_BEFORE_SERVING = "\nprint(f"


def with_feature(web: str) -> str:
    """Let guests have a mood."""
    for old, new in _FEATURE:
        web = web.replace(old, new)
    return web


def missing_column(log: str) -> str:
    """The column that the database has said it does not have; "" where the log has nothing of that."""
    found = re.findall(r"DatabaseError: (?:no such column: |table \w+ has no column named )(\w+)", log)
    return found[-1] if found else ""


def with_migration(web: str, column: str) -> str:
    """Let the web application add a column to a database that is older than itself, before it serves."""
    step = (
        '\nif "{0}" not in [row[1] for row in ask("PRAGMA table_info(guests)")]:\n'
        "    ask(\"ALTER TABLE guests ADD COLUMN {0} TEXT NOT NULL DEFAULT 'unknown'\")\n"
    )
    return web.replace(_BEFORE_SERVING, step.format(column) + _BEFORE_SERVING)


def diff(name: str, before: str, after: str) -> list[str]:
    """What was changed, a line around each change."""
    return list(difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, n=1, lineterm=""))[2:]
