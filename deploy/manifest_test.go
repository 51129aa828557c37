package deploy

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// object is a Kubernetes object.
type object map[string]any

func (o object) at(fields ...string) object {
	for _, f := range fields {
		next, _ := o[f].(map[string]any)
		o = next
	}
	return o
}

func (o object) name() string {
	name, _ := o.at("metadata")["name"].(string)
	return name
}

func objects(t *testing.T, o Options) []object {
	t.Helper()
	text, err := Manifest(o)
	require.NoError(t, err)
	var out []object
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var o object
		require.NoError(t, yaml.UnmarshalStrict(doc, &o))
		out = append(out, o)
	}
	return out
}

// id returns kind, namespace and name of an object.
func id(o object) string {
	return fmt.Sprintf("%v %v/%s", o["kind"], o.at("metadata")["namespace"], o.name())
}

// TestOnlyOptionsDiffer checks that image and replicas are all that options change, in the control plane and in sidecars.
func TestOnlyOptionsDiffer(t *testing.T) {
	text, err := Manifest(Options{Image: "example.com:5000/moonsail@sha256:01", Replicas: 3, Revision: "default"})
	require.NoError(t, err)
	want, err := Manifest(Options{Image: "moonsail:latest", Replicas: 2, Revision: "default"})
	require.NoError(t, err)
	like := strings.NewReplacer("example.com:5000/moonsail@sha256:01", "moonsail:latest", "replicas: 3", "replicas: 2").Replace(string(text))
	require.Equal(t, withoutChecksum(string(want)), withoutChecksum(like))
	require.NotContains(t, string(text), "kind: Namespace")
	require.Equal(t, 2, strings.Count(string(text), "image: example.com:5000/moonsail@sha256:01\n"))
}

// withoutChecksum removes the checksum of the configuration of injection, which has the image.
func withoutChecksum(text string) string {
	return regexp.MustCompile(`checksum/injection: .*`).ReplaceAllString(text, "")
}

// TestRevisionSharesNoObject checks that a revision has no object in common with the default one or Istio, and
// refers only to its own objects.
func TestRevisionSharesNoObject(t *testing.T) {
	base := map[string]bool{}
	for _, o := range objects(t, Options{Image: "moonsail", Replicas: 1, Revision: "default"}) {
		base[id(o)] = true
	}
	require.True(t, base["Service istio-system/istiod"])
	own := map[string]object{}
	for _, o := range objects(t, Options{Image: "moonsail", Replicas: 1, Revision: "blue"}) {
		require.NotContains(t, base, id(o))
		own[id(o)] = o
	}
	require.Len(t, own, len(base)-3, "all but Service istiod, and the role and binding of --deploy-gateways")

	pod := own["Deployment istio-system/moonsail-blue"].at("spec", "template")
	require.Contains(t, own, "ServiceAccount istio-system/"+pod.at("spec")["serviceAccountName"].(string))
	for _, kind := range []string{"MutatingWebhookConfiguration <nil>/moonsail-injector-blue", "ValidatingWebhookConfiguration <nil>/moonsail-validator-blue"} {
		require.Contains(t, own, kind)
		for _, h := range own[kind]["webhooks"].([]any) {
			require.Equal(t, "moonsail-blue", object(h.(map[string]any)).at("clientConfig", "service")["name"])
		}
	}
}

// TestServiceOfProxies checks that the Service to which proxies connect has the values for Services, also in a revision, whose only
// one it is.
func TestServiceOfProxies(t *testing.T) {
	for revision, name := range map[string]string{"default": "istiod", "blue": "moonsail-blue"} {
		list := objects(t, Options{Image: "moonsail", Replicas: 1, Revision: revision, Values: map[string]any{
			"ipFamilyPolicy": "RequireDualStack", "ipFamilies": []any{"IPv6", "IPv4"}, "serviceAnnotations": map[string]any{"example.com/a": "b"},
		}})
		service := list[slices.IndexFunc(list, func(o object) bool { return o["kind"] == "Service" && o.name() == name })]
		require.Equal(t, "RequireDualStack", service.at("spec")["ipFamilyPolicy"], revision)
		require.Equal(t, []any{"IPv6", "IPv4"}, service.at("spec")["ipFamilies"], revision)
		require.Equal(t, object{"example.com/a": "b"}, service.at("metadata", "annotations"), revision)
	}
}

// TestRightsFollowFlags checks that a control plane may deploy gateways, and so create Pods in all namespaces, only if it does.
func TestRightsFollowFlags(t *testing.T) {
	for revision, deploys := range map[string]bool{"default": true, "blue": false} {
		flag, rights := false, []string{}
		for _, o := range objects(t, Options{Image: "moonsail", Replicas: 1, Revision: revision}) {
			switch o["kind"] {
			case "Deployment":
				container := o.at("spec", "template", "spec")["containers"].([]any)[0].(map[string]any)
				flag = slices.Contains(container["args"].([]any), any("--deploy-gateways"))
			case "ClusterRole":
				for _, r := range o["rules"].([]any) {
					if r := r.(map[string]any); slices.Contains(r["resources"].([]any), any("deployments")) {
						rights = append(rights, o.name())
					}
				}
			}
		}
		require.Equal(t, deploys, flag, revision)
		require.Equal(t, deploys, len(rights) > 0, "%s: %s", revision, rights)
	}
}

