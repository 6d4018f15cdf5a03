"""The views of a REST catalog: the server keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json
from pyiceberg.catalog.rest import Capability, Endpoints, IdentifierKind
from pyiceberg.typedef import Identifier
from requests import RequestException

from neve.catalog.rest import RestCatalogMixin, describe_error
from neve.errors import CommitConflict, CommitUnknown, NeveError, TableError, UserError
from neve.model.view import StoredView, ViewDefinition, ViewMetadata, new_view, parse_view

_LAST_ADDED = -1  # the schema or version that the same request adds
_RENAME = "views/rename"


def has_view_endpoints(catalog: RestCatalogMixin) -> bool:
    """Return whether the server offers views."""
    return Capability.V1_LOAD_VIEW in catalog._supported_endpoints


@dataclass(frozen=True, slots=True)
class RestViews:
    """The views of a REST catalog."""

    catalog: RestCatalogMixin

    def load(self, identifier: Identifier) -> StoredView | None:
        """Ask the server for a view."""
        body = self._request("GET", Endpoints.load_view, identifier, absent=404)
        return None if body is None else self._parse(body, identifier)

    def names_in(self, namespace: Identifier) -> list[Identifier]:
        """Ask the server for the views of a namespace."""
        return list(self.catalog.list_views(namespace))

    def create(self, identifier: Identifier, definition: ViewDefinition) -> StoredView:
        """Ask the server to create a view; a name that is taken is an error."""
        draft = from_json(new_view(definition, "").model_dump_json())  # the server chooses the location
        request = {
            "name": identifier[-1],
            "schema": draft["schemas"][0],
            "view-version": draft["versions"][0],
            "properties": draft["properties"],
        }
        body = self._request("POST", Endpoints.create_view, identifier, request, taken=409)
        return self._parse(body, identifier)

    def replace(self, view: StoredView, metadata: ViewMetadata) -> StoredView:
        """Send what differs between the metadata of a view and new metadata."""
        request = {
            "identifier": {"namespace": view.identifier[:-1], "name": view.identifier[-1]},
            "requirements": [{"type": "assert-view-uuid", "uuid": view.metadata.view_uuid}],
            "updates": _updates(view.metadata, metadata),
        }
        body = self._request("POST", Endpoints.load_view, view.identifier, request, outdated=409)
        return self._parse(body, view.identifier)

    def drop(self, view: StoredView) -> None:
        """Ask the server to drop a view."""
        self._request("DELETE", Endpoints.drop_view, view.identifier)

    def rename(self, view: StoredView, new_identifier: Identifier) -> None:
        """Ask the server to rename a view; a name that is taken is an error."""
        names = {"source": view.identifier, "destination": new_identifier}
        request = {end: {"namespace": name[:-1], "name": name[-1]} for end, name in names.items()}
        self._request("POST", _RENAME, view.identifier, request, taken=409)

    def _request(
        self,
        method: str,
        endpoint: str,
        identifier: Identifier,
        body: Mapping[str, Any] | None = None,
        *,
        absent: int = 0,
        taken: int = 0,
        outdated: int = 0,
    ) -> Any:
        """Send a request, and return the body of the answer; None for the status `absent`."""
        shown, is_change = ".".join(identifier), method != "GET"
        try:
            data = None if body is None else to_json(body)
            answer = self.catalog._send_request(method, endpoint, identifier, IdentifierKind.VIEW, data=data)
        except RequestException as e:
            problem = f"No answer of catalog {self.catalog.name!r} about view {shown}: {type(e).__name__}."
            raise (CommitUnknown(f"{problem} Check before you try again.") if is_change else TableError(problem)) from e
        status = answer.status_code
        if status == absent:
            return None
        if status == taken:
            raise UserError(f"There is already a table or view of this name: {describe_error(answer)}.")
        if status == outdated:
            raise CommitConflict(f"Another writer changed view {shown} first. Try again.")
        if status >= 500 and is_change:
            raise CommitUnknown(
                f"Cannot tell whether view {shown} was changed: {describe_error(answer)}. Check before you try again."
            )
        if status >= 400:
            raise TableError(f"Catalog {self.catalog.name!r} rejected view {shown}: {describe_error(answer)}.")
        return from_json(answer.content) if answer.content else None

    def _parse(self, body: Any, identifier: Identifier) -> StoredView:
        try:
            location = str(body.get("metadata-location") or "")
            metadata = parse_view(to_json(body["metadata"]), location or self.catalog.uri)
        except (KeyError, TypeError, AttributeError, ValueError) as e:
            if isinstance(e, NeveError):
                raise
            raise TableError(f"Catalog {self.catalog.name!r} sent no readable view {'.'.join(identifier)}: {e}") from e
        return StoredView(identifier, metadata, location)


def _updates(base: ViewMetadata, changed: ViewMetadata) -> list[dict[str, Any]]:
    """Return the updates that turn one state of a view into another; the server counts the versions."""
    updates: list[dict[str, Any]] = []
    removed = sorted(base.properties.keys() - changed.properties.keys())
    added = dict(changed.properties.items() - base.properties.items())
    if changed.current_version_id != base.current_version_id:
        schema = from_json(changed.current_schema().model_dump_json())
        version = from_json(changed.current_version().model_dump_json())
        updates += [
            {"action": "add-schema", "schema": schema, "last-column-id": changed.current_schema().highest_field_id},
            {"action": "add-view-version", "view-version": {**version, "schema-id": _LAST_ADDED}},
            {"action": "set-current-view-version", "view-version-id": _LAST_ADDED},
        ]
    if added:
        updates.append({"action": "set-properties", "updates": added})
    if removed:
        updates.append({"action": "remove-properties", "removals": removed})
    return updates
