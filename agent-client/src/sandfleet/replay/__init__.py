"""A session again, from its journal: each step in a fresh sandbox, compared with what the record says."""

from sandfleet.replay.files import load
from sandfleet.replay.runner import Replay, Replayed, Replayer, replay
from sandfleet.replay.settings import session_envs, session_settings

__all__ = ["Replay", "Replayed", "Replayer", "load", "replay", "session_envs", "session_settings"]
