package derive

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestRekeyMissesNobody holds that a batch after which a proxy belongs to other scopes tells so: nobody asks again.
func TestRekeyMissesNobody(t *testing.T) {
	for seed := range lives(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := worldOf(seed, 5)
			st, d := store.New(), New(worldMesh(), 1)
			of := map[*model.Proxy][2]GroupKey{}
			for range 20 {
				of[w.proxy()] = [2]GroupKey{}
			}
			for batch := range 60 {
				_, changes := st.Apply(randomBatch(w))
				concerns := d.Apply(changes).Rekey
				for p, was := range of {
					outbound, inbound := d.Index().Keys(p)
					now := [2]GroupKey{outbound, inbound}
					require.True(t, batch == 0 || was == now || concerns != nil && concerns(p), "%+v\n%s -> %s\n%s -> %s", p, was[0], outbound, was[1], inbound)
					of[p] = now
				}
			}
		})
	}
}
