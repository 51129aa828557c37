package install

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const istiod = `
kind: Deployment
apiVersion: apps/v1
metadata: {name: istiod, namespace: istio-system, labels: {app: istiod, istio.io/rev: old}}
`

// TestFailedUpgradeIsRolledBack checks that a rollback after an upgrade that never gets ready restores the version before it.
func TestFailedUpgradeIsRolledBack(t *testing.T) {
	s := newSession(t)
	require.NoError(t, s.install(image("moonsail:1.0")))
	require.Nil(t, s.record().Pending)
	s.cluster.ready = false
	err := s.upgrade(image("moonsail:1.1"))
	require.ErrorContains(t, err, "not ready in time")
	require.ErrorContains(t, err, "moonsail upgrade --rollback")
	require.Equal(t, "moonsail:1.1", s.image())
	require.NotNil(t, s.record().Pending)

	require.ErrorContains(t, s.rollback(), "not ready in time")
	s.cluster.ready = true
	require.NoError(t, s.rollback(), "a rollback that failed continues")
	require.Equal(t, "moonsail:1.0", s.image())
	require.Nil(t, s.record().Pending)
	require.ErrorContains(t, s.rollback(), "no earlier version is recorded")
}

// TestRollbackIsReversible checks that a second rollback returns to the newer version, also if the first try of one failed.
func TestRollbackIsReversible(t *testing.T) {
	s := newSession(t)
	require.NoError(t, s.install(image("moonsail:1.0")))
	require.NoError(t, s.upgrade(image("moonsail:1.1")))
	s.cluster.ready = false
	require.Error(t, s.rollback())
	s.cluster.ready = true
	require.NoError(t, s.rollback())
	require.Equal(t, "moonsail:1.0", s.image())
	require.NoError(t, s.rollback())
	require.Equal(t, "moonsail:1.1", s.image())
}

// TestFailedUpgradeContinues checks that the same command makes a version complete whose objects are all applied.
func TestFailedUpgradeContinues(t *testing.T) {
	s := newSession(t)
	require.NoError(t, s.install(image("moonsail:1.0")))
	s.cluster.ready = false
	require.Error(t, s.upgrade(image("moonsail:1.1")))
	s.cluster.ready = true
	require.NoError(t, s.upgrade(image("moonsail:1.1")))
	require.Nil(t, s.record().Pending)
	require.NoError(t, s.rollback())
	require.Equal(t, "moonsail:1.0", s.image())
}

// TestFailedInstallIsUpgraded checks that 'moonsail upgrade' continues with the values of an installation that failed.
func TestFailedInstallIsUpgraded(t *testing.T) {
	s := newSession(t)
	s.cluster.ready = false
	err := s.install(func(o *operation) { o.Image, o.Replicas = "moonsail:1.0", 3 })
	require.ErrorContains(t, err, "not ready in time")
	require.NotContains(t, err.Error(), "rollback", "there is nothing to go back to")
	s.cluster.ready = true
	require.NoError(t, s.upgrade(image("moonsail:1.0.1")))
	require.Equal(t, "moonsail:1.0.1", s.image())
	require.EqualValues(t, 3, s.record().Current.Values["replicaCount"])
}

// TestInstallOverInstallation checks that a second installation does not reset values.
func TestInstallOverInstallation(t *testing.T) {
	s := newSession(t)
	require.NoError(t, s.install(func(o *operation) { o.Image, o.Replicas = "moonsail:1.0", 3 }))
	require.ErrorContains(t, s.install(image("moonsail:1.0")), "use 'moonsail upgrade'")
	require.NoError(t, s.install(func(o *operation) { o.Image, o.Replicas = "moonsail:1.0", 3 }))
	require.Contains(t, s.out.String(), "0 objects created, 0 changed")
	require.Nil(t, s.record().Previous, "there is no earlier version")
}

// TestPrecheckEndsInstallation checks that findings end an installation before it writes.
func TestPrecheckEndsInstallation(t *testing.T) {
	s := newSession(t)
	s.cluster.add(strings.ReplaceAll(istiod, "istio.io/rev: old", "istio.io/rev: default"))
	o := s.operation(image("moonsail:1.0"))
	base, controlPlane, err := o.releases(o.cmd, nil)
	require.NoError(t, err)
	err = o.run(func(ctx context.Context) error { return o.install(ctx, base, controlPlane, false) })
	require.ErrorContains(t, err, "Istio's revision default is in namespace istio-system: both would inject the same Pods")
	require.Empty(t, s.cluster.writes)
}

