"""What everything is made of: errors, quantities with units, layers and their fold, pins, findings, profiles."""

from __future__ import annotations

from dsgen.shapes.data import data_root
from dsgen.shapes.errors import DsgenError, mistake, nearest
from dsgen.shapes.findings import Assign, Edit, Fault, Finding, Fix, Move, Remove, Severity, Span
from dsgen.shapes.layers import Fold, Layer, Origin, Override, Provenance, Rank, fold
from dsgen.shapes.pins import Pin
from dsgen.shapes.profiles import Cluster, Hardware, Model, Network, Training

__all__ = [
    "Assign",
    "Cluster",
    "DsgenError",
    "Edit",
    "Fault",
    "Finding",
    "Fix",
    "Fold",
    "Hardware",
    "Layer",
    "Model",
    "Move",
    "Network",
    "Origin",
    "Override",
    "Pin",
    "Provenance",
    "Rank",
    "Remove",
    "Severity",
    "Span",
    "Training",
    "data_root",
    "fold",
    "mistake",
    "nearest",
]
