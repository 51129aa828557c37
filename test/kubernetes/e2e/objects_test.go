package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// objects are objects of a cluster, each as "apiVersion kind namespace/name".
type objects map[string]bool

// passing are kinds whose objects come and go by themselves.
var passing = []string{"events", "events.events.k8s.io"}

const objectTemplate = `{{range .items}}{{.apiVersion}} {{.kind}} {{with .metadata.namespace}}{{.}}/{{end}}{{.metadata.name}}{{"\n"}}{{end}}`

// listObjects lists all objects of all API groups.
func listObjects(ctx context.Context) (objects, error) {
	text, err := kubectlOutput(ctx, nil, "api-resources", "--verbs=list", "-o", "name")
	if err != nil {
		return nil, err
	}
	kinds := slices.DeleteFunc(strings.Fields(text), func(kind string) bool { return slices.Contains(passing, kind) })
	text, err = kubectlOutput(ctx, nil, "get", strings.Join(kinds, ","), "--all-namespaces", "-o", "go-template="+objectTemplate)
	if err != nil {
		return nil, err
	}
	out := objects{}
	for line := range strings.Lines(text) {
		out[strings.TrimSpace(line)] = true
	}
	return out, nil
}

// without returns the objects that others do not have, sorted.
func (o objects) without(others objects) []string {
	out := slices.Sorted(maps.Keys(o))
	return slices.DeleteFunc(out, func(name string) bool { return others[name] })
}

// requireObjects waits until the cluster has the objects that it had before the installation, and those of which allowed
// reports true, and no others.
func requireObjects(t *testing.T, limit time.Duration, allowed func(object string) bool) {
	t.Helper()
	began := time.Now()
	eventually(t, limit, func() error {
		now, err := listObjects(t.Context())
		if err != nil {
			return err
		}
		more := slices.DeleteFunc(now.without(before), allowed)
		if fewer := before.without(now); len(more)+len(fewer) > 0 {
			return fmt.Errorf("objects that were not there before:\n  %s\nobjects that were there before:\n  %s", strings.Join(more, "\n  "), strings.Join(fewer, "\n  "))
		}
		return nil
	})
	t.Logf("the cluster has its %d objects from before the installation again, seen after %.1f s", len(before), time.Since(began).Seconds())
}
