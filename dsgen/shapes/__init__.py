"""What everything is made of: errors, quantities with units, layers and their fold, pins, findings, profiles.

Findings are taken from `dsgen.shapes.findings`: to render a config nobody needs them, and each class costs its start.
"""

from __future__ import annotations

from dsgen.shapes.data import data_root
from dsgen.shapes.errors import DsgenError, mistake, nearest
from dsgen.shapes.layers import Fold, Layer, Origin, Override, Provenance, Rank, fold
from dsgen.shapes.pins import Pin
from dsgen.shapes.profiles import Cluster, Hardware, Model, Network, Training

__all__ = [
    "Cluster",
    "DsgenError",
    "Fold",
    "Hardware",
    "Layer",
    "Model",
    "Network",
    "Origin",
    "Override",
    "Pin",
    "Provenance",
    "Rank",
    "Training",
    "data_root",
    "fold",
    "mistake",
    "nearest",
]
