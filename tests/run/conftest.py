"""What tests of the data plane share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.transforms import parse_transform

from neve.model.partition import Specs
from neve.run.write.target import WriteOptions, WriteTarget

Aim = Callable[..., WriteTarget]


@pytest.fixture
def aim(tmp_path: Path) -> Aim:
    """Makes a target: a schema, partition fields as (source id, transform), properties; options by name."""

    def make(
        schema: Schema,
        partition_by: Sequence[tuple[int, str]] = (),
        properties: dict[str, str] | None = None,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        format_version: int = 2,
        **options: object,
    ) -> WriteTarget:
        fields = [
            PartitionField(source, 1000 + at, parse_transform(text), f"part_{at}")
            for at, (source, text) in enumerate(partition_by)
        ]
        specs = Specs({0: PartitionSpec(*fields, spec_id=0)}, 0, (schema,))
        location = f"{tmp_path}/table"
        return WriteTarget(
            schema, specs, 0, location, format_version, sort_order, properties or {}, {}, WriteOptions(**options)
        )

    return make
