package kube

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestHandler checks the calls of a Handler for lists and events.
func TestHandler(t *testing.T) {
	var calls []string
	w := &watched[*corev1.Pod]{known: map[types.NamespacedName]bool{}, Handler: Handler[*corev1.Pod]{
		Upsert: func(p *corev1.Pod) { calls = append(calls, "upsert "+p.Name+" "+string(p.UID)) },
		Remove: func(n types.NamespacedName) { calls = append(calls, "remove "+n.String()) },
		Listed: func() { calls = append(calls, "listed") },
	}}
	pod := func(name string, uid types.UID) any {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uid}}
	}
	for _, step := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"the first list", func() error { return w.Replace([]any{pod("a", "1"), pod("b", "2")}, "") }, []string{"upsert a 1", "upsert b 2", "listed"}},
		{"a new object", func() error { return w.Add(pod("c", "3")) }, []string{"upsert c 3"}},
		{"a changed object", func() error { return w.Update(pod("c", "3")) }, []string{"upsert c 3"}},
		{"a removed object", func() error { return w.Delete(pod("a", "1")) }, []string{"remove shop/a"}},
		{
			"a list with another object of a name, and without one", func() error { return w.Replace([]any{pod("c", "4")}, "") },
			[]string{"remove shop/b", "upsert c 4", "listed"},
		},
		{"an empty list", func() error { return w.Replace(nil, "") }, []string{"remove shop/c", "listed"}},
	} {
		t.Run(step.name, func(t *testing.T) {
			calls = nil
			require.NoError(t, step.do())
			require.ElementsMatch(t, step.want, calls)
			if n := len(calls); n > 1 {
				require.Equal(t, "listed", calls[n-1])
			}
		})
	}
	require.Error(t, w.Add(&corev1.Node{}))
}