// TestOwnLabelsAreNotIstio checks that a control plane of Moonsail, which has istiod's label app, is not taken for Istio's.
func TestOwnLabelsAreNotIstio(t *testing.T) {
	s := newSession(t)
	require.NoError(t, s.install(image("moonsail:1.0")))
	found, err := s.operation(nil).checkMeshes(t.Context())
	require.NoError(t, err)
	require.Equal(t, []finding{{findingInfo, "meshes", "a control plane of revision default is installed"}}, found)
	others, err := s.operation(nil).otherControlPlanes(t.Context())
	require.NoError(t, err)
	require.Empty(t, others)
}

// TestRemoteClusters checks that a mesh of Istio with several clusters is found.
func TestRemoteClusters(t *testing.T) {
	s := newSession(t)
	s.cluster.add(istiod)
	remote := func() (out []string) {
		found, err := s.operation(nil).checkMeshes(t.Context())
		require.NoError(t, err)
		for _, f := range found {
			if f.Severity == findingWarning {
				out = append(out, f.Message)
			}
		}
		return out
	}
	secret := "kind: Secret\napiVersion: v1\nmetadata: {name: istio-remote-secret-%s, namespace: %s, labels: {istio/multiCluster: \"true\"}}\n"
	s.cluster.add(fmt.Sprintf(secret, "x", "shop"))
	require.Empty(t, remote(), "Istio does not read Secrets of other namespaces")
	s.cluster.add(fmt.Sprintf(secret, "west", "istio-system"))
	require.Len(t, remote(), 1)
	require.Contains(t, remote()[0], "Istio in namespace istio-system reads the endpoints of 1 other cluster ")
}

// TestPodSecurity checks that namespaces whose Pod Security refuses sidecars are found, unless the CNI plugin is installed.
func TestPodSecurity(t *testing.T) {
	s := newSession(t)
	s.cluster.add("kind: Namespace\napiVersion: v1\nmetadata: {name: strict, labels: {istio-injection: enabled, pod-security.kubernetes.io/enforce: baseline}}\n")
	found, err := s.operation(nil).checkPodSecurity(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Contains(t, found[0].Message, "namespace strict enforces Pod Security baseline")
	s.cluster.add("kind: DaemonSet\napiVersion: apps/v1\nmetadata: {name: moonsail-cni-node, namespace: istio-system, labels: {k8s-app: moonsail-cni-node}}\n")
	found, err = s.operation(nil).checkPodSecurity(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
}

// TestRollbackToUnknownKind checks the advice if this command does not know an object of the earlier version.
func TestRollbackToUnknownKind(t *testing.T) {
	s := newSession(t)
	require.NoError(t, s.install(image("moonsail:1.0")))
	require.NoError(t, s.upgrade(image("moonsail:1.1")))
	r := s.record()
	r.Previous.Objects[0].SetKind("Unknown")
	r.Previous.Version = "0.9"
	require.NoError(t, r.write(t.Context(), s.cluster, "istio-system", "default"))
	require.ErrorContains(t, s.rollback(), "use the command 'moonsail' of version 0.9")
}

// answer says yes after a function.
type answer struct{ after func() }

func (a answer) Read(p []byte) (int, error) {
	a.after()
	return copy(p, "y\n"), io.EOF
}

// TestQuestionHasNoTimeout checks that the timeout does not run while the user reads.
func TestQuestionHasNoTimeout(t *testing.T) {
	s := newSession(t)
	require.NoError(t, s.install(image("moonsail:1.0")))
	reading, cancel := context.WithCancel(t.Context())
	s.stdin = answer{cancel}
	o := s.operation(image("moonsail:1.1"))
	require.NoError(t, o.upgrade(reading, false))
	require.Equal(t, "moonsail:1.1", s.image())
	require.Contains(t, s.notes.String(), "[y/N]")
}

// TestQuestionEndsWithContext checks that Ctrl-C ends the question.
func TestQuestionEndsWithContext(t *testing.T) {
	in, out := io.Pipe()
	defer func() { _ = out.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, readYes(ctx, in), context.Canceled)
	require.NoError(t, readYes(t.Context(), strings.NewReader("Yes\n")))
	require.ErrorContains(t, readYes(t.Context(), bufio.NewReader(strings.NewReader("\n"))), "nothing was changed")
}

// TestWaitsOverFailures checks which errors end a wait.
func TestWaitsOverFailures(t *testing.T) {
	group := schema.GroupResource{Resource: "deployments"}
	for name, err := range map[string]error{
		"no answer":       errors.New("connection refused"),
		"a webhook":       apierrors.NewInternalError(errors.New("failed calling webhook")),
		"too many":        apierrors.NewTooManyRequestsError("slow down"),
		"restarts":        apierrors.NewServiceUnavailable("starting"),
		"a slow response": apierrors.NewTimeoutError("slow", 1),
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			require.NoError(t, until(t.Context(), func() (bool, error) {
				if calls++; calls == 1 {
					return false, err
				}
				return true, nil
			}))
		})
	}
	for _, err := range []error{apierrors.NewForbidden(group, "a", nil), apierrors.NewUnauthorized("who"), apierrors.NewNotFound(group, "a")} {
		require.ErrorIs(t, until(t.Context(), func() (bool, error) { return false, err }), err)
	}
}

