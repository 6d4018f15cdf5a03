"""PyIceberg's catalogs, extended to load and commit tables of format versions 1 to 4."""

from neve.catalog.base import NeveCatalog
from neve.catalog.namespaces import (
    all_namespaces,
    change_namespace,
    create_namespace,
    drop_namespace,
    list_namespaces,
    namespace_properties,
)
from neve.catalog.open import adopt_catalog, open_catalog
from neve.catalog.rest import RestCatalog
from neve.catalog.sql import EmbeddedCatalog, SqlCatalog
from neve.catalog.swap import (
    CatalogUnavailable,
    LostRace,
    MaybeSwapped,
    NotSwapped,
    RequirementFailed,
    SwapStatus,
)
from neve.catalog.tables import (
    create_table,
    drop_table,
    identifier_of,
    list_tables,
    load_table,
    refresh_table,
    register_table,
    rename_table,
)
from neve.catalog.views import (
    create_view,
    drop_view,
    find_view,
    list_views,
    load_view,
    rename_view,
    replace_view,
)

__all__ = [
    "CatalogUnavailable",
    "EmbeddedCatalog",
    "LostRace",
    "MaybeSwapped",
    "NeveCatalog",
    "NotSwapped",
    "RequirementFailed",
    "RestCatalog",
    "SqlCatalog",
    "SwapStatus",
    "adopt_catalog",
    "all_namespaces",
    "change_namespace",
    "create_namespace",
    "create_table",
    "create_view",
    "drop_namespace",
    "drop_table",
    "drop_view",
    "find_view",
    "identifier_of",
    "list_namespaces",
    "list_tables",
    "list_views",
    "load_table",
    "load_view",
    "namespace_properties",
    "open_catalog",
    "refresh_table",
    "register_table",
    "rename_table",
    "rename_view",
    "replace_view",
]
