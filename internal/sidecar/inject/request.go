package inject

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	meshconfig "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/intercept"
)

// Owner is the object that owns a Pod, or the Pod itself.
type Owner struct {
	metav1.TypeMeta
	Namespace, Name string
}

// uri returns the owner in Istio's form.
func (o *Owner) uri() string {
	if o.Name == "" || o.APIVersion == "" || o.Kind == "" {
		return ""
	}
	return model.Owner{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name}.URI(cmp.Or(o.Namespace, "default"))
}

// OwnerOf returns the workload that a Pod belongs to: the Pod itself if it has no owner.
func OwnerOf(pod *corev1.Pod) Owner {
	o := Owner{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Namespace: pod.Namespace, Name: pod.Name}
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		if o.Name == "" {
			o.Name = strings.TrimSuffix(pod.GenerateName, "-")
		}
		return o
	}
	w := model.Owner{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name}.Workload(pod.Labels)
	o.APIVersion, o.Kind, o.Name = w.APIVersion, w.Kind, w.Name
	return o
}

// request is one injection.
type request struct {
	*Config
	pod         *corev1.Pod // before any injection
	owner       Owner
	configs     *proxyConfigs
	proxyConfig *meshconfig.ProxyConfig // merged from all sources
	settings    intercept.Settings
	native      bool
	router      bool // a gateway
	hold        bool // the application starts when the sidecar is ready
	statusPort  int
	key         string // see hookKey; empty: not known yet
}

// newRequest reads a Pod's annotations.
func (c *Config) newRequest(pod *corev1.Pod, owner Owner) (*request, error) {
	r := &request{Config: c, pod: pod, owner: owner, native: c.NativeSidecar, statusPort: defaultStatus}
	var err error
	if r.configs, err = c.proxyConfigsOf(pod); err != nil {
		return nil, err
	}
	r.proxyConfig = r.configs.all
	if r.settings, err = c.interception(pod, r.proxyConfig); err != nil {
		return nil, err
	}
	if v, ok := pod.Annotations[annotationNative]; ok {
		if r.native, err = parseBool(annotationNative, v); err != nil {
			return nil, err
		}
	}
	needed, err := r.needsAgentAtStart()
	if err != nil {
		return nil, err
	}
	r.hold = c.HoldApplication || needed
	if h := r.proxyConfig.GetHoldApplicationUntilProxyStarts(); h != nil {
		r.hold = h.GetValue()
	}
	if slices.Contains(r.templatesOf(pod), GatewayTemplate) {
		r.makeRouter()
	}
	if err := r.readStatusPort(); err != nil {
		return nil, err
	}
	r.readUser()
	if r.statusPort != defaultStatus { // the default port is always excluded
		r.settings.ExcludeInboundPorts = strings.Trim(strconv.Itoa(r.statusPort)+","+r.settings.ExcludeInboundPorts, ",")
	}
	return r, nil
}

func (r *request) readStatusPort() error {
	if p := r.proxyConfig.GetStatusPort(); p != 0 {
		r.statusPort = int(p)
	}
	text, ok := r.pod.Annotations[annotationStatusPort]
	if !ok || text == "0" {
		return nil
	}
	var err error
	r.statusPort, err = parsePort(annotationStatusPort, text)
	return err
}

// readUser reads the user of the sidecar from a container of the Pod that changes the sidecar. Its connections belong
// to that user.
func (r *request) readUser() {
	if c := sidecarOf(r.pod); c != nil {
		setUser(&r.settings, c.SecurityContext)
	}
}

func parseBool(annotation, text string) (bool, error) {
	v, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("annotation %s: invalid value %q: use true or false", annotation, text)
	}
	return v, nil
}

func parsePort(annotation, text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("annotation %s: invalid port %q: use 1 to 65535", annotation, text)
	}
	return int(n), nil
}

// status is the annotation with the names of what was injected.
type status struct {
	InitContainers   []string `json:"initContainers"`
	Containers       []string `json:"containers"`
	Volumes          []string `json:"volumes"`
	ImagePullSecrets []string `json:"imagePullSecrets"`
	Revision         string   `json:"revision"`
}

func statusOf(overlay *corev1.Pod, revision string) string {
	s := status{Revision: cmp.Or(revision, model.DefaultRevision)}
	for _, c := range overlay.Spec.InitContainers {
		s.InitContainers = append(s.InitContainers, c.Name)
	}
	for _, c := range overlay.Spec.Containers {
		s.Containers = append(s.Containers, c.Name)
	}
	for _, v := range overlay.Spec.Volumes {
		s.Volumes = append(s.Volumes, v.Name)
	}
	for _, i := range overlay.Spec.ImagePullSecrets {
		s.ImagePullSecrets = append(s.ImagePullSecrets, i.Name)
	}
	text, _ := json.Marshal(s) // cannot fail: lists of names
	return string(text)
}
