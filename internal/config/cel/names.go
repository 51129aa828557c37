package cel

// What Envoy 1.40 knows.
var (
	attributes = []string{
		"request", "response", "source", "destination", "connection", "upstream", "metadata", "filter_state",
		"upstream_filter_state", "xds",
	}
	// istioAttributes are what Istio's own builds of Envoy add.
	istioAttributes = []string{"node", "upstream_peer", "downstream_peer", "plugin_name", "plugin_root_id", "plugin_vm_id", "listener_direction", "listener_metadata", "cluster_name", "cluster_metadata", "route_name", "route_metadata", "upstream_host_metadata"}
	functions       = []string{"has", "size", "int", "uint", "double", "bytes", "timestamp", "duration", "type", "dyn"}
	methods         = []string{
		"contains", "startsWith", "endsWith", "matches", "size",
		"getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear",
		"getHours", "getMinutes", "getSeconds", "getMilliseconds",
	}
	// regexFunctions are those of re, with the number of their arguments.
	regexFunctions = map[string]int{"extract": 3, "capture": 2, "captureN": 2}

	macros = []string{"all", "exists", "exists_one", "map", "filter"}
)
