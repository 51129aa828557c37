package deploy

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/strvals"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// charts holds the Helm charts. They are the only source of the objects that are installed.
//
//go:embed all:charts
var charts embed.FS

// Names of the charts.
const (
	BaseChart         = "base"     // resource definitions and roles, one per cluster
	ControlPlaneChart = "moonsail" // a control plane
	GatewayChart      = "gateway"  // a gateway for Gateways of Istio
	CNIChart          = "cni"      // the CNI plugin, one per cluster
)

// KubeVersion is the version of Kubernetes for which charts are rendered without a cluster.
const KubeVersion = "v1.36.0"

// DefaultNamespace is the namespace of control planes.
const DefaultNamespace = "istio-system"

// Release is how to render a chart, as a release of Helm.
type Release struct {
	Chart       string
	Name        string // default: the chart's name
	Namespace   string
	KubeVersion string         // of the cluster; default: KubeVersion
	Values      map[string]any // over those of the chart
	Upgrade     bool           // a version of the release is installed
}

// Rendered is a file that a template made.
type Rendered struct {
	Name string // of the template, for example rbac.yaml
	Text []byte
}

// Render renders the templates of a chart, sorted by name. Files without an object are left out.
func (r Release) Render() ([]Rendered, error) {
	c, err := loadChart(r.Chart)
	if err != nil {
		return nil, err
	}
	values, err := r.values(c)
	if err != nil {
		return nil, err
	}
	texts, err := engine.Render(c, values)
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", r.Chart, err)
	}
	var out []Rendered
	for name, text := range texts {
		if path.Ext(name) != ".yaml" {
			continue
		}
		if text := withoutEmpty([]byte(text)); len(text) > 0 {
			out = append(out, Rendered{path.Base(name), text})
		}
	}
	slices.SortFunc(out, func(a, b Rendered) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Objects renders the chart's objects, in the order in which they must be applied.
func (r Release) Objects() ([]*unstructured.Unstructured, error) {
	files, err := r.Render()
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, f := range files {
		list, err := Decode(f.Text)
		if err != nil {
			return nil, fmt.Errorf("chart %s: %s: %w", r.Chart, f.Name, err)
		}
		out = append(out, list...)
	}
	SortForInstall(out)
	return out, nil
}

// values returns what templates see, after a check against the chart's schema.
func (r Release) values(c *chart.Chart) (chartutil.Values, error) {
	name, version := r.Name, r.KubeVersion
	if name == "" {
		name = r.Chart
	}
	if version == "" {
		version = KubeVersion
	}
	kube, err := chartutil.ParseKubeVersion(version)
	if err != nil {
		return nil, fmt.Errorf("version %q of Kubernetes: %w", version, err)
	}
	if !chartutil.IsCompatibleRange(c.Metadata.KubeVersion, kube.Version) {
		return nil, fmt.Errorf("chart %s: Kubernetes %s is not supported: use a version %s", r.Chart, kube.Version, c.Metadata.KubeVersion)
	}
	caps := chartutil.DefaultCapabilities.Copy()
	caps.KubeVersion = *kube
	values, err := chartutil.ToRenderValues(c, r.Values, chartutil.ReleaseOptions{
		Name: name, Namespace: r.Namespace, Revision: 1, IsInstall: !r.Upgrade, IsUpgrade: r.Upgrade,
	}, caps)
	if err != nil {
		return nil, wrongValues(err)
	}
	return values, nil
}

// schemaPrefix begins Helm's message about values that a schema refuses.
const schemaPrefix = "values don't meet the specifications of the schema(s) in the following chart(s):\n"

// wrongValues shortens Helm's message: one line for each value.
func wrongValues(err error) error {
	text, ok := strings.CutPrefix(err.Error(), schemaPrefix)
	if !ok {
		return err
	}
	chartName, text, _ := strings.Cut(text, ":\n")
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "- "))
	}
	return fmt.Errorf("invalid values of the chart %s: %s: see %s/%s/values.yaml", chartName, strings.Join(lines, "; "), "deploy/charts", chartName)
}

// loadChart loads an embedded chart.
func loadChart(name string) (*chart.Chart, error) {
	root := path.Join("charts", name)
	var files []*loader.BufferedFile
	err := fs.WalkDir(charts, root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := charts.ReadFile(file)
		files = append(files, &loader.BufferedFile{Name: strings.TrimPrefix(file, root+"/"), Data: data})
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("unknown chart %q: use %s, %s, %s or %s", name, BaseChart, ControlPlaneChart, GatewayChart, CNIChart)
	}
	if err != nil {
		return nil, err
	}
	return loader.LoadFiles(files)
}

// Values merges values from YAML files and from settings as of Helm's --set, in this order of precedence, lowest first.
func Values(files [][]byte, set []string) (map[string]any, error) {
	out := map[string]any{}
	for _, text := range files {
		more := map[string]any{}
		if err := yaml.Unmarshal(text, &more); err != nil {
			return nil, fmt.Errorf("values: %w", err)
		}
		out = chartutil.CoalesceTables(more, out)
	}
	for _, s := range set {
		if err := strvals.ParseInto(s, out); err != nil {
			return nil, fmt.Errorf("--set %s: %w: write NAME=VALUE, for example replicaCount=3", s, err)
		}
	}
	return out, nil
}

// MergeValues merges values; those of over take precedence.
func MergeValues(over, under map[string]any) map[string]any {
	return chartutil.CoalesceTables(chartutil.Values(over).AsMap(), under)
}

// SplitValues returns the values of the chart base and those of the chart moonsail. The two have different names, but
// for global. A name that neither has goes to the chart moonsail, whose schema refuses it.
func SplitValues(values map[string]any) (base, controlPlane map[string]any, err error) {
	c, err := loadChart(BaseChart)
	if err != nil {
		return nil, nil, err
	}
	base, controlPlane = map[string]any{}, map[string]any{}
	for name, v := range values {
		if _, ok := c.Values[name]; ok {
			base[name] = v
		} else {
			controlPlane[name] = v
		}
	}
	return base, controlPlane, nil
}

const separator = "\n---\n"

// withoutEmpty removes documents that have no object.
func withoutEmpty(text []byte) []byte {
	var out [][]byte
	for doc := range bytes.SplitSeq(append([]byte("\n"), text...), []byte(separator)) {
		if doc = bytes.TrimSpace(doc); !onlyComments(doc) {
			out = append(out, doc)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return append(bytes.Join(out, []byte(separator)), '\n')
}

func onlyComments(doc []byte) bool {
	for line := range bytes.SplitSeq(doc, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// Decode decodes the objects of a YAML text.
func Decode(text []byte) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for doc := range bytes.SplitSeq(append([]byte("\n"), text...), []byte(separator)) {
		if onlyComments(doc) {
			continue
		}
		text, err := yaml.YAMLToJSON(doc)
		if err != nil {
			return nil, err
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(text); err != nil { // whole numbers as int64
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}
