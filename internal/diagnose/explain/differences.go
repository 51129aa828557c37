package explain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

type typeName = resource.Type

// messageOf makes an empty message of each type that is compared with Envoy's.
var messageOf = map[string]func() proto.Message{
	"CDS":  func() proto.Message { return &clusterv3.Cluster{} },
	"EDS":  func() proto.Message { return &endpointv3.ClusterLoadAssignment{} },
	"LDS":  func() proto.Message { return &listenerv3.Listener{} },
	"RDS":  func() proto.Message { return &routev3.RouteConfiguration{} },
	"VHDS": func() proto.Message { return &routev3.VirtualHost{} },
	"SDS":  func() proto.Message { return &tlsv3.Secret{} },
}

// Compares reports whether resources of a type, by its short name, are compared with Envoy's.
func Compares(typ string) bool { return messageOf[typ] != nil }

func decodeAs(typ string, text json.RawMessage) (proto.Message, error) {
	empty, ok := messageOf[typ]
	if !ok {
		return nil, fmt.Errorf("type %s: unknown", typ)
	}
	m := empty()
	return m, protojson.Unmarshal(text, m)
}

// differences lists the places where two messages differ.
func differences(intended, actual proto.Message) []string {
	w := &walk{}
	w.compare("", generic(intended), generic(actual))
	return w.out
}

func generic(m proto.Message) (v any) {
	if b, err := protojson.Marshal(m); err == nil {
		_ = json.Unmarshal(b, &v) // protojson made it
	}
	return v
}

// hidden is the suffix of a field that Envoy does not show.
const hidden = ".privateKey"

// walk collects differences.
type walk struct{ out []string }

func (w *walk) compare(at string, a, b any) {
	if len(w.out) >= maxDifferences || strings.HasSuffix(at, hidden) {
		return
	}
	am, aIsMap := a.(map[string]any)
	bm, bIsMap := b.(map[string]any)
	al, aIsList := a.([]any)
	bl, bIsList := b.([]any)
	switch {
	case aIsMap && bIsMap:
		keys := maps.Clone(am)
		maps.Copy(keys, bm)
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			w.compare(at+"."+k, am[k], bm[k])
		}
	case aIsList && bIsList && len(al) == len(bl):
		for i := range al {
			w.compare(fmt.Sprintf("%s[%d]", at, i), al[i], bl[i])
		}
	case brief(a) != brief(b):
		w.out = append(w.out, fmt.Sprintf("%s: intended %s, actual %s", at, shorten(brief(a)), shorten(brief(b))))
	}
}

func brief(v any) string {
	if v == nil {
		return "nothing"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// maxBrief bounds one side of a difference, in bytes.
const maxBrief = 120

func shorten(s string) string {
	if len(s) <= maxBrief {
		return s
	}
	return s[:maxBrief] + "..."
}
