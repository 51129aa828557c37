package fleet

import "github.com/moonsail/moonsail/internal/xds/resource"

// Kind is a type of resources, in the order of subscription.
type Kind uint8

// The kinds.
const (
	CDS Kind = iota
	EDS
	LDS
	SRDS
	RDS
	VHDS
	Kinds
)

// URLs are the type URLs.
var URLs = [Kinds]string{resource.ClusterURL, resource.EndpointsURL, resource.ListenerURL, resource.ScopeURL, resource.RouteConfigURL, resource.VirtualHostURL}

// String is the short name: "CDS".
func (k Kind) String() string { return [...]string{"CDS", "EDS", "LDS", "SRDS", "RDS", "VHDS"}[k] }

func kindOf(url []byte) (Kind, bool) {
	for k := range Kinds {
		if URLs[k] == string(url) {
			return k, true
		}
	}
	return 0, false
}
