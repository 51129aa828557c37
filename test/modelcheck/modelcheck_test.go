package modelcheck

import (
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// length is the number of operations of a run.
const length = 150

// number returns an environment variable, or a default.
func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// try runs a plan in a bubble.
func try(t *testing.T, p *plan) (c counts, err error) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { c, err = execute(p) })
	return c, err
}

// TestPipeline runs random plans until they have had MODELCHECK_EVENTS events.
func TestPipeline(t *testing.T) {
	want := number("MODELCHECK_EVENTS", 20_000)
	if testing.Short() {
		want = 2_000
	}
	first := number("MODELCHECK_SEED", -1)
	start, total := time.Now(), counts{}
	for seed := max(first, 0); total.events < want; seed++ {
		p := newPlan(uint64(seed), length, number("MODELCHECK_BURSTS", 1))
		c, err := try(t, p)
		total.add(c)
		if err != nil {
			short, why := shrink(p, err, func(p *plan) error { _, err := try(t, p); return err })
			t.Fatalf("seed %d: %v\n\nshortened: %v\n%s", seed, err, why, short)
		}
		if first >= 0 {
			break
		}
		if seed%100 == 99 {
			t.Logf("%d seeds, %+v, %s", seed+1, total, time.Since(start).Round(time.Second))
		}
	}
	t.Logf("%+v in %s", total, time.Since(start).Round(time.Second))
}

// TestFoundPlans repeats the runs that have found a bug.
func TestFoundPlans(t *testing.T) {
	if testing.Short() {
		t.Skip("make properties repeats them, without the race detector")
	}
	for name, p := range map[string]*plan{
		"refused content that comes back":            newPlan(118, length, 10),
		"removal from a refused route configuration": newPlan(262, length, 10),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := try(t, p)
			require.NoError(t, err)
		})
	}
}
