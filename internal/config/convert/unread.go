package convert

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
)

// Unread is an annotation or label of Istio without effect. test/arch checks that these and those that are read are all of
// Istio's API, and writes both to the reference.
type Unread struct {
	Why string
	// Written: Istio writes it, so that users need no warning.
	Written bool
	// Holds is a value that asks for what holds anyway; empty: none.
	Holds string
}

const (
	noAmbient    = "ambient mode is not supported"
	oneCluster   = "the mesh has one cluster"
	oneNetwork   = "the mesh has one network"
	noOperator   = "Istio's operator writes it"
	noEnrollment = "istiod writes it for workloads that register themselves"
)

// UnreadAnnotations are annotations without effect.
var UnreadAnnotations = map[string]Unread{
	"ambient.istio.io/bypass-inbound-capture":            {Why: noAmbient},
	"ambient.istio.io/dns-capture":                       {Why: noAmbient},
	"ambient.istio.io/redirection":                       {Why: noAmbient, Written: true},
	"ambient.istio.io/waypoint-inbound-binding":          {Why: noAmbient},
	"istio.io/autoRegistrationGroup":                     {Why: noEnrollment, Written: true},
	"istio.io/connectedAt":                               {Why: noEnrollment, Written: true},
	"istio.io/disconnectedAt":                            {Why: noEnrollment, Written: true},
	"istio.io/use-waypoint-canary-weight":                {Why: noAmbient},
	"istio.io/workloadController":                        {Why: noEnrollment, Written: true},
	"readiness.status.sidecar.istio.io/applicationPorts": {Why: "the sidecar is ready when Envoy is, as in Istio"},
	"topology.istio.io/controlPlaneClusters":             {Why: oneCluster},
	"traffic.istio.io/nodeSelector":                      {Why: oneNetwork},
}

// UnreadLabels are labels without effect.
var UnreadLabels = map[string]Unread{
	"istio.io/dataplane-mode":                {Why: noAmbient + ", so workloads need injected sidecars", Holds: "none"},
	"istio.io/ingress-use-waypoint":          {Why: noAmbient, Holds: "false"},
	"istio.io/use-waypoint":                  {Why: noAmbient + ", so policies of the waypoint do not apply", Holds: "none"},
	"istio.io/use-waypoint-canary":           {Why: noAmbient, Holds: "none"},
	"istio.io/use-waypoint-canary-namespace": {Why: noAmbient},
	"istio.io/use-waypoint-namespace":        {Why: noAmbient},
	"istio.io/waypoint-for":                  {Why: noAmbient, Holds: "none"},
	"networking.istio.io/gatewayPort":        {Why: oneNetwork},
	"operator.istio.io/component":            {Why: noOperator, Written: true},
	"operator.istio.io/managed":              {Why: noOperator, Written: true},
	"operator.istio.io/version":              {Why: noOperator, Written: true},
}

// unread reports annotations and labels without effect.
func (c *Converter) unread(o *metav1.ObjectMeta) {
	c.unreadAmong("metadata.annotations", o.Annotations, UnreadAnnotations)
	c.unreadAmong("metadata.labels", o.Labels, UnreadLabels)
}

func (c *Converter) unreadAmong(at problem.Path, have map[string]string, table map[string]Unread) {
	var found []string
	for name, value := range have {
		if u, ok := table[name]; ok && !u.Written && (u.Holds == "" || value != u.Holds) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	for _, name := range found {
		c.Warnf(code.NotSupported, at.Key(name), "has no effect: %s; remove it", table[name].Why)
	}
}
