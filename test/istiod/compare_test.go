package istiod

import (
	"flag"
	"fmt"
	"os"
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/compare"
	"github.com/moonsail/moonsail/test/kubetest"
	"github.com/moonsail/moonsail/test/labtest"
)

func TestMain(m *testing.M) { labtest.Main(kubetest.Main(m)) }

var (
	istiodPath = flag.String("istiod", "", "the istiod to compare with; make compare-istiod and make interop-istiod build it")
	caseNames  = flag.String("cases", "", "compare only the cases whose names match this pattern, for example gateway-api/*")
	reportDir  = flag.String("report", "", "write the report into this folder")
)

// differencesFile lists what control planes may decide differently.
const differencesFile = "differences.yaml"

// istioModule is the folder of the module that needs Istio.
const istioModule = "../../bench/istiod"

// TestAgreement compares both control planes for each case. It fails if a call differs in a way that is not listed, or if a
// listed difference does not occur any more.
func TestAgreement(t *testing.T) {
	if *istiodPath == "" {
		t.Skip("istiod takes minutes to build: run make compare-istiod")
	}
	list, err := readDifferences(differencesFile)
	require.NoError(t, err)
	cases := selected(t)
	b := newBench(t, *istiodPath)
	r := &result{list: list}
	start := time.Now()
	for i, k := range cases {
		t.Run(k.name, func(t *testing.T) {
			report, a := b.run(t, k, func(d *compare.Difference) bool { return list.all(k.name, d) })
			c := r.add(k, report, a.refused)
			fmt.Fprintf(os.Stdout, "==> %d/%d %s: %d calls, %d alike, %d not listed (%s)\n", i+1, len(cases), k.name, c.Calls, c.Alike, len(c.Unlisted), time.Since(start).Round(time.Second))
			for i := range c.Unlisted {
				t.Errorf("%s", describe(&c.Unlisted[i]))
			}
			for _, u := range c.Undecided {
				t.Errorf("%d calls like %s through %s cannot be decided for %s: %s", u.Count, u.Call, u.Proxy, u.Side, u.Reason)
			}
		})
	}
	if *reportDir != "" {
		defer func() { require.NoError(t, r.write(*reportDir)) }()
	}
	gone := r.finish()
	if *caseNames == "" {
		assert.Empty(t, gone, "listed differences that do not occur any more: remove them from "+differencesFile)
	}
	t.Logf("\n%s", r)
}

// selected returns the cases that -cases names, without those that a running control plane cannot have.
func selected(t *testing.T) []*testCase {
	t.Helper()
	var all []*testCase
	for _, from := range []struct{ group, dir string }{{"corpus", corpus}, {"own", ownCorpus}} {
		found, err := txtarCases(from.group, from.dir)
		require.NoError(t, err)
		all = append(all, found...)
	}
	found, err := dependencyCases()
	require.NoError(t, err)
	all = append(all, found...)
	found, err = istioCases(istioModule)
	require.NoError(t, err)
	var out []*testCase
	for _, k := range append(all, found...) {
		ok, err := path.Match(*caseNames, k.name)
		require.NoError(t, err)
		if ok || *caseNames == "" {
			out = append(out, k)
		}
	}
	return out
}
