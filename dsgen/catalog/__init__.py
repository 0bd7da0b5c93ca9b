"""Names and files to profiles: the only reader of profile files."""

from __future__ import annotations

from dsgen.catalog.lookup import KINDS, Profile, find, names, override_layer, profile, weights_of

__all__ = ["KINDS", "Profile", "find", "names", "override_layer", "profile", "weights_of"]
