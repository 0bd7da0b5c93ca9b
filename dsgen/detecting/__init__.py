"""What the machine at hand says of itself: raw answers of drivers and of /proc and /sys, and the node they describe."""

from __future__ import annotations

from dsgen.detecting.answers import Answers, ask, read
from dsgen.detecting.nodes import Accelerator, DetectedNode, Interface, node

__all__ = ["Accelerator", "Answers", "DetectedNode", "Interface", "ask", "node", "read"]
