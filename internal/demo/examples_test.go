package demo

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/file"
)

const examples = "../../examples/"

// TestExamplesMatch checks that examples/ describes, for a cluster, the shop that the demo runs: the READMEs there are
// for both.
func TestExamplesMatch(t *testing.T) {
	t.Run("objects", func(t *testing.T) {
		ours := comparable(read(t, initialManifests(testAddresses, Shop(DefaultWorkloads))...))
		theirs := comparable(fileTree(t, examples+"shop/shop.yaml"))
		require.Len(t, theirs, len(Services)+len([]string{"Namespace", "PeerAuthentication", "DestinationRule"}))
		for key, o := range theirs {
			require.Equal(t, o, ours[key], key)
		}
	})
	t.Run("canary", func(t *testing.T) {
		require.Equal(t, comparable(fileTree(t, examples+"canary/reviews.yaml")), comparable(read(t, canaryManifest(90, 10))))
	})
	t.Run("workloads", func(t *testing.T) {
		ours := map[string]int{}
		for _, w := range Shop(DefaultWorkloads) {
			ours[w.App+" "+w.Version]++
		}
		require.Equal(t, ours, replicas(t, examples+"shop/shop.yaml"))
	})
}

func fileTree(t *testing.T, path string) *file.Tree {
	t.Helper()
	tree, err := file.Analyze(path, config.Decoder{})
	require.NoError(t, err)
	require.Empty(t, tree.Problems)
	return tree
}

// comparable returns the objects without metadata that does not affect calls.
func comparable(tree *file.Tree) map[string]model.Object {
	out := map[string]model.Object{}
	for _, o := range tree.Objects {
		m := o.Metadata()
		*m = model.Meta{Key: m.Key}
		out[m.Key.String()] = o
	}
	return out
}

// replicas returns the replicas of Deployments by the labels of their Pods.
func replicas(t *testing.T, path string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	out := map[string]int{}
	for docs := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var d struct {
			Kind string
			Spec struct {
				Replicas int
				Template struct {
					Metadata struct {
						Labels struct{ App, Version string }
					}
					Spec struct {
						ServiceAccountName string `yaml:"serviceAccountName"`
					}
				}
			}
		}
		err := docs.Decode(&d)
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		if d.Kind == "Deployment" {
			labels := d.Spec.Template.Metadata.Labels
			require.Equal(t, labels.App, d.Spec.Template.Spec.ServiceAccountName, "service accounts have the names of the applications")
			out[labels.App+" "+labels.Version] += d.Spec.Replicas
		}
	}
}
