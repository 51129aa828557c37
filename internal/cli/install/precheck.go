package install

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/moonsail/moonsail/deploy"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// Severities of findings.
const (
	findingError   = "error" // an installation would fail or do harm
	findingWarning = "warning"
	findingInfo    = "info"
)

// finding is one result of the checks.
type finding struct {
	Severity string `json:"severity"`
	Check    string `json:"check"`
	Message  string `json:"message"`
}

// NewPrecheckCommand returns `moonsail precheck`.
func NewPrecheckCommand() *cobra.Command {
	var o operation
	cmd := &cobra.Command{
		Use:   "precheck",
		Short: "Check whether a control plane can be installed in a cluster",
		Long: `Check a cluster before an installation: the version of Kubernetes, your rights, other meshes, resource
definitions, webhooks that select the same Pods, and Pod Security of namespaces. Nothing is changed.

The exit status is 1 if an installation would fail or disturb another mesh.`,
		Example: `  # Check the cluster of the current context
  moonsail precheck

  # Check for an installation beside Istio
  moonsail precheck --revision moonsail

  # For programs
  moonsail precheck -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(cmd, func(ctx context.Context) error { return o.precheck(ctx) })
		},
	}
	fs := cmd.Flags()
	namespaceFlags(cmd, &o.Namespace)
	fs.StringVarP(&o.Revision, "revision", "r", model.DefaultRevision, "`REVISION` of the control plane")
	fs.DurationVar(&o.timeout, "timeout", defaultTimeout, "how long to wait for the cluster")
	o.flags.addFlags(cmd)
	o.out.AddFlag(cmd)
	return cmd
}

func (o *operation) precheck(ctx context.Context) error {
	found, err := o.check(ctx)
	if err != nil {
		return err
	}
	err = o.out.Print(o.cmd.OutOrStdout(), found, func(w io.Writer) error { return showFindings(w, found) })
	if err == nil && slices.ContainsFunc(found, func(f finding) bool { return f.Severity == findingError }) {
		err = terminal.ExitCode(terminal.ExitFailed)
	}
	return err
}

func showFindings(w io.Writer, found []finding) error {
	style := terminal.StyleFor(w)
	counts := map[string]int{}
	for _, f := range found {
		counts[f.Severity]++
		severity := f.Severity
		switch f.Severity {
		case findingError:
			severity = style.Bad(severity)
		case findingWarning:
			severity = style.Warn(severity)
		}
		fmt.Fprintf(w, "%s: %s: %s\n", severity, f.Check, f.Message)
	}
	_, err := fmt.Fprintf(w, "%s, %s, %s\n", terminal.Count(counts[findingError], "error"), terminal.Count(counts[findingWarning], "warning"), terminal.Count(counts[findingInfo], "info"))
	return err
}

// precheckFirst runs the checks before an installation. Errors end it.
func (o *operation) precheckFirst(ctx context.Context) error {
	found, err := o.check(ctx)
	if err != nil {
		return err
	}
	var errs []string
	for _, f := range found {
		switch f.Severity {
		case findingError:
			errs = append(errs, f.Check+": "+f.Message)
		case findingWarning:
			fmt.Fprintf(o.notes, "warning: %s: %s\n", f.Check, f.Message)
		}
	}
	if len(errs) > 0 {
		return &terminal.UserError{What: strings.Join(errs, "\n"), Next: "correct this, or install anyway with --skip-precheck"}
	}
	return nil
}

// check runs all checks.
func (o *operation) check(ctx context.Context) ([]finding, error) {
	var out []finding
	for _, one := range []func(context.Context) ([]finding, error){
		o.checkVersion, o.checkRights, o.checkMeshes, o.checkWebhooks, o.checkDefinitions, o.checkPodSecurity,
	} {
		more, err := one(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return append(out, finding{findingInfo, "network", "the API server must reach port 15017 of the control plane's Pods for its webhooks: allow it in the firewall of nodes, if there is one"}), nil
}

// Versions of Kubernetes.
var (
	oldestVersion  = version.MustParseGeneric("1.27.0")
	nativeSidecars = version.MustParseGeneric("1.29.0")
)

func (o *operation) checkVersion(ctx context.Context) ([]finding, error) {
	text, err := o.cluster.Version(ctx)
	if err != nil {
		return nil, err
	}
	v, err := version.ParseGeneric(text)
	switch {
	case err != nil:
		return []finding{{findingWarning, "version", fmt.Sprintf("Kubernetes %s cannot be compared: 1.29 or newer is needed", text)}}, nil
	case v.LessThan(oldestVersion):
		return []finding{{findingError, "version", fmt.Sprintf("Kubernetes %s is too old: use 1.29 or newer, or 1.27 with injection.nativeSidecar=false", text)}}, nil
	case v.LessThan(nativeSidecars):
		return []finding{{findingWarning, "version", fmt.Sprintf("Kubernetes %s has no native sidecars: set injection.nativeSidecar=false", text)}}, nil
	}
	return []finding{{findingInfo, "version", "Kubernetes " + text}}, nil
}

// checkRights checks that this user may write what the charts have.
func (o *operation) checkRights(ctx context.Context) ([]finding, error) {
	var missing []string
	for _, k := range kinds {
		namespace := ""
		if k.namespaced {
			namespace = o.Namespace
		}
		if k.optional || k.name == leases.name {
			continue
		}
		for _, verb := range []string{"create", "patch", "delete"} {
			ok, err := o.cluster.Allowed(ctx, verb, k.GroupVersionResource, namespace)
			if err != nil {
				return nil, err
			}
			if !ok {
				missing = append(missing, verb+" "+k.Resource)
			}
		}
	}
	if len(missing) == 0 {
		return []finding{{findingInfo, "rights", "this user may write all objects"}}, nil
	}
	return []finding{{findingError, "rights", "this user may not " + strings.Join(missing, ", ") + ": use one with the ClusterRole cluster-admin"}}, nil
}

// istiodSelector selects objects of istiod. Those of Moonsail have its label app, too, for tools that look for istiod.
const istiodSelector = "app=istiod," + labelName + "!=" + ourName

// checkMeshes finds other control planes.
func (o *operation) checkMeshes(ctx context.Context) ([]finding, error) {
	var out []finding
	istio, err := o.cluster.List(ctx, deployments.GroupVersionResource, "", istiodSelector)
	if err != nil {
		return nil, err
	}
	for i := range istio {
		revision := istio[i].GetLabels()[model.LabelRevision]
		if revision == "" {
			revision = model.DefaultRevision
		}
		f := finding{findingInfo, "meshes", fmt.Sprintf("Istio's revision %s is in namespace %s", revision, istio[i].GetNamespace())}
		if revision == o.Revision {
			f.Severity = findingError
			f.Message += ": both would inject the same Pods: use another --revision (docs/migrate-from-istio.md)"
		}
		out = append(out, f)
	}
	remote, err := o.checkRemoteClusters(ctx, istio)
	if err != nil {
		return nil, err
	}
	out = append(out, remote...)
	linkerd, err := o.cluster.List(ctx, deployments.GroupVersionResource, "", "linkerd.io/control-plane-component=destination")
	if err != nil {
		return nil, err
	}
	if len(linkerd) > 0 {
		out = append(out, finding{findingWarning, "meshes", "Linkerd is in namespace " + linkerd[0].GetNamespace() + ": do not enable both in a namespace"})
	}
	live, err := o.cluster.Get(ctx, deployments.GroupVersionResource, o.Namespace, nameOf(o.Revision))
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, err
	case live.GetLabels()[labelManaged] == managedByHelm:
		out = append(out, finding{findingError, "meshes", "Helm installed the control plane of revision " + o.Revision + ": use 'helm upgrade', or another --revision"})
	default:
		out = append(out, finding{findingInfo, "meshes", "a control plane of revision " + o.Revision + " is installed"})
	}
	return out, nil
}

// checkRemoteClusters finds the Secrets by which control planes of Istio read the endpoints of other clusters.
func (o *operation) checkRemoteClusters(ctx context.Context, istio []unstructured.Unstructured) ([]finding, error) {
	var out []finding
	seen := map[string]bool{}
	for i := range istio {
		ns := istio[i].GetNamespace()
		if seen[ns] {
			continue
		}
		seen[ns] = true
		list, err := o.cluster.List(ctx, secrets.GroupVersionResource, ns, model.LabelRemoteCluster+"=true")
		switch {
		case apierrors.IsForbidden(err):
			continue // the other checks need no Secrets
		case err != nil:
			return nil, err
		}
		if len(list) > 0 {
			out = append(out, finding{findingWarning, "meshes", fmt.Sprintf("Istio in namespace %s reads the endpoints of %s (Secrets with label %s): a mesh of Moonsail has one cluster, "+
				"so calls to services without endpoints in this cluster fail", ns, terminal.Count(len(list), "other cluster"), model.LabelRemoteCluster)})
		}
	}
	return out, nil
}

// nameOf returns the name of the Deployment and the Service of a revision.
func nameOf(revision string) string { return deploy.Named("moonsail", revision) }

// checkWebhooks finds webhooks of others that inject the Pods of this revision.
func (o *operation) checkWebhooks(ctx context.Context) ([]finding, error) {
	list, err := o.cluster.List(ctx, mutating.GroupVersionResource, "", "")
	if err != nil {
		return nil, err
	}
	var out []finding
	for i := range list {
		service := serviceOf(&list[i])
		if service == "" || service == o.Namespace+"/"+nameOf(o.Revision) {
			continue
		}
		if by := selectedBy(&list[i], o.Revision); by != "" {
			out = append(out, finding{findingError, "webhooks", fmt.Sprintf("%s of Service %s selects namespaces with %s, too: both would inject their Pods: use another --revision, or remove it", list[i].GetName(), service, by)})
		}
	}
	return out, nil
}

// serviceOf returns the Service of a configuration's webhooks as NAMESPACE/NAME.
func serviceOf(config *unstructured.Unstructured) string {
	hooks, _, _ := unstructured.NestedSlice(config.Object, "webhooks")
	for _, h := range hooks {
		m, _ := h.(map[string]any)
		name, _, _ := unstructured.NestedString(m, "clientConfig", "service", "name")
		namespace, _, _ := unstructured.NestedString(m, "clientConfig", "service", "namespace")
		if name != "" {
			return namespace + "/" + name
		}
	}
	return ""
}

// selectedBy returns the label of namespaces with which a configuration selects the Pods of a revision.
func selectedBy(config *unstructured.Unstructured, revision string) string {
	hooks, _, _ := unstructured.NestedSlice(config.Object, "webhooks")
	for _, h := range hooks {
		m, _ := h.(map[string]any)
		matches, _, _ := unstructured.NestedSlice(m, "namespaceSelector", "matchExpressions")
		for _, one := range matches {
			e, _ := one.(map[string]any)
			if e["operator"] != "In" {
				continue
			}
			values, _, _ := unstructured.NestedStringSlice(e, "values")
			switch {
			case e["key"] == "istio-injection" && revision == model.DefaultRevision && slices.Contains(values, "enabled"):
				return "istio-injection=enabled"
			case e["key"] == model.LabelRevision && slices.Contains(values, revision):
				return model.LabelRevision + "=" + revision
			}
		}
	}
	return ""
}

// bundleVersion is the annotation of the Gateway API's resource definitions with their version.
const bundleVersion = "gateway.networking.k8s.io/bundle-version"

// checkDefinitions compares installed resource definitions with those of the chart base.
func (o *operation) checkDefinitions(ctx context.Context) ([]finding, error) {
	want, err := deploy.Release{Chart: deploy.BaseChart, Namespace: o.Namespace}.Objects()
	if err != nil {
		return nil, err
	}
	have, err := definitionsByName(ctx, o.cluster)
	if err != nil {
		return nil, err
	}
	var out []finding
	others := 0
	for _, w := range want {
		h := have[w.GetName()]
		if w.GetKind() != definitions.name || h == nil || h.GetLabels()[labelChart] == deploy.BaseChart {
			continue
		}
		others++
		if missing := missingVersions(w, h); len(missing) > 0 {
			out = append(out, finding{findingWarning, "definitions", fmt.Sprintf("%s does not serve version %s: upgrade the installation that owns it", w.GetName(), strings.Join(missing, ", "))})
			continue
		}
		if a, b := h.GetAnnotations()[bundleVersion], w.GetAnnotations()[bundleVersion]; older(a, b) {
			out = append(out, finding{findingWarning, "definitions", fmt.Sprintf("%s is of version %s of the Gateway API, and Moonsail expects %s: the API server drops fields that it does not define: upgrade it", w.GetName(), a, b)})
		}
	}
	if others > 0 {
		out = append(out, finding{findingInfo, "definitions", fmt.Sprintf("%s of Istio and the Gateway API belong to another installation, and stay as they are", terminal.Count(others, "resource definition"))})
	}
	return out, nil
}

// older reports whether a version is older than another.
func older(a, b string) bool {
	va, errA := version.ParseGeneric(a)
	vb, errB := version.ParseGeneric(b)
	return errA == nil && errB == nil && va.LessThan(vb)
}

// missingVersions lists the versions that a definition serves and another one does not.
func missingVersions(want, have *unstructured.Unstructured) []string {
	var out []string
	served := servedVersions(have)
	for _, v := range servedVersions(want) {
		if !slices.Contains(served, v) {
			out = append(out, v)
		}
	}
	return out
}

func servedVersions(definition *unstructured.Unstructured) []string {
	var out []string
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		m, _ := v.(map[string]any)
		if name, _ := m["name"].(string); m["served"] == true {
			out = append(out, name)
		}
	}
	return out
}

const enforceLabel = "pod-security.kubernetes.io/enforce"

// hasCNIPlugin reports whether Moonsail's or Istio's CNI plugin is installed.
func (o *operation) hasCNIPlugin(ctx context.Context) (bool, error) {
	list, err := o.cluster.List(ctx, daemonSets.GroupVersionResource, "", "k8s-app in (moonsail-cni-node, istio-cni-node)")
	return len(list) > 0, err
}

// checkPodSecurity finds namespaces whose Pod Security refuses sidecars.
func (o *operation) checkPodSecurity(ctx context.Context) ([]finding, error) {
	list, err := o.cluster.List(ctx, namespaces.GroupVersionResource, "", "")
	if err != nil {
		return nil, err
	}
	plugin, err := o.hasCNIPlugin(ctx)
	if err != nil || plugin {
		return nil, err // Pods need no init container
	}
	var out []finding
	for i := range list {
		ns := &list[i]
		enforced := ns.GetLabels()[enforceLabel]
		injected := ns.GetLabels()["istio-injection"] == "enabled" && o.Revision == model.DefaultRevision || ns.GetLabels()[model.LabelRevision] == o.Revision
		if injected && (enforced == "baseline" || enforced == "restricted") {
			out = append(out, finding{findingWarning, "pod security", fmt.Sprintf("namespace %s enforces Pod Security %s, which refuses the init container of sidecars: install the CNI plugin (docs/install.md)", ns.GetName(), enforced)})
		}
	}
	return out, nil
}
