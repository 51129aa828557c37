package proxyconfig

import (
	"fmt"
	"strings"

	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// summary is the table of a section, with istioctl's columns.
type summary struct {
	types    []string
	headings []string
	rows     func(*comparedResource) ([][]string, error)
}

var summaries = map[string]summary{
	"listeners": {[]string{"LDS"}, []string{"LISTENER", "ADDRESS", "PORT", "MATCH", "DESTINATION"}, listenerRows},
	"routes":    {[]string{"RDS", "VHDS"}, []string{"ROUTES", "VIRTUAL HOST", "DOMAINS", "MATCH", "DESTINATION", "VIRTUAL SERVICE"}, routeRows},
	"clusters":  {[]string{"CDS"}, []string{"SERVICE FQDN", "PORT", "SUBSET", "DIRECTION", "TYPE", "DESTINATION RULE"}, clusterRows},
	"endpoints": {[]string{"EDS"}, []string{"ENDPOINT", "STATUS", "OUTLIER CHECK", "LOCALITY", "CLUSTER"}, endpointRows},
	"secrets":   {[]string{"SDS"}, []string{"SECRET"}, nameRows},

	"extensions": {[]string{"ECDS", "BDS"}, []string{"EXTENSION OR BOOTSTRAP"}, nameRows},
}

// Rows come from the resources' JSON, with the field names of Envoy's API reference. A missing field is
// empty.

func at(v any, path ...string) any {
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

func text(v any, path ...string) string {
	switch v := at(v, path...).(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		return fmt.Sprint(v)
	}
}

func items(v any, path ...string) []any {
	list, _ := at(v, path...).([]any)
	return list
}

func containsFold(s, part string) bool {
	return strings.Contains(strings.ToLower(s), strings.ToLower(part))
}

func listenerRows(r *comparedResource) ([][]string, error) {
	v, err := generic(r)
	if err != nil || v == nil {
		return [][]string{{r.Name}}, err
	}
	first := []string{r.Name, text(v, "address", "socketAddress", "address"), text(v, "address", "socketAddress", "portValue")}
	chains := items(v, "filterChains")
	if d := at(v, "defaultFilterChain"); d != nil {
		chains = append(chains, d)
	}
	var rows [][]string
	for i, c := range chains {
		match := chainMatch(at(c, "filterChainMatch"))
		if i == len(chains)-1 && at(v, "defaultFilterChain") != nil {
			match = "default"
		}
		rows = append(rows, append(append([]string{}, first...), match, chainDestination(c)))
	}
	if rows == nil {
		rows = [][]string{append(first, "", "")}
	}
	return rows, nil
}

func chainMatch(m any) string {
	var parts []string
	add := func(label string, list []any) {
		for _, v := range list {
			parts = append(parts, label+fmt.Sprint(v))
		}
	}
	add("SNI: ", items(m, "serverNames"))
	if t := text(m, "transportProtocol"); t != "" {
		parts = append(parts, "Trans: "+t)
	}
	add("App: ", items(m, "applicationProtocols"))
	for _, p := range items(m, "prefixRanges") {
		parts = append(parts, fmt.Sprintf("Addr: %s/%s", text(p, "addressPrefix"), text(p, "prefixLen")))
	}
	if p := text(m, "destinationPort"); p != "" {
		parts = append(parts, "Port: "+p)
	}
	if len(parts) == 0 {
		return "ALL"
	}
	return strings.Join(parts, "; ")
}

// chainDestination returns where the last filter of a chain sends requests.
func chainDestination(chain any) string {
	filters := items(chain, "filters")
	if len(filters) == 0 {
		return "nowhere"
	}
	c := at(filters[len(filters)-1], "typedConfig")
	switch {
	case at(c, "rds") != nil:
		return "Route: " + text(c, "rds", "routeConfigName")
	case at(c, "routeConfig") != nil:
		return "Inline Route: " + text(c, "routeConfig", "name")
	case at(c, "cluster") != nil:
		return "Cluster: " + text(c, "cluster")
	}
	var names []string
	for _, w := range items(c, "weightedClusters", "clusters") {
		names = append(names, fmt.Sprintf("%s (%s)", text(w, "name"), text(w, "weight")))
	}
	return "Clusters: " + strings.Join(names, ", ")
}

func routeRows(r *comparedResource) ([][]string, error) {
	v, err := generic(r)
	if err != nil || v == nil {
		return [][]string{{r.Name}}, err
	}
	if r.Type == "VHDS" {
		config, _ := resourcename.CutVirtualHost(r.Name)
		return hostRows(config, v), nil
	}
	var rows [][]string
	for _, h := range items(v, "virtualHosts") {
		rows = append(rows, hostRows(r.Name, h)...)
	}
	if rows == nil {
		note := "(no virtual hosts)"
		if at(v, "vhds") != nil {
			note = "(by VHDS)"
		}
		rows = [][]string{{r.Name, note}}
	}
	return rows, nil
}

// shownDomains bounds the domains that a row names.
const shownDomains = 2

func hostRows(config string, host any) [][]string {
	var domains []string
	for _, d := range items(host, "domains") {
		domains = append(domains, fmt.Sprint(d))
	}
	shown := strings.Join(domains[:min(len(domains), shownDomains)], ", ")
	if more := len(domains) - shownDomains; more > 0 {
		shown += fmt.Sprintf(" + %d more", more)
	}
	if text(host, "requireTls") == "ALL" { // a gateway that redirects plain text
		return [][]string{{config, text(host, "name"), shown, "/*", "Redirect: https", ""}}
	}
	var rows [][]string
	for _, route := range items(host, "routes") {
		rows = append(rows, []string{config, text(host, "name"), shown, routeMatch(at(route, "match")), routeAction(route), originOf(route)})
	}
	return rows
}

func routeMatch(m any) string {
	for _, k := range []struct{ field, mark string }{{"prefix", "*"}, {"pathSeparatedPrefix", "/*"}, {"path", ""}} {
		if v, ok := at(m, k.field).(string); ok {
			return v + k.mark + headerMatches(m)
		}
	}
	if v := text(m, "safeRegex", "regex"); v != "" {
		return "regex " + v + headerMatches(m)
	}
	return "?"
}

func headerMatches(m any) string {
	if n := len(items(m, "headers")) + len(items(m, "queryParameters")); n > 0 {
		return fmt.Sprintf(" and %d more", n)
	}
	return ""
}

func routeAction(route any) string {
	switch {
	case at(route, "redirect") != nil:
		return "redirect"
	case at(route, "directResponse") != nil:
		return "answers " + text(route, "directResponse", "status")
	case text(route, "route", "cluster") != "":
		return text(route, "route", "cluster")
	}
	var names []string
	for _, c := range items(route, "route", "weightedClusters", "clusters") {
		names = append(names, fmt.Sprintf("%s (%s)", text(c, "name"), text(c, "weight")))
	}
	return strings.Join(names, ", ")
}

// originOf returns the object in Istio's metadata, as "name.namespace".
func originOf(v any) string {
	namespace, _, name, ok := resourcename.CutConfigPath(text(v, "metadata", "filterMetadata", "istio", "config"))
	if !ok {
		return ""
	}
	return name + "." + namespace
}

func clusterRows(r *comparedResource) ([][]string, error) {
	v, err := generic(r)
	direction, port, subset, host := "-", "-", "-", r.Name
	if c, ok := resourcename.ParseCluster(r.Name); ok {
		direction, port, subset = string(c.Direction), fmt.Sprint(c.Port), terminal.OrDash(c.Subset)
		host = terminal.OrDash(string(c.Host)) // inbound clusters have none
	}
	typ := text(v, "type")
	if typ == "" {
		typ = text(v, "clusterType", "name")
	}
	if typ == "" {
		typ = "STATIC"
	}
	return [][]string{{host, port, subset, direction, typ, terminal.OrDash(originOf(v))}}, err
}

func endpointRows(r *comparedResource) ([][]string, error) {
	v, err := generic(r)
	if err != nil || v == nil {
		return [][]string{{"-", "-", "-", "-", r.Name}}, err
	}
	var rows [][]string
	for _, l := range items(v, "endpoints") {
		var place []string
		for _, part := range []string{"region", "zone", "subZone"} {
			if p := text(l, "locality", part); p != "" {
				place = append(place, p)
			}
		}
		for _, e := range items(l, "lbEndpoints") {
			address := text(e, "endpoint", "address", "pipe", "path")
			if at(e, "endpoint", "address", "socketAddress") != nil {
				address = text(e, "endpoint", "address", "socketAddress", "address") + ":" + text(e, "endpoint", "address", "socketAddress", "portValue")
			}
			status := text(e, "healthStatus")
			if status == "" || status == "UNKNOWN" {
				status = "HEALTHY"
			}
			outlier := "-"
			if h := r.healthOf(address); h != nil {
				status, outlier = h.Status, h.outlierCheck()
			}
			rows = append(rows, []string{address, status, outlier, terminal.OrDash(strings.Join(place, "/")), r.Name})
		}
	}
	if rows == nil {
		rows = [][]string{{"(none)", "-", "-", "-", r.Name}}
	}
	return rows, nil
}

func nameRows(r *comparedResource) ([][]string, error) { return [][]string{{r.Name}}, nil }
