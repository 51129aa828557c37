package envoyfilter

import (
	"fmt"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Bootstrap is what an EnvoyFilter changes of bootstraps, as one message. Its agent merges that
// into the bootstrap that it has made: merging is associative, so that this is as if each patch
// were merged there.
func Bootstrap(v *ir.Bootstrap) (*bootstrapv3.Bootstrap, error) {
	out := &bootstrapv3.Bootstrap{}
	for _, p := range v.Patches {
		value := &bootstrapv3.Bootstrap{}
		if err := proto.Unmarshal(p.Value, value); err != nil {
			return nil, fmt.Errorf("spec.configPatches[%d]: cannot be unpacked: %w", p.Index, err)
		}
		MergeBootstrap(out, value)
	}
	return out, nil
}

// MergeBootstrap merges a change into a bootstrap, as other MERGEs do: lists get longer.
func MergeBootstrap(into, change *bootstrapv3.Bootstrap) { mergeMessages(into, change, false) }