// TestPurge checks that nothing remains of an installation, and what remains if another control plane needs it.
func TestPurge(t *testing.T) {
	written := "kind: Secret\napiVersion: v1\nmetadata: {name: istio-ca-secret, namespace: istio-system}\n---\n" +
		"kind: Lease\napiVersion: coordination.k8s.io/v1\nmetadata: {name: moonsail-heartbeat, namespace: istio-system}\n"
	configMap := "---\nkind: ConfigMap\napiVersion: v1\nmetadata: {name: %s, namespace: %s}\n"
	written += fmt.Sprintf(configMap, rootConfigMap, "shop") + fmt.Sprintf(configMap, rootConfigMap, "billing") +
		fmt.Sprintf(configMap, dependencies, "istio-system")
	t.Run("alone", func(t *testing.T) {
		s := newSession(t)
		s.cluster.add(fmt.Sprintf(configMap, "settings", "shop"))
		before := s.cluster.names()
		require.NoError(t, s.install(image("moonsail:1.0")))
		s.cluster.add(written)
		require.NoError(t, s.uninstall(true, nil))
		require.Equal(t, before, s.cluster.names())
	})
	for name, other := range map[string]string{
		"istiod": istiod,
		"a release of Helm": "kind: Deployment\napiVersion: apps/v1\nmetadata: {name: moonsail-blue, namespace: blue, labels: {app.kubernetes.io/name: moonsail," +
			" app.kubernetes.io/managed-by: Helm}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t)
			s.cluster.add(other)
			require.NoError(t, s.install(image("moonsail:1.0")))
			s.cluster.add(written)
			require.NoError(t, s.uninstall(true, nil))
			names := strings.Join(s.cluster.names(), "\n")
			require.Contains(t, names, "secrets istio-system/istio-ca-secret")
			require.Contains(t, names, "customresourcedefinitions /virtualservices.networking.istio.io")
			require.NotContains(t, names, "istio-system/moonsail")
			require.Contains(t, s.notes.String(), "resource definitions and the certificate authority remain")
		})
	}
}

// TestPurgeBesideARevision keeps what a revision of another program in the same namespace shares.
func TestPurgeBesideARevision(t *testing.T) {
	s := newSession(t)
	s.cluster.add("kind: Deployment\napiVersion: apps/v1\nmetadata: {name: moonsail-blue, namespace: istio-system, labels: {app.kubernetes.io/name: moonsail," +
		" app.kubernetes.io/managed-by: Helm}}\n")
	require.NoError(t, s.install(image("moonsail:1.0")))
	s.cluster.add("kind: Lease\napiVersion: coordination.k8s.io/v1\nmetadata: {name: moonsail-heartbeat, namespace: istio-system}\n---\n" +
		"kind: ConfigMap\napiVersion: v1\nmetadata: {name: " + dependencies + ", namespace: istio-system}\n")
	require.NoError(t, s.uninstall(true, nil))
	require.Subset(t, s.cluster.names(), []string{"configmaps istio-system/" + dependencies, "leases istio-system/moonsail-heartbeat"})
}

