"""REST catalogs: the server applies the updates and swaps. Requests keep every key; answers are read by our models.

A server sends configuration for the catalog, and for the storage of each table. It may choose neither code, which would
run with the caller's token at hand, nor another host for the token. Only the caller may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import from_json, to_json
from pyiceberg.catalog.rest import Capability, CreateTableRequest, Endpoints, IdentifierKind, RegisterTableRequest
from pyiceberg.catalog.rest import RestCatalog as IcebergRestCatalog
from pyiceberg.catalog.rest.scan_planning import StorageCredential
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io import FileIO
from pyiceberg.partitioning import assign_fresh_partition_spec_ids
from pyiceberg.table import Table
from pyiceberg.table.sorting import assign_fresh_sort_order_ids
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from requests import ConnectTimeout, RequestException, Response
from urllib3.exceptions import MaxRetryError, NewConnectionError

from neve.catalog.base import NeveCatalog, NewTable
from neve.catalog.swap import CatalogUnavailable, LostRace, MaybeSwapped, NotSwapped, RequirementFailed, Swapped
from neve.errors import CommitError, NeveError, TableError
from neve.model.metadata import metadata_from_json, to_neve_metadata

_REFRESH_TOKEN = (401, 419)
_CODE_KEYS = frozenset({"py-io-impl", "py-catalog-impl", "auth", "ssl"})
_HOST_KEYS = ("uri", "oauth2-server-uri", "s3.signer.uri")  # what goes there carries the token
_CREATE_ERRORS: dict[int, type[Exception]] = {404: NoSuchNamespaceError, 409: TableAlreadyExistsError}


class RestCatalogMixin(NeveCatalog, IcebergRestCatalog):
    """The methods of a REST catalog that differ from PyIceberg's; they precede those of the adopted class."""

    def _fetch_config(self) -> None:
        own = dict(self.properties)
        super()._fetch_config()
        self.properties = own | self._trusted_properties(self.properties, own)
        self.uri = self.properties["uri"]

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return super()._load_file_io(self._trusted_properties(properties, self.properties), location)

    def _trusted_properties(self, given: Properties, own: Properties) -> Properties:
        """Return the properties from a server without those that only the caller may choose."""
        for key in _HOST_KEYS:
            if key in given and given[key] != own.get(key) and _origin(given[key]) != _origin(own["uri"]):
                raise TableError(
                    f"Catalog {self.name!r} asks to send requests with your token to {_origin(given[key])}. If that is "
                    f"right, open it with the property {key!r}."
                )
        return {key: value for key, value in given.items() if key not in _CODE_KEYS}

    def swap(self, table: Table, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]) -> Swapped:
        """Send requirements and updates to the server, and report the outcome."""
        self._check_endpoint(Capability.V1_UPDATE_TABLE)
        identifier = table.name()
        token = table.config.get("token")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # One by one: inside PyIceberg's request model an update loses the keys its declared type does not have.
        body = to_json(
            {
                "identifier": {"namespace": identifier[:-1], "name": identifier[-1]},
                "requirements": [from_json(requirement.model_dump_json()) for requirement in requirements],
                "updates": [from_json(update.model_dump_json()) for update in updates],
            }
        )
        try:
            answer = self._send_request("POST", Endpoints.update_table, identifier, data=body, headers=headers)
            if answer.status_code >= 400:
                raise _commit_error(answer, table, updates)
            swapped = self._parse_table(answer, identifier)
        except CommitError:
            raise
        except RequestException as e:
            cause = e.args[0] if e.args else None
            reason = cause.reason if isinstance(cause, MaxRetryError) else cause
            if isinstance(e, ConnectTimeout) or isinstance(reason, NewConnectionError):  # no connection was made
                raise CatalogUnavailable(f"Cannot reach catalog {self.name!r}. Nothing was sent.") from e
            raise _lost_answer(table, updates, type(e).__name__) from e
        except (ValueError, KeyError, TypeError, NeveError) as e:
            raise _lost_answer(table, updates, f"unreadable answer ({e})") from e
        return Swapped(to_neve_metadata(table.metadata), to_neve_metadata(swapped.metadata), swapped.metadata_location)

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table with metadata of `neve.model.metadata`."""
        self._check_endpoint(Capability.V1_LOAD_TABLE)
        mode = self.properties.get("snapshot-loading-mode")
        parts = self.identifier_to_tuple(identifier)
        params = {"snapshots": mode} if mode else {}
        return self._request_table("GET", Endpoints.load_table, parts, {404: NoSuchTableError}, params=params)

    def create(self, identifier: Identifier, table: NewTable) -> Table:
        """Create a table in an existing namespace."""
        self._check_endpoint(Capability.V1_CREATE_TABLE)
        fresh = table.numbered_schema
        request = CreateTableRequest.model_validate(
            {
                "name": identifier[-1],
                "location": table.location.rstrip("/") if table.location else None,
                "schema": fresh,
                "partition-spec": assign_fresh_partition_spec_ids(table.spec, table.schema, fresh),
                "write-order": assign_fresh_sort_order_ids(table.sort_order, table.schema, fresh),
                "properties": {**table.properties, "format-version": str(table.format_version)},
            }
        )
        body = request.model_dump_json().encode()
        return self._request_table("POST", Endpoints.create_table, identifier, _CREATE_ERRORS, data=body)

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        """Register an existing metadata file as a table."""
        self._check_endpoint(Capability.V1_REGISTER_TABLE)
        parts = self.identifier_to_tuple(identifier)
        request = RegisterTableRequest.model_validate(
            {"name": parts[-1], "metadata-location": metadata_location, "overwrite": overwrite}
        )
        body = request.model_dump_json().encode()
        return self._request_table("POST", Endpoints.register_table, parts, _CREATE_ERRORS, data=body)

    def _send_request(
        self,
        method: str,
        endpoint: str,
        identifier: Identifier,
        kind: IdentifierKind = IdentifierKind.TABLE,
        **request: Any,
    ) -> Response:
        """Send a request; once more with a fresh token if the server rejects the old one."""
        url = self.url(endpoint, prefixed=True, **self._split_identifier_for_path(identifier, kind))
        answer = self._session.request(method, url, **request)
        if answer.status_code in _REFRESH_TOKEN:
            self._refresh_token()
            answer = self._session.request(method, url, **request)
        return answer

    def _request_table(
        self, method: str, endpoint: str, parts: Identifier, errors: Mapping[int, type[Exception]], **request: Any
    ) -> Table:
        """Send a request that may be repeated, and return the table in its answer; `errors` maps status codes."""
        shown = ".".join(parts)
        try:
            answer = self._send_request(method, endpoint, parts, **request)
            if answer.status_code in errors:
                raise errors[answer.status_code](f"Table {shown}: {describe_error(answer)}")
            if answer.status_code >= 400:
                raise TableError(f"Catalog {self.name!r} rejected table {shown}: {describe_error(answer)}.")
            return self._parse_table(answer, parts)
        except RequestException as e:
            raise TableError(f"Cannot reach catalog {self.name!r} for table {shown}: {type(e).__name__}.") from e
        except (ValueError, KeyError, TypeError) as e:
            if isinstance(e, NeveError):
                raise
            raise TableError(f"Catalog {self.name!r} sent no readable table {shown}: {e}") from e

    def _parse_table(self, answer: Response, identifier: Identifier) -> Table:
        body = from_json(answer.content)
        if not isinstance(body, dict):
            raise ValueError("the answer is not an object")
        location: Any = body.get("metadata-location")  # None only while a table is staged
        metadata = metadata_from_json(body["metadata"], location or answer.url)
        credentials = [
            StorageCredential.model_validate(credential) for credential in body.get("storage-credentials") or ()
        ]
        config: dict[str, str] = body.get("config") or {}
        # Properties of the table itself come from storage: they must not choose code or endpoints.
        io = self._load_file_io({**config, **self._resolve_storage_credentials(credentials, location)}, location)
        return Table(identifier, metadata, location, io, self, config)


def _origin(address: str) -> str:
    """Return scheme, host and port of an address."""
    parts = urlsplit(str(address))
    return f"{parts.scheme}://{parts.hostname}{'' if parts.port is None else f':{parts.port}'}".lower()


class RestCatalog(RestCatalogMixin):
    """A REST catalog to name in PyIceberg's configuration: `py-catalog-impl: neve.catalog.RestCatalog`."""


