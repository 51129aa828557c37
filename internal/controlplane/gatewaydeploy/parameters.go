package gatewaydeploy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// unusableError is about parameters of a Gateway. Trying again does not help.
type unusableError struct{ error }

// overlays returns the overlays of a Gateway's class, then its own.
func (t *term) overlays(ctx context.Context, g *gateway) ([]overlay, error) {
	var out []overlay
	defaults, err := t.classDefaults(ctx, g.Spec.GatewayClassName)
	if err != nil {
		return nil, err
	}
	if defaults != nil {
		out = append(out, overlayOf(defaults))
	}
	named, err := g.parameters()
	if err != nil {
		return nil, unusableError{err}
	}
	if named != "" {
		o, err := t.dynamic.Resource(configMaps).Namespace(g.Namespace).Get(ctx, named, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, unusableError{fmt.Errorf("spec.infrastructure.parametersRef: ConfigMap %s/%s does not exist: create it, or remove the reference", g.Namespace, named)}
		} else if err != nil {
			return nil, err
		}
		m, err := readConfigMap(o)
		if err != nil {
			return nil, err
		}
		out = append(out, overlayOf(m))
	}
	for i := range out {
		if err := out[i].check(); err != nil {
			return nil, unusableError{err}
		}
	}
	return out, nil
}

// classDefaults returns the oldest ConfigMap with the defaults of a class; nil if the class has no defaults.
func (t *term) classDefaults(ctx context.Context, class string) (*corev1.ConfigMap, error) {
	list, err := t.dynamic.Resource(configMaps).Namespace(t.RootNamespace).List(ctx, metav1.ListOptions{LabelSelector: labelClassDefaults + "=" + class})
	if err != nil || len(list.Items) == 0 {
		return nil, err
	}
	oldest := slices.MinFunc(list.Items, func(a, b unstructured.Unstructured) int {
		x, y := a.GetCreationTimestamp(), b.GetCreationTimestamp()
		if c := x.Compare(y.Time); c != 0 {
			return c
		}
		return strings.Compare(a.GetName(), b.GetName())
	})
	return readConfigMap(&oldest)
}

func readConfigMap(o *unstructured.Unstructured) (*corev1.ConfigMap, error) {
	m := &corev1.ConfigMap{}
	return m, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, m)
}

func overlayOf(m *corev1.ConfigMap) overlay {
	return overlay{source: fmt.Sprintf("ConfigMap %s/%s", m.Namespace, m.Name), data: m.Data}
}

func unusable(format string, args ...any) error { return unusableError{fmt.Errorf(format, args...)} }