// TestPurgeCountsObjects checks that --dry-run and --yes show how many objects go with their definitions.
func TestPurgeCountsObjects(t *testing.T) {
	s := newSession(t)
	require.NoError(t, s.install(image("moonsail:1.0")))
	for _, name := range []string{"a", "b"} {
		s.cluster.objects["virtualservices shop/"+name] = map[string]any{}
	}
	require.NoError(t, s.uninstall(true, func(o *operation) { o.dryRun = true }))
	require.Contains(t, s.notes.String(), "also removed: 2 objects of kind VirtualService\n")
	require.NoError(t, s.uninstall(true, nil))
	require.Contains(t, s.notes.String(), "also removed: 2 objects of kind VirtualService\n")
}

// TestUninstallCountsPods checks that users see which Pods lose their control plane: sidecars, and gateways, which lack the
// label of sidecars.
func TestUninstallCountsPods(t *testing.T) {
	const sidecars, routers = "Pods with sidecars that no longer get configuration: ", "Pods of gateways that no longer get configuration: "
	pod := func(name, labels, annotations string) string {
		return "kind: Pod\napiVersion: v1\nmetadata: {name: " + name + ", namespace: shop, labels: {service.istio.io/canonical-name: a, " + labels + "}, annotations: {" + annotations + "}}\n---\n"
	}
	s := newSession(t)
	require.NoError(t, s.install(image("moonsail:1.0")))
	require.NoError(t, s.install(func(o *operation) { o.Image, o.Revision = "moonsail:1.0", "blue" }))
	const injected = "sidecar.istio.io/status: x, istio.io/rev: "
	s.cluster.add(strings.TrimSuffix(pod("a", "security.istio.io/tlsMode: istio", injected+"default")+pod("b", "security.istio.io/tlsMode: istio", injected+"blue")+
		pod("of-chart", "istio: edge", injected+"default")+pod("deployed", "gateway.networking.k8s.io/gateway-name: web", "istio.io/rev: default")+
		pod("none", "app: a", ""), "---\n"))
	dry := func(revision string, purge bool) string {
		s.notes.Reset()
		require.NoError(t, s.uninstall(purge, func(o *operation) { o.Revision, o.dryRun = revision, true }))
		return s.notes.String()
	}
	of := dry("default", false)
	require.Contains(t, of, sidecars+"1.")
	require.Contains(t, of, routers+"2.")
	of = dry("blue", false)
	require.Contains(t, of, sidecars+"1.")
	require.NotContains(t, of, routers)
	of = dry("default", true)
	require.Contains(t, of, sidecars+"2.")
	require.Contains(t, of, routers+"2.")
}

// TestFinalizersAreNamed checks what users read if an object is not removed in time.
func TestFinalizersAreNamed(t *testing.T) {
	s := newSession(t)
	require.NoError(t, s.install(image("moonsail:1.0")))
	s.cluster.add("kind: ConfigMap\napiVersion: v1\nmetadata: {name: kept, namespace: istio-system, finalizers: [example.com/slow]," +
		" labels: {install.moonsail.dev/chart: moonsail, install.moonsail.dev/revision: default}}\n")
	require.ErrorContains(t, s.uninstall(false, nil), "example.com/slow")
}

