// Package istio converts Istio's objects and MeshConfig into objects of the model. Each kind has a function of its
// name, which validates as it converts: it returns the object with its problems, and callers drop an object
// with errors. What is valid follows Istio's pkg/config/validation.
package istio

import "github.com/moonsail/moonsail/internal/config/convert"

// Converters of one topic each. They share the Converter of the object that is converted, which collects its
// problems; one topic calls another by wrapping the same Converter, as in destinationConv(c).

// virtualServiceConv converts VirtualServices, and the conditions of their routes. See also routeConv.
type virtualServiceConv struct{ *convert.Converter }

// destinationConv converts DestinationRules and traffic policies, which ServiceEntries and MeshConfig have too.
type destinationConv struct{ *convert.Converter }

// entryConv converts ServiceEntries and WorkloadEntries.
type entryConv struct{ *convert.Converter }

// sidecarConv converts Sidecars.
type sidecarConv struct{ *convert.Converter }

// gatewayConv converts Gateways and their TLS settings.
type gatewayConv struct{ *convert.Converter }

// policyConv converts AuthorizationPolicies and RequestAuthentications, and what selects workloads.
type policyConv struct{ *convert.Converter }

// telemetryConv converts Telemetries and MeshConfig's defaults for them.
type telemetryConv struct{ *convert.Converter }

// providerConv converts the extension providers of MeshConfig.
type providerConv struct{ *convert.Converter }

// meshConv converts MeshConfig, ProxyConfigs and PeerAuthentications.
type meshConv struct{ *convert.Converter }

// patchConv converts EnvoyFilters.
type patchConv struct{ *convert.Converter }

// pluginConv converts WasmPlugins.
type pluginConv struct{ *convert.Converter }
