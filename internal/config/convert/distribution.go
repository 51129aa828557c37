package convert

import (
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// annotationDistribution counts where a Service's trafficDistribution does not, as in Istio.
const annotationDistribution = "networking.istio.io/traffic-distribution"

// distributions are by what they are called, in lower case.
var distributions = map[string]model.Distribution{
	"preferclose":    model.DistributeSameZone, // Kubernetes' older name
	"prefersamezone": model.DistributeSameZone,
	"prefersamenode": model.DistributeSameNode,
}

// AnnotatedDistribution is the value of an annotation.
func (c *Converter) AnnotatedDistribution(annotations map[string]string) model.Distribution {
	return c.Distribution(problem.Path("metadata").Field("annotations").Key(annotationDistribution), annotations[annotationDistribution])
}

// Distribution reads letters of any case, as Istio does.
func (c *Converter) Distribution(at problem.Path, value string) model.Distribution {
	d := distributions[strings.ToLower(value)]
	if d == model.DistributionUnset && value != "" {
		c.Warnf(code.UnknownValue, at, "%q is not known and has no effect; use PreferSameZone (or PreferClose, its older name) or PreferSameNode", value)
	}
	return d
}