// TestMeshConfigOfOthersStays checks that a control plane keeps the MeshConfig that it reads when the one whose values wrote it
// is removed or no longer has them, and that the last one takes it with it.
func TestMeshConfigOfOthersStays(t *testing.T) {
	const shared = "configmaps istio-system/istio"
	settings := func(o *operation) {
		o.Image, o.set = "moonsail:1.0", []string{"meshConfig.outboundTrafficPolicy.mode=REGISTRY_ONLY"}
	}
	revision := func(set ...string) func(*operation) {
		return func(o *operation) { o.Image, o.Revision, o.set = "moonsail:1.0", "v0-2", set }
	}
	both := func(t *testing.T, set ...string) *session {
		t.Helper()
		s := newSession(t)
		require.NoError(t, s.install(settings))
		require.NoError(t, s.install(revision(set...)))
		require.Contains(t, s.cluster.names(), shared)
		return s
	}
	t.Run("uninstall", func(t *testing.T) {
		s := both(t)
		require.NoError(t, s.uninstall(false, nil))
		require.Contains(t, s.cluster.names(), shared)
		require.Contains(t, s.notes.String(), "note: ConfigMap istio-system/istio remains: control planes read their MeshConfig there: Deployment istio-system/moonsail-v0-2\n")
		require.NoError(t, s.uninstall(false, revision()))
		require.NotContains(t, s.cluster.names(), shared)
		require.NotContains(t, s.cluster.names(), "clusterroles /moonsail-view", "the last revision takes with it what all share")
	})
	t.Run("upgrade", func(t *testing.T) {
		s := both(t)
		without := func(o *operation) { o.Image, o.set = "moonsail:1.1", []string{"meshConfig=null"} }
		require.NoError(t, s.upgrade(without))
		require.Contains(t, s.cluster.names(), shared)
		require.Equal(t, 1, strings.Count(s.notes.String(), "ConfigMap istio-system/istio remains"))
		require.NoError(t, s.uninstall(false, revision()))
		require.NoError(t, s.upgrade(image("moonsail:1.2")))
		require.NotContains(t, s.cluster.names(), shared)
	})
	t.Run("another one is read", func(t *testing.T) {
		s := both(t, "meshConfig.accessLogFile=/dev/stdout")
		require.NoError(t, s.uninstall(false, nil))
		require.NotContains(t, s.cluster.names(), shared)
		require.Contains(t, s.cluster.names(), shared+"-v0-2")
	})
	t.Run("purge", func(t *testing.T) {
		s := both(t)
		require.NoError(t, s.uninstall(true, nil))
		require.NotContains(t, s.cluster.names(), shared)
	})
}

// TestMeshConfigOf checks which ConfigMap a control plane reads.
func TestMeshConfigOf(t *testing.T) {
	for labels, want := range map[string]string{
		"app: istiod, istio.io/rev: default":                                "istio",
		"app: istiod, istio.io/rev: back":                                   "istio-back",
		"app: istiod, istio.io/rev: v0-2, app.kubernetes.io/name: moonsail": "istio",
	} {
		require.Equal(t, want, meshConfigOf(object(t, "kind: Deployment\nmetadata: {name: a, labels: {"+labels+"}}\n")), labels)
	}
}

// TestRolesOfBaseAreRemoved checks that an upgrade removes roles that the chart base no longer has, and remembers the value.
func TestRolesOfBaseAreRemoved(t *testing.T) {
	s := newSession(t)
	require.NoError(t, s.install(func(o *operation) {
		o.Image, o.set = "moonsail:1.0", []string{"base.enableCRDTemplates=false,gatewayAPI.enableCRDTemplates=false"} // only roles are left
	}))
	before := s.cluster.names()
	require.Contains(t, before, "clusterroles /moonsail-view")
	require.NoError(t, s.upgrade(func(o *operation) { o.set = []string{"roles.aggregate=false"} }))
	require.Contains(t, s.notes.String(), "- ClusterRole moonsail-view\n")
	var roles []string
	for _, name := range before {
		if !slices.Contains(s.cluster.names(), name) {
			roles = append(roles, name)
		}
	}
	require.Equal(t, []string{"clusterroles /moonsail-edit", "clusterroles /moonsail-extend", "clusterroles /moonsail-view"}, roles)
	require.NoError(t, s.upgrade(image("moonsail:1.1")))
	require.NotContains(t, s.cluster.names(), "clusterroles /moonsail-view", "the value stays")
	require.NoError(t, s.rollback())
	require.Equal(t, "moonsail:1.0", s.image())
}

// TestInjectionValueStays checks that the CNI plugin, enabled as docs/install.md says, stays enabled in an upgrade to another image.
func TestInjectionValueStays(t *testing.T) {
	s := newSession(t)
	require.NoError(t, s.install(image("moonsail:1.0")))
	require.NoError(t, s.upgrade(func(o *operation) { o.set = []string{"injection.cni.enabled=true"} }))
	require.NoError(t, s.upgrade(image("moonsail:1.1")))
	config, _, err := unstructured.NestedString(s.cluster.objects["configmaps istio-system/moonsail-injection"], "data", "config")
	require.NoError(t, err)
	require.Contains(t, config, "cni:\n  enabled: true\n")
	require.Contains(t, config, "image: moonsail:1.1\n")
}
