package explain

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

const envoyDump = `{"configs": [
 {"@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump",
  "dynamic_active_clusters": [
   {"cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a", "type": "EDS", "connect_timeout": "5s"}},
   {"cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "extra"}},
   {"cluster": {"@type": "type.googleapis.com/of.Tomorrow", "name": "unknown"}}],
  "dynamic_warming_clusters": [{"cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "w"}}]},
 {"dynamic_listeners": [
   {"name": "l", "active_state": {"listener": {"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "l", "stat_prefix": "old"}},
    "warming_state": {"listener": {"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "l"}}}]},
 {"dynamic_route_configs": [
   {"route_config": {"@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "name": "80", "vhds": {},
     "virtual_hosts": [{"name": "80/x:80", "domains": ["x"]}]}}]},
 {"dynamic_endpoint_configs": [
   {"endpoint_config": {"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "cluster_name": "a", "endpoints": [{"lb_endpoints": [
     {"health_status": "HEALTHY", "endpoint": {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}}}},
     {"health_status": "DRAINING", "endpoint": {"address": {"socket_address": {"address": "10.0.0.2", "port_value": 80}}}},
     {"health_status": "HEALTHY", "endpoint": {"address": {"socket_address": {"address": "10.0.0.9", "port_value": 80}}}}]}]}},
   {"endpoint_config": {"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "cluster_name": "extra"}}]},
 {"dynamic_active_secrets": [{"name": "default"}]}
]}`

func TestCompareWithEnvoy(t *testing.T) {
	actual, err := ParseDump([]byte(envoyDump))
	require.NoError(t, err)
	secrets := actual.Secrets()
	require.Len(t, secrets, 1)
	require.Equal(t, "default", secrets[0].Name)
	for _, tc := range []struct {
		typ, name, intended string
		want                Verdict
	}{
		{"CDS", "a", `{"name": "a", "type": "EDS", "connectTimeout": "5s"}`, Verdict{State: Same}},
		{"CDS", "a", `{"name": "a", "type": "EDS", "connectTimeout": "7s"}`, Verdict{Differs, []string{`.connectTimeout: intended "7s", actual "5s"`}}},
		{"CDS", "b", `{"name": "b"}`, Verdict{State: Missing}},
		{"CDS", "w", `{"name": "w"}`, Verdict{State: Warming}},
		{"LDS", "l", `{"name": "l"}`, Verdict{Warming, []string{`.statPrefix: intended nothing, actual "old"`}}},
		{"RDS", "80", `{"name": "80", "vhds": {}}`, Verdict{State: Same}},
		{"VHDS", "80/x:80", `{"name": "80/x:80", "domains": ["x"]}`, Verdict{State: Same}},
		{"VHDS", "80/x:80", `{"name": "80/x:80", "domains": ["x", "y"]}`, Verdict{Differs, []string{`.domains: intended ["x","y"], actual ["x"]`}}},
		{"EDS", "a", `{"clusterName": "a", "endpoints": [{"lbEndpoints": [
			{"endpoint": {"address": {"socketAddress": {"address": "10.0.0.1", "portValue": 80}}}},
			{"endpoint": {"address": {"socketAddress": {"address": "10.0.0.2", "portValue": 80}}}},
			{"endpoint": {"address": {"socketAddress": {"address": "10.0.0.3", "portValue": 80}}}}]}]}`,
			Verdict{Differs, []string{"10.0.0.2:80: intended HEALTHY, actual DRAINING", "10.0.0.3:80: missing", "10.0.0.9:80: extra"}}},
	} {
		got, err := actual.Compare(&ConfigResource{Type: tc.typ, Name: tc.name, Resource: json.RawMessage(tc.intended)})
		require.NoError(t, err)
		require.Equal(t, tc.want, got, "%s %s", tc.typ, tc.name)
	}
	intended := []ConfigResource{{Type: "CDS", Name: "a"}, {Type: "EDS", Name: "a"}, {Type: "LDS", Name: "l"}, {Type: "RDS", Name: "80"}}
	require.Equal(t, []ConfigResource{{Type: "CDS", Name: "extra"}}, actual.Extra(AllSections, intended),
		"virtual hosts are part of their route configuration; endpoints of a static cluster of the cluster")
	intended = append(intended, ConfigResource{Type: "VHDS", Name: "80/y:80"})
	require.Equal(t, []ConfigResource{{Type: "VHDS", Name: "80/x:80"}}, actual.Extra("routes", intended))

	_, err = ParseDump([]byte("<html>"))
	require.ErrorContains(t, err, "config dump")
	_, err = actual.Compare(&ConfigResource{Type: "CDS", Name: "a", Resource: json.RawMessage(`{"nonsense": 1}`)})
	require.ErrorContains(t, err, "CDS a")
}

func TestSections(t *testing.T) {
	_, err := sectionTypes("wings")
	require.ErrorContains(t, err, "listeners, routes, clusters, endpoints, secrets, extensions or all")
	all, err := sectionTypes(AllSections)
	require.NoError(t, err)
	require.Len(t, all, 9)
}
