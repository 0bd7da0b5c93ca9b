"""The tape on which a family writes its forward, and what comes of it: which bytes autograd keeps, and for how long."""

from __future__ import annotations