class TableWasDropped(RequirementFailed, NoSuchTableError):
    """The table was dropped meanwhile. Nothing landed."""


def _commit_error(answer: Response, table: Table, updates: Sequence[TableUpdate]) -> NotSwapped | MaybeSwapped:
    shown, reason = ".".join(table.name()), describe_error(answer)
    if answer.status_code == 404:
        return TableWasDropped(f"Table {shown} does not exist any more: {reason}")
    if answer.status_code == 409:
        return LostRace(f"Table {shown} was not changed: {reason}")
    if answer.status_code >= 500 and answer.status_code != 501:
        return _lost_answer(table, updates, reason)
    return CatalogUnavailable(f"The catalog rejected the commit of {shown}: {reason}. Nothing landed.")


def _lost_answer(table: Table, updates: Sequence[TableUpdate], cause: str) -> MaybeSwapped:
    message = f"The answer to the commit of {'.'.join(table.name())} was lost: {cause}. It may have landed."
    base, base_location = to_neve_metadata(table.metadata), table.metadata_location
    # No location: the server chooses it, so only the snapshot can prove that the commit landed.
    return MaybeSwapped(message, table.name(), base, base_location, None, updates)


def describe_error(answer: Response) -> str:
    """Return what an answer says of an error."""
    try:
        error = from_json(answer.content)["error"]
        return f"HTTP {answer.status_code} {error.get('type')}: {error.get('message')}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"HTTP {answer.status_code}"