// TestLabelsOfIstiod checks that istioctl and Kiali find the control plane by its labels, and that no selector, Istio's or
// one of another revision, selects its Pods.
func TestLabelsOfIstiod(t *testing.T) {
	foreign := map[string]object{ // of Istio's chart istiod: Services, disruption budgets, Deployments
		"Service of Istio's default revision":    {"app": "istiod", "istio": "pilot"},
		"Deployment of Istio's default revision": {"istio": "pilot"},
		"Istio's revision canary":                {"app": "istiod", "istio.io/rev": "canary"},
	}
	podsOf := map[string]object{}
	for _, revision := range []string{"default", "blue"} {
		for _, o := range objects(t, Options{Image: "moonsail", Replicas: 1, Revision: revision}) {
			if o["kind"] == "Deployment" {
				podsOf[revision] = o.at("spec", "template", "metadata", "labels")
			}
		}
	}
	for revision, service := range map[string]string{"default": "istiod", "blue": "moonsail-blue"} {
		t.Run(revision, func(t *testing.T) {
			found := object{"app": "istiod", "istio.io/rev": revision}
			selectors := 0
			for _, o := range objects(t, Options{Image: "moonsail", Replicas: 1, Revision: revision}) {
				labels := o.at("metadata", "labels")
				switch o["kind"] {
				case "Deployment":
					require.True(t, selects(found, labels), "Kiali lists Deployments by these labels")
					require.True(t, selects(found, podsOf[revision]), "istioctl and Kiali list Pods by these labels")
					require.NotContains(t, podsOf[revision], "istio")
				case "Service":
					require.Equal(t, o.name() == service, selects(found, labels), "Kiali asks the first Service that has these labels: %s", o.name())
				}
				if selector := selectorOf(o); selector != nil {
					selectors++
					for other, pods := range podsOf {
						require.Equal(t, other == revision, selects(selector, pods), "%s and Pods of revision %s", id(o), other)
					}
				}
			}
			require.GreaterOrEqual(t, selectors, 3, "a Deployment, a Service and a disruption budget")
			for name, selector := range foreign {
				require.False(t, selects(selector, podsOf[revision]), name)
			}
		})
	}
}

// selectorOf returns the labels by which an object selects Pods; nil: it selects none.
func selectorOf(o object) object {
	if s := o.at("spec", "selector", "matchLabels"); s != nil {
		return s
	}
	return o.at("spec", "selector")
}

// selects reports whether labels have all those of a selector.
func selects(selector, labels object) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// TestMeshConfigMap checks that the control plane reads the ConfigMap that the chart writes, and has the right to read it.
func TestMeshConfigMap(t *testing.T) {
	settings := map[string]any{"accessLogFile": "/dev/stdout"}
	for _, tt := range []struct {
		title   string
		values  map[string]any
		written bool
		read    string
	}{
		{"default", map[string]any{"meshConfig": settings}, true, "istio"},
		{"default without settings", nil, false, "istio"},
		{"revision", map[string]any{"revision": "blue", "meshConfig": settings}, true, "istio-blue"},
		{"revision without settings", map[string]any{"revision": "blue"}, false, "istio"},
		{"another's", map[string]any{"revision": "blue", "meshConfigMap": "istio-1-31"}, false, "istio-1-31"},
		{"not written", map[string]any{"revision": "blue", "meshConfig": settings, "configMap": false}, false, "istio-blue"},
	} {
		t.Run(tt.title, func(t *testing.T) {
			values := map[string]any{"image": "moonsail"}
			maps.Copy(values, tt.values)
			list, err := Release{Chart: ControlPlaneChart, Namespace: "istio-system", Values: values}.Objects()
			require.NoError(t, err)
			written, flag, right := false, "istio", false
			for _, u := range list {
				o := object(u.Object)
				switch u.GetKind() {
				case "ConfigMap":
					_, mesh := o.at("data")["mesh"]
					written = written || mesh && u.GetName() == tt.read
				case "Role":
					for _, r := range o["rules"].([]any) {
						names, _ := r.(map[string]any)["resourceNames"].([]any)
						right = right || slices.Contains(names, any(tt.read))
					}
				case "Deployment":
					container := o.at("spec", "template", "spec")["containers"].([]any)[0].(map[string]any)
					for _, a := range container["args"].([]any) {
						if name, ok := strings.CutPrefix(a.(string), "--mesh-config-map="); ok {
							flag = name
						}
					}
				}
			}
			require.Equal(t, tt.written, written)
			require.Equal(t, tt.read, flag)
			require.True(t, right)
		})
	}
}

// TestRevisionInjectsByName checks that the webhooks of a revision select only namespaces and Pods that name it.
func TestRevisionInjectsByName(t *testing.T) {
	for _, o := range objects(t, Options{Image: "moonsail", Replicas: 1, Revision: "blue"}) {
		if o["kind"] != "MutatingWebhookConfiguration" {
			continue
		}
		hooks := o["webhooks"].([]any)
		require.Len(t, hooks, 2, "by namespace and by Pod")
		for _, h := range hooks {
			named := 0
			for _, of := range []string{"namespaceSelector", "objectSelector"} {
				for _, m := range object(h.(map[string]any)).at(of)["matchExpressions"].([]any) {
					if m := m.(map[string]any); m["operator"] == "In" {
						require.Equal(t, "istio.io/rev", m["key"])
						require.Equal(t, []any{"blue"}, m["values"])
						named++
					}
				}
			}
			require.Equal(t, 1, named)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{Replicas: 1, Revision: "default"}, "image"},
		{Options{Image: "a b", Replicas: 1, Revision: "default"}, "image"},
		{Options{Image: "a\nkind: Secret", Replicas: 1, Revision: "default"}, "image"},
		{Options{Image: "a", Revision: "default"}, "replicas"},
		{Options{Image: "a", Replicas: 1, Revision: ""}, "revision"},
		{Options{Image: "a", Replicas: 1, Revision: "A"}, "revision"},
		{Options{Image: "a", Replicas: 1, Revision: strings.Repeat("a", 60)}, "revision"},
	} {
		_, err := Manifest(tt.o)
		require.ErrorContains(t, err, tt.want)
	}
}
