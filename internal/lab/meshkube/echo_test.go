package meshkube

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

// TestEchoWritesShadowOfChange checks that, before the baseline sends, objects of the kinds of the change are written in
// the same way, in another namespace. The watch must report them, and afterwards they are reverted.
func TestEchoWritesShadowOfChange(t *testing.T) {
	c, m, client, writes := counted(t, meshfiles.Shape{Services: 3, Proxies: 6})
	c.watcher = client
	for _, one := range []struct {
		name   string
		shadow meshfiles.Shadow
		change func() (meshfiles.Change, error)
	}{
		{"endpoint", m.EndpointShadow(), func() (meshfiles.Change, error) { return m.ReplaceEndpoint(0) }},
		{"route", m.RouteShadow(), func() (meshfiles.Change, error) { return m.ChangeRoute(0) }},
		{"rule", m.RuleShadow(), func() (meshfiles.Change, error) { return m.SetRule(0) }},
		{"new", m.NewServiceShadow(), func() (meshfiles.Change, error) { return m.AddService("new") }},
		{"removed", m.RemovedServiceShadow(), func() (meshfiles.Change, error) { return m.RemoveService("new") }},
	} {
		change, err := one.change()
		require.NoError(t, err)
		writes()
		require.NoError(t, change.Apply())
		want := writes()
		e, err := c.NewEcho(t.Context(), one.shadow)
		require.NoError(t, err)
		for range 3 {
			writes()
			var called []string
			require.NoError(t, e.Before(t.Context(), func() error { called = writes(); return nil })())
			require.ElementsMatch(t, want, called, one.name)
			require.NoError(t, e.Reset(t.Context()))
			require.NotEmpty(t, writes())
		}
		e.Stop()
	}
}

// TestEchoFailsIfWritesFail checks that the baseline sends nothing if the echo could not be written.
func TestEchoFailsIfWritesFail(t *testing.T) {
	c, m, client, _ := counted(t, meshfiles.Shape{Services: 1, Proxies: 1})
	c.watcher = client
	e, err := c.NewEcho(t.Context(), m.NewServiceShadow())
	require.NoError(t, err)
	defer e.Stop()
	client.PrependReactor("create", "services", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no quorum") })
	require.ErrorContains(t, e.Before(t.Context(), func() error { t.Error("called"); return nil })(), "no quorum")
}
