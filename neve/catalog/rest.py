"""REST catalogs: the server folds and swaps. What is sent keeps every key; what comes back is read by our models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import from_json, to_json
from pyiceberg.catalog.rest import Capability, CreateTableRequest, Endpoints, RegisterTableRequest
from pyiceberg.catalog.rest import RestCatalog as IcebergRestCatalog
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.catalog.rest.scan_planning import StorageCredential
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionSpec, assign_fresh_partition_spec_ids
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortOrder, assign_fresh_sort_order_ids
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from requests import ConnectTimeout, HTTPError, RequestException, Response
from urllib3.exceptions import MaxRetryError, NewConnectionError

from neve.catalog.base import NeveCatalog
from neve.catalog.outcome import CatalogUnavailable, LostRace, MaybeSwapped, NotSwapped, Swapped
from neve.errors import NeveError, TableError
from neve.model.metadata import adopt, from_object

__all__ = ["RestCatalog", "RestTables"]

_REFRESH_TOKEN = (401, 419)


class RestTables(NeveCatalog, IcebergRestCatalog):
    """The part of a REST catalog that differs from PyIceberg's; put before its class when one is adopted."""

    def swap(self, table: Table, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]) -> Swapped:
        """Send requirements and updates to the server, and say how it ended."""
        self._check_endpoint(Capability.V1_UPDATE_TABLE)
        identifier = table.name()
        unknown = _Unknown(table, updates)
        try:
            answer = self._post(
                Endpoints.update_table, identifier, _commit_request(identifier, requirements, updates), table
            )
        except RequestException as e:
            if _never_sent(e):
                raise CatalogUnavailable(
                    f"Cannot reach catalog {self.name!r}: {type(e).__name__}. Nothing was sent."
                ) from e
            raise unknown(type(e).__name__) from e
        if answer.status_code >= 400:
            raise _refusal(answer, identifier, unknown)
        try:
            done = self._table_in(answer, identifier)
        except (ValueError, KeyError, TypeError, NeveError) as e:
            raise unknown(f"unreadable answer ({e})") from e
        return Swapped(adopt(table.metadata), adopt(done.metadata), done.metadata_location)

    def load_table(self, identifier: str | Identifier) -> Table:
        """The table with metadata as this engine reads it."""
        self._check_endpoint(Capability.V1_LOAD_TABLE)
        mode = self.properties.get("snapshot-loading-mode")
        parts = self.identifier_to_tuple(identifier)
        answer = self._send("GET", Endpoints.load_table, parts, params={"snapshots": mode} if mode else {})
        _check(answer, {404: NoSuchTableError})
        return self._readable_table_in(answer, parts)

    def create(
        self,
        identifier: Identifier,
        schema: Schema,
        spec: PartitionSpec,
        sort_order: SortOrder,
        location: str | None,
        properties: dict[str, str],
        format_version: int,
    ) -> Table:
        """Create a table in a namespace that exists."""
        self._check_endpoint(Capability.V1_CREATE_TABLE)
        fresh = assign_fresh_schema_ids(schema)
        request = CreateTableRequest.model_validate(
            {
                "name": identifier[-1],
                "location": location.rstrip("/") if location else None,
                "schema": fresh,
                "partition-spec": assign_fresh_partition_spec_ids(spec, schema, fresh),
                "write-order": assign_fresh_sort_order_ids(sort_order, schema, fresh),
                "properties": {**properties, "format-version": str(format_version)},
            }
        )
        answer = self._post(Endpoints.create_table, identifier, request.model_dump_json().encode())
        _check(answer, {409: TableAlreadyExistsError, 404: NoSuchNamespaceError})
        return self._readable_table_in(answer, identifier)

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        """Make an existing metadata file a table of this catalog."""
        self._check_endpoint(Capability.V1_REGISTER_TABLE)
        parts = self.identifier_to_tuple(identifier)
        request = RegisterTableRequest.model_validate(
            {"name": parts[-1], "metadata-location": metadata_location, "overwrite": overwrite}
        )
        answer = self._post(Endpoints.register_table, parts, request.model_dump_json().encode())
        _check(answer, {409: TableAlreadyExistsError, 404: NoSuchNamespaceError})
        return self._readable_table_in(answer, parts)

    def _post(self, endpoint: str, identifier: Identifier, body: bytes, table: Table | None = None) -> Response:
        token = table.config.get("token") if table is not None else None
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self._send("POST", endpoint, identifier, data=body, headers=headers)

    def _send(self, method: str, endpoint: str, identifier: Identifier, **request: Any) -> Response:
        """Ask the server; once more with a fresh token when the old one was refused."""
        url = self.url(endpoint, prefixed=True, **self._split_identifier_for_path(identifier))
        answer = self._session.request(method, url, **request)
        if answer.status_code in _REFRESH_TOKEN:
            self._refresh_token()
            answer = self._session.request(method, url, **request)
        return answer

    def _readable_table_in(self, answer: Response, identifier: Identifier) -> Table:
        try:
            return self._table_in(answer, identifier)
        except (ValueError, KeyError, TypeError) as e:
            raise TableError(f"Catalog {self.name!r} sent no readable table {'.'.join(identifier)}: {e}") from e

    def _table_in(self, answer: Response, identifier: Identifier) -> Table:
        body = from_json(answer.content)
        location = body.get("metadata-location")
        metadata = from_object(body["metadata"], location or answer.url)
        credentials = [StorageCredential.model_validate(found) for found in body.get("storage-credentials") or ()]
        config: dict[str, str] = body.get("config") or {}
        # Properties of the table itself come from storage: they must not choose code or endpoints.
        io = self._load_file_io({**config, **self._resolve_storage_credentials(credentials, location)}, location)
        return Table(identifier, metadata, location, io, self, config)


