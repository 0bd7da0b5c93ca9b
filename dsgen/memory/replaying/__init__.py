"""What torch's allocator reserves for a strategy: its requests, counted from shapes, through the allocator's own rules.

`dsgen simulate` replays the requests that the real engine makes; here they are written down from what is known of it:
the tape of each stretch of the model, DeepSpeed's buckets, the coordinator's walk. No torch, and milliseconds.
"""

from __future__ import annotations

from dsgen.memory.replaying.replays import Replay, finds_room, reserved

__all__ = ["Replay", "finds_room", "reserved"]
