"""Devices, links, clusters, the catalogue of known devices, and the ways to describe them."""

from stead.cluster.catalogue import CatalogueEntry, Fabric, device_from, entries, lookup
from stead.cluster.describe import add_host, cluster_from
from stead.cluster.device_file import (
    cluster_from_json,
    cluster_from_toml,
    cluster_to_json,
    cluster_to_toml,
    read_cluster,
    write_cluster,
)
from stead.cluster.devices import (
    UNLIMITED_BYTES,
    CarriedBy,
    Cluster,
    Contention,
    Device,
    Host,
    Link,
    Routing,
    link_all,
    link_both_ways,
)
from stead.cluster.levels import Level
from stead.cluster.links import default_links
from stead.cluster.precision import Precision, precision_of
from stead.cluster.routes import Routes
from stead.cluster.topology import links_from_topology, with_topology

__all__ = [
    "UNLIMITED_BYTES",
    "CarriedBy",
    "CatalogueEntry",
    "Cluster",
    "Contention",
    "Device",
    "Fabric",
    "Host",
    "Level",
    "Link",
    "Precision",
    "Routes",
    "Routing",
    "add_host",
    "cluster_from",
    "cluster_from_json",
    "cluster_from_toml",
    "cluster_to_json",
    "cluster_to_toml",
    "default_links",
    "device_from",
    "entries",
    "link_all",
    "link_both_ways",
    "links_from_topology",
    "lookup",
    "precision_of",
    "read_cluster",
    "with_topology",
    "write_cluster",
]
