package ledger

import "github.com/moonsail/moonsail/internal/xds/resource"

// Request is a parsed request, delta or state-of-the-world. Its slices point into the
// request's buffer and are not kept.
type Request struct {
	TypeURL []byte
	Nonce   []byte // of the response that it answers; empty: none
	Error   *Error // it refuses that response

	// Delta.
	Subscribe, Unsubscribe [][]byte
	Initial                []NameVersion

	// State-of-the-world. version_info is not used: after a NACK a proxy may have more or
	// less than the version that it accepted last.
	Names [][]byte
}

// NameVersion is an entry of initial_resource_versions.
type NameVersion struct{ Name, Version []byte }

// Error is why a proxy refused a response.
type Error struct {
	Code    int32
	Message string
}

// Protocol is a variant of xDS.
type Protocol uint8

// The protocols.
const (
	Delta Protocol = iota
	Sotw
)

// String is "delta" or "sotw".
func (p Protocol) String() string { return [...]string{"delta", "sotw"}[p] }

// Strategy is how routes reach a proxy.
type Strategy struct {
	Name         string
	Routes       resource.Type // the column that answers RDS
	VirtualHosts bool          // VHDS
	Scopes       bool          // SRDS, for listeners that use it
}

// The strategies.
var (
	WholeRoutes  = &Strategy{Name: "rds", Routes: resource.RouteConfig}
	VirtualHosts = &Strategy{Name: "vhds", Routes: resource.VHDSRouteConfig, VirtualHosts: true}
	ScopedRoutes = &Strategy{Name: "scoped", Routes: resource.VHDSRouteConfig, VirtualHosts: true, Scopes: true}
)

// kind is an index of a stream's watches: the types in the order of additions.
type kind uint8

const (
	cds kind = iota
	eds
	sds
	srds
	lds
	rds
	vhds
	nds
	ecds
	bds
	kinds
)

// kindTypes are the types of the kinds; the strategy may replace that of rds.
var kindTypes = [kinds]resource.Type{
	resource.Cluster, resource.Endpoints, resource.Secret, resource.Scope, resource.Listener, resource.RouteConfig,
	resource.VirtualHost, resource.NameTable, resource.Extension, resource.Bootstrap,
}

// kindURLs are the type URLs of kinds, and kindsOf the kinds of types.
var kindURLs, kindsOf = func() (urls [kinds]string, of [resource.NumTypes]kind) {
	for k, t := range kindTypes {
		urls[k], of[t] = t.URL(), kind(k) //nolint:gosec // there are few
	}
	of[resource.VHDSRouteConfig] = rds
	return urls, of
}()
