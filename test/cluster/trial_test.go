package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/test/kubetest"
	"github.com/moonsail/moonsail/test/meshtest"
)

// trial is one case in the cluster.
type trial struct {
	c       *kubetest.Cluster
	file    *meshtest.File
	says    map[string]string // parts of refusals, by object
	applied []string          // documents
	keys    map[model.Key]bool
	sliced  map[string]bool // services with slices in the case, as namespace/name
}

// apply writes the documents. A refusal must have the listed reason.
func (k *trial) apply(t *testing.T, docs []*unstructured.Unstructured) {
	k.keys, k.sliced = map[model.Key]bool{}, map[string]bool{}
	k.namespaces(t, docs)
	said := map[string]string{}
	for _, o := range docs {
		if o.GetNamespace() == "" && o.GetKind() != "Namespace" && o.GetKind() != "Node" {
			o.SetNamespace(metav1.NamespaceDefault)
		}
		kubetest.CompletePod(o)
		text, err := json.Marshal(o.Object)
		require.NoError(t, err)
		id := o.GetKind() + "/" + o.GetNamespace() + "/" + o.GetName()
		if err := k.c.TryApply(t.Context(), "", string(text)); err != nil {
			said[id] = err.Error()
			continue
		}
		if o.GetKind() == "WorkloadEntry" && o.Object["status"] != nil {
			require.NoError(t, k.c.TryApplyStatus(t.Context(), "", string(text)))
		}
		if o.GetKind() != "Namespace" { // it stays: a terminating namespace accepts no new objects, and the next case may use it
			k.applied = append(k.applied, string(text))
		}
		k.keys[model.Key{Kind: model.Kind(o.GetKind()), Namespace: o.GetNamespace(), Name: o.GetName()}] = true
		if o.GetKind() == "EndpointSlice" {
			k.sliced[o.GetNamespace()+"/"+o.GetLabels()["kubernetes.io/service-name"]] = true
		}
	}
	for id, err := range said {
		if why, ok := k.says[id]; !ok || !strings.Contains(err, why) {
			t.Errorf("the API server refuses %s: %s", id, err)
		}
	}
	for id := range k.says {
		require.Contains(t, said, id, "it is listed as refused, and was taken")
	}
}

// namespaces creates those of the documents, ready for Pods.
func (k *trial) namespaces(t *testing.T, docs []*unstructured.Unstructured) {
	for _, o := range docs {
		ns := o.GetNamespace()
		if ns == "" {
			continue
		}
		_, err := k.c.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
		}
		account := "default"
		if name, _, _ := unstructured.NestedString(o.Object, "spec", "serviceAccountName"); name != "" && o.GetKind() == "Pod" {
			account = name
			sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if _, err := k.c.Client.CoreV1().ServiceAccounts(ns).Create(t.Context(), sa, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
				require.NoError(t, err)
			}
		}
		k.c.Eventually(t, "a service account in "+ns, func(ctx context.Context) error {
			_, err := k.c.Client.CoreV1().ServiceAccounts(ns).Get(ctx, account, metav1.GetOptions{})
			return err
		})
	}
}

// plain removes the case's labels and annotations from a namespace.
func (k *trial) plain(t *testing.T, name string) {
	t.Helper()
	client := k.c.Client.CoreV1().Namespaces()
	k.c.Eventually(t, "namespace "+name+" without the labels of the trial", func(ctx context.Context) error {
		ns, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ns.Annotations = nil
		ns.Labels = map[string]string{corev1.LabelMetadataName: name}
		_, err = client.Update(ctx, ns, metav1.UpdateOptions{})
		return err
	})
}

// remove deletes the case's objects and waits until they are gone, also from the store.
func (k *trial) remove(t *testing.T, m *store.Store) {
	now := int64(0)
	var namespaces []string
	for key := range k.keys {
		namespaces = append(namespaces, key.Namespace)
	}
	slices.Sort(namespaces)
	for _, text := range k.applied {
		k.c.Delete(t, "", text)
	}
	for key := range k.keys {
		if key.Kind == model.KindNamespace {
			k.plain(t, key.Name)
		}
	}
	for _, ns := range slices.Compact(namespaces) {
		if ns == "" { // of Namespaces and Nodes
			continue
		}
		require.NoError(t, k.c.Client.CoreV1().Pods(ns).DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}))
		k.c.Eventually(t, "the end of all in "+ns, func(ctx context.Context) error { return k.c.Empty(ctx, ns) })
	}
	k.c.Eventually(t, "the store's end of all", func(context.Context) error {
		for key := range k.keys {
			if key.Kind != model.KindNamespace && m.Snapshot().Get(key) != nil {
				return fmt.Errorf("%s is there", key)
			}
		}
		return nil
	})
}
