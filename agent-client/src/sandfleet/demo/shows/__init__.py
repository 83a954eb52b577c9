"""`sandfleet demo NAME`: short shows of one thing each. A module has `show(args) -> int`."""

# Name → (module, what it shows).
SHOWS = {
    "resume": (
        "sandfleet.demo.shows.resume",
        "a stream survives its connection and its executor; every step runs once",
    ),
}
