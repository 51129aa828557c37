package filters

import (
	"fmt"

	"github.com/moonsail/moonsail/internal/lab/pair"
)

// telemetry selects the pair's metrics and access log; "": no log.
func telemetry(metrics bool, log string) string {
	out := `apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: filters, namespace: $NAMESPACE}
spec:
  metrics: [{providers: [{name: prometheus}], overrides: [{match: {metric: ALL_METRICS}, disabled: ` + fmt.Sprint(!metrics) + `}]}]`
	if log != "" {
		out += fmt.Sprintf("\n  accessLogging: [{providers: [{name: %s}]}]", log)
	}
	return out
}

// inserted adds a filter of the lab before the router of both sidecars.
func inserted(name, config string) string {
	return pair.BeforeRouter(name, "lab."+name, "        typed_config:\n"+config)
}

// lua adds a header to requests and one to responses.
const lua = `          "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
          default_source_code:
            inline_string: |
              function envoy_on_request(handle) handle:headers():add("x-lab", "request") end
              function envoy_on_response(handle) handle:headers():add("x-lab", "response") end`

// wasm is the filter of a file.
func wasm(file string) string {
	return fmt.Sprintf(`          "@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
          config:
            name: lab
            root_id: lab
            vm_config: {vm_id: lab, runtime: envoy.wasm.runtime.v8, code: {local: {filename: %q}}}`, file)
}
