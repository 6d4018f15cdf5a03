"""Real servers for tests, on loopback or a local socket: PostgreSQL, a REST catalog, an object store."""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import shutil
import socketserver
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import boto3
from moto.server import ThreadedMotoServer
from pydantic import TypeAdapter
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate

from neve.catalog import NeveCatalog, views
from neve.errors import UnknownName, UserError
from neve.model.metadata import serialise_metadata, to_neve_metadata
from neve.model.snapshots import AddSnapshot, Snapshot
from neve.model.view import StoredView, ViewDefinition, change_properties, replace_definition, serialise_view

# --- PostgreSQL ---


class Postgres:
    """A PostgreSQL server with its data in one temporary folder."""

    def __init__(self, programs: Path, folder: Path, user: int | None) -> None:
        self.programs, self.folder, self.user = programs, folder, user
        self._run("initdb", "-D", "data", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")

    @property
    def uri(self) -> str:
        """Where SQLAlchemy finds it."""
        return f"postgresql+psycopg2://postgres@/postgres?host={self.folder}"

    def start(self) -> None:
        self._run("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", f"-h '' -k {self.folder}", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", "data", "-w", "-m", "immediate", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(
            command, cwd=self.folder, user=self.user, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr}")


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A running PostgreSQL, or RuntimeError saying why there is none."""
    programs = _postgres_programs()
    if programs is None:
        raise RuntimeError("no PostgreSQL: neither the package pgserver nor /usr/lib/postgresql is here")
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # short: a socket path has at most 107 letters
    try:
        server = Postgres(*_as_plain_user(programs, folder))
        server.start()
        try:
            yield server
        finally:
            with suppress(RuntimeError):
                server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _postgres_programs() -> Path | None:
    spec = importlib.util.find_spec("pgserver")  # not imported: importing it changes the machine
    bundled = [Path(place) / "pginstall" / "bin" for place in (spec.submodule_search_locations or ())] if spec else []
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in (*bundled, *installed) if (place / "initdb").exists()), None)


def _as_plain_user(programs: Path, folder: Path) -> tuple[Path, Path, int | None]:
    """PostgreSQL refuses to run as root: then it runs as nobody, from a copy where nobody could not reach it."""
    if os.geteuid() != 0:
        return programs, folder, None
    nobody = pwd.getpwnam("nobody").pw_uid
    if not all(place.stat().st_mode & 0o001 for place in programs.resolve().parents):
        programs = Path(shutil.copytree(programs.parent, folder / "install")) / "bin"
    for place in (folder, *folder.rglob("*")):
        os.chown(place, nobody, -1, follow_symlinks=False)
    return programs, folder, nobody


# --- Iceberg REST catalog ---


class RestServer:
    """An Iceberg REST catalog over a catalog of ours. `fault` may answer instead, or break the connection."""

    def __init__(self, catalog: NeveCatalog) -> None:
        self.catalog = catalog
        self.requests: list[tuple[str, str, Any]] = []
        self.fault: Callable[[_Handler, str, str], bool] | None = None  # True: it has answered
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.rest = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@contextmanager
def rest_server(catalog: NeveCatalog) -> Iterator[RestServer]:
    """A running REST catalog on loopback."""
    server = RestServer(catalog)
    try:
        yield server
    finally:
        server.close()


_ERRORS: dict[type[Exception], int] = {
    UnknownName: 404,
    UserError: 409,
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
    TableAlreadyExistsError: 409,
    NamespaceAlreadyExistsError: 409,
    NamespaceNotEmptyError: 409,
    CommitFailedException: 409,
}
_UPDATE: TypeAdapter[Any] = TypeAdapter(TableUpdate)
_REQUIREMENT: TypeAdapter[Any] = TypeAdapter(TableRequirement)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: socketserver.BaseServer

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def do_HEAD(self) -> None:
        self._serve("HEAD")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    @property
    def rest(self) -> RestServer:
        return self.server.rest  # type: ignore[attr-defined, no-any-return]

    def answer(self, status: int, body: Any = None) -> None:
        raw = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def hang_up(self) -> None:
        """Break the connection without an answer."""
        self.close_connection = True
        self.connection.close()

    def _serve(self, method: str) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        body = json.loads(raw) if raw.startswith(b"{") else None  # requests for tokens are forms
        self.rest.requests.append((method, path, body))
        if self.rest.fault is not None and self.rest.fault(self, method, path):
            return
        self.handle_request(method, path, body)

    def handle_request(self, method: str, path: str, body: Any) -> None:
        try:
            status, answer = self.result(method, path, body)
        except Exception as e:
            status = next((code for kind, code in _ERRORS.items() if isinstance(e, kind)), 400)
            answer = {"error": {"message": str(e), "type": type(e).__name__, "code": status}}
        self.answer(status, answer)

    def result(self, method: str, path: str, body: Any) -> tuple[int, Any]:  # noqa: PLR0911, PLR0912
        """Do what the request asks; status and JSON of the answer."""
        catalog = self.rest.catalog
        match method, [unquote(part) for part in path.split("/")[2:]]:
            case "GET", ["config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case "GET", ["namespaces"]:
                return 200, {"namespaces": catalog.list_namespaces()}
            case "POST", ["namespaces"]:
                catalog.create_namespace(tuple(body["namespace"]), body["properties"])
                return 200, {"namespace": body["namespace"], "properties": body["properties"]}
            case "GET" | "HEAD", ["namespaces", namespace]:
                properties = catalog.load_namespace_properties(_parts(namespace))
                return 200, {"namespace": _parts(namespace), "properties": properties}
            case "DELETE", ["namespaces", namespace]:
                catalog.drop_namespace(_parts(namespace))
                return 204, None
            case "POST", ["namespaces", namespace, "properties"]:
                done = catalog.update_namespace_properties(_parts(namespace), set(body["removals"]), body["updates"])
                return 200, {"removed": done.removed, "updated": done.updated, "missing": done.missing}
            case "GET", ["namespaces", namespace, "tables"]:
                found = catalog.list_tables(_parts(namespace))
                return 200, {"identifiers": [{"namespace": t[:-1], "name": t[-1]} for t in found]}
            case "POST", ["namespaces", namespace, "tables"]:
                return 200, _shown(self._create(_parts(namespace), body))
            case "POST", ["namespaces", namespace, "register"]:
                return 200, _shown(
                    catalog.register_table((*_parts(namespace), body["name"]), body["metadata-location"])
                )
            case "POST", ["tables", "rename"]:
                source, target = ((*body[end]["namespace"], body[end]["name"]) for end in ("source", "destination"))
                catalog.rename_table(source, target)
                return 204, None
            case "GET" | "HEAD", ["namespaces", namespace, "tables", name]:
                return 200, _shown(catalog.load_table((*_parts(namespace), name)))
            case "DELETE", ["namespaces", namespace, "tables", name]:
                catalog.drop_table((*_parts(namespace), name))
                return 204, None
            case "POST", ["namespaces", namespace, "tables", name]:
                return 200, self._commit((*_parts(namespace), name), body)
            case _, [*_, "views" | "rename"] | [*_, "views", _]:
                return self._result_of_view(method, path, body)
        return 404, {"error": {"message": f"no route {method} {path}", "type": "NoRoute", "code": 404}}

    def _result_of_view(self, method: str, path: str, body: Any) -> tuple[int, Any]:  # noqa: PLR0911
        catalog = self.rest.catalog
        match method, [unquote(part) for part in path.split("/")[2:]]:
            case "GET", ["namespaces", namespace, "views"]:
                found = views.list_views(catalog, _parts(namespace))
                return 200, {"identifiers": [{"namespace": v[:-1], "name": v[-1]} for v in found]}
            case "POST", ["namespaces", namespace, "views"]:
                return 200, _shown_view(
                    views.create_view(catalog, (*_parts(namespace), body["name"]), _definition(body))
                )
            case "POST", ["views", "rename"]:
                source, target = ((*body[end]["namespace"], body[end]["name"]) for end in ("source", "destination"))
                views.rename_view(catalog, source, target)
                return 204, None
            case "GET", ["namespaces", namespace, "views", name]:
                return 200, _shown_view(views.load_view(catalog, (*_parts(namespace), name)))
            case "DELETE", ["namespaces", namespace, "views", name]:
                views.drop_view(catalog, (*_parts(namespace), name))
                return 204, None
            case "POST", ["namespaces", namespace, "views", name]:
                return 200, self._change_view((*_parts(namespace), name), body)
        return 404, {"error": {"message": f"no route {method} {path}", "type": "NoRoute", "code": 404}}

    def _change_view(self, identifier: tuple[str, ...], body: Any) -> Any:
        view = views.load_view(self.rest.catalog, identifier)
        if body["requirements"] != [{"type": "assert-view-uuid", "uuid": view.metadata.view_uuid}]:
            raise CommitFailedException("another view")
        updates, changed = {update["action"]: update for update in body["updates"]}, view.metadata
        if "add-view-version" in updates:
            assert updates["set-current-view-version"]["view-version-id"] == -1
            version = updates["add-view-version"]["view-version"]
            assert version["schema-id"] == -1
            definition = _definition({"schema": updates["add-schema"]["schema"], "view-version": version})
            changed = replace_definition(changed, definition)
        changed = change_properties(
            changed,
            updates.get("set-properties", {}).get("updates", {}),
            updates.get("remove-properties", {}).get("removals", ()),
        )
        return _shown_view(views.replace_view(self.rest.catalog, view, changed))

    def _create(self, namespace: tuple[str, ...], body: Any) -> Table:
        schema, spec = Schema.model_validate(body["schema"]), PartitionSpec.model_validate(body["partition-spec"])
        order, identifier = SortOrder.model_validate(body["write-order"]), (*namespace, body["name"])
        properties = body.get("properties") or {}
        return self.rest.catalog.create_table(identifier, schema, body.get("location"), spec, order, properties)

    def _commit(self, identifier: tuple[str, ...], body: Any) -> Any:
        catalog = self.rest.catalog
        table = catalog.load_table(identifier)
        requirements = [_REQUIREMENT.validate_python(found) for found in body["requirements"]]
        done = catalog.swap(table, requirements, [_update(found) for found in body["updates"]])
        return {"metadata": json.loads(serialise_metadata(done.metadata)), "metadata-location": done.metadata_location}


def _update(found: Any) -> Any:
    if found["action"] == AddSnapshotUpdate.model_fields["action"].default:
        return AddSnapshot(snapshot=Snapshot.model_validate(found["snapshot"]))
    return _UPDATE.validate_python(found)


def _definition(body: Any) -> ViewDefinition:
    version = body["view-version"]
    (representation,) = version["representations"]
    namespace = tuple(version["default-namespace"])
    schema = Schema.model_validate(body["schema"])
    return ViewDefinition(representation["sql"], schema, namespace, body.get("properties", {}))


def _shown_view(view: StoredView) -> Any:
    return {"metadata": json.loads(serialise_view(view.metadata)), "metadata-location": view.metadata_location}


def _parts(namespace: str) -> tuple[str, ...]:
    return tuple(namespace.split("\x1f"))


def _shown(table: Table) -> Any:
    metadata = json.loads(serialise_metadata(to_neve_metadata(table.metadata)))
    return {"metadata": metadata, "metadata-location": table.metadata_location, "config": {}}


# --- an object store ---


@dataclass(frozen=True)
class ObjectStore:
    """The S3 protocol on loopback, with one bucket `lake`."""

    properties: dict[str, str]  # as PyIceberg's file access takes them
    client: Any

    def objects(self, prefix: str = "") -> set[str]:
        """The objects below a prefix; Arrow leaves an empty marker where the last file of a folder was."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket="lake", Prefix=prefix)
        return {o["Key"] for page in pages for o in page.get("Contents", []) if not o["Key"].endswith("/")}


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A server that speaks the S3 protocol, for as long as the context lasts."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint, region, secret = f"http://{host}:{port}", "us-east-1", "test"
    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name=region, aws_access_key_id=secret, aws_secret_access_key=secret
    )
    client.create_bucket(Bucket="lake")
    named = {"endpoint": endpoint, "region": region, "access-key-id": secret, "secret-access-key": secret}
    try:
        yield ObjectStore({f"s3.{key}": value for key, value in named.items()}, client)
    finally:
        client.close()
        server.stop()
