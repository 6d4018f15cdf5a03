"""The order of rows in a compaction: a sort order, or z-order."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.transforms import IdentityTransform

from neve.errors import UnknownName, UserError
from neve.model.ddl import sort_order_of_terms
from neve.ops.context import TableContext
from neve.plan.rewrite_options import RewriteOptions
from neve.plan.rewrite_plan import FileGroup
from neve.run.spark.distribution import TotalOrder
from neve.run.spark.rewrite import ZOrder
from neve.run.write.target import WriteTarget


@dataclass(frozen=True, slots=True)
class RequestedOrder:
    """The requested order, as text."""

    terms: tuple[str, ...]
    is_zorder: bool = False

    def __str__(self) -> str:
        return f"{'zorder' if self.is_zorder else 'sort'}({', '.join(self.terms)})"

    def resolve(self, context: TableContext, options: RewriteOptions) -> RowOrder:
        """Resolve the order in a table; reject unknown columns."""
        metadata, schema = context.metadata, context.metadata.schema()
        if self.is_zorder:
            names = [n for n in schema.column_names if schema.find_type(n).is_primitive]
            if unknown := [n for n in self.terms if n not in names]:
                raise UnknownName("column to order by", unknown[0], names)
            ids = tuple(schema.find_field(n).field_id for n in dict.fromkeys(self.terms))
            zorder = ZOrder(ids, options.var_length_contribution, options.max_output_size)
            # Groups may keep the specs of their files: it is enough that one spec leaves something to order by.
            specs = context.specs.by_id if options.output_spec_id is None else [options.output_spec_id]
            if all(not _varying_field_ids(zorder, context.specs[s]) for s in specs):
                raise _zorder_error(zorder, schema)
            return RowOrder(options, zorder=zorder)
        if self.terms:
            return RowOrder(options, sort=sort_order_of_terms(self.terms, schema, metadata.sort_orders))
        own = metadata.sort_order_by_id(metadata.default_sort_order_id)
        if own is None or not own.fields:
            raise UserError(
                f"Table {context.name} has no sort order. Name what to sort by, as in .sort('ts', 'id DESC')."
            )
        return RowOrder(options, sort=own)


@dataclass(frozen=True, slots=True)
class RowOrder:
    """An order of rows, and the number of files they are spread over."""

    options: RewriteOptions
    sort: SortOrder = UNSORTED_SORT_ORDER
    zorder: ZOrder | None = None

    def spread(self, group: FileGroup, target: WriteTarget) -> TotalOrder:
        """Return how the rows of a group are spread."""
        files = self.options.output_files(int(group.bytes * self.options.compression_factor))
        if self.zorder is None:
            return TotalOrder(files, None)
        ids = _varying_field_ids(self.zorder, target.specs[target.spec_id])
        if not ids:
            raise _zorder_error(self.zorder, target.schema)
        return TotalOrder(files, replace(self.zorder, field_ids=ids).key_column(target))


def _varying_field_ids(zorder: ZOrder, spec: PartitionSpec) -> tuple[int, ...]:
    """Return the columns that have more than one value in the files of a partition."""
    constant = {f.source_id for f in spec.fields if isinstance(f.transform, IdentityTransform)}
    return tuple(i for i in zorder.field_ids if i not in constant)


def _zorder_error(zorder: ZOrder, schema: Schema) -> UserError:
    names = ", ".join(str(schema.find_column_name(i)) for i in zorder.field_ids)
    return UserError(
        f"Cannot z-order by {names}: the files of a partition hold only one value of it. "
        "Name columns by which the table is not partitioned."
    )