class RestCatalog(RestTables):
    """A REST catalog to name in PyIceberg's configuration: `py-catalog-impl: neve.catalog.RestCatalog`."""


class _Unknown:
    """Makes the error for an answer that was lost; the server chose the location, so only the snapshot can tell."""

    def __init__(self, table: Table, updates: Sequence[TableUpdate]) -> None:
        self.table, self.updates = table, updates

    def __call__(self, cause: str) -> MaybeSwapped:
        identifier = self.table.name()
        message = f"The answer to the commit of {'.'.join(identifier)} was lost: {cause}. It may have landed."
        base, base_location = adopt(self.table.metadata), self.table.metadata_location
        return MaybeSwapped(message, identifier, base, base_location, None, self.updates)


def _commit_request(identifier: Identifier, requirements: Sequence[Any], updates: Sequence[Any]) -> bytes:
    # One by one: inside PyIceberg's request model an update loses the keys its declared type does not have.
    return to_json(
        {
            "identifier": {"namespace": identifier[:-1], "name": identifier[-1]},
            "requirements": [from_json(requirement.model_dump_json()) for requirement in requirements],
            "updates": [from_json(update.model_dump_json()) for update in updates],
        }
    )


def _refusal(
    answer: Response, identifier: Identifier, unknown: _Unknown
) -> NotSwapped | MaybeSwapped | NoSuchTableError:
    shown, said = ".".join(identifier), _said(answer)
    if answer.status_code == 404:
        return NoSuchTableError(f"Table {shown} does not exist: {said}")
    if answer.status_code == 409:
        return LostRace(f"Table {shown} was not changed: {said}")
    if answer.status_code >= 500 and answer.status_code != 501:
        return unknown(said)
    return CatalogUnavailable(f"The catalog refused the commit of {shown}: {said}. Nothing landed.")


def _said(answer: Response) -> str:
    try:
        error = from_json(answer.content)["error"]
        return f"HTTP {answer.status_code} {error.get('type')}: {error.get('message')}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"HTTP {answer.status_code}"


def _check(answer: Response, errors: Mapping[int, type[Exception]]) -> None:
    try:
        answer.raise_for_status()
    except HTTPError as e:
        _handle_non_200_response(e, dict(errors))


def _never_sent(error: RequestException) -> bool:
    """Whether no connection was made at all, so that the server cannot have seen the request."""
    cause = error.args[0] if error.args else None
    reason = cause.reason if isinstance(cause, MaxRetryError) else cause
    return isinstance(error, ConnectTimeout) or isinstance(reason, NewConnectionError)
