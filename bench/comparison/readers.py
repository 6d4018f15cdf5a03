"""What the engines that read Névé's table have in common."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from bench.comparison.inputs import Inputs
from bench.comparison.statements import LINE_SUMS, checksum


def metadata_location(inputs: Inputs) -> str:
    """Return the path of the newest metadata file of Névé's table."""
    return str(json.loads(inputs.handover.read_text())["metadata"])


def table_folder(inputs: Inputs) -> str:
    """Return the folder of Névé's table."""
    return str(json.loads(inputs.handover.read_text())["location"])


def arrow_checksum(rows: pa.Table) -> str:
    """Return the checksum of lineitem rows in memory."""
    return checksum((rows.num_rows, *(pc.sum(rows[name]) for name in LINE_SUMS)))
