package convert

import (
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// Labels with the locality of a workload.
const (
	labelLocality    = "topology.istio.io/locality" // "region.zone.subzone", or with slashes
	labelOldLocality = "istio-locality"             // the same; it counts if there is no other
)

// LabelLocality returns the locality that labels name.
func (c *Converter) LabelLocality(at problem.Path, labels map[string]string) model.Locality {
	label := labelLocality
	if _, ok := labels[label]; !ok {
		label = labelOldLocality
	}
	locality := labels[label]
	if locality == "" {
		return model.Locality{Region: labels[model.LabelRegion], Zone: labels[model.LabelZone], Subzone: labels[model.LabelSubzone]}
	}
	if !strings.Contains(locality, "/") {
		locality = strings.ReplaceAll(locality, ".", "/") // labels cannot have slashes
	}
	return c.Locality(at.Key(label), locality)
}

// Locality reads "region/zone/subzone". A locality with more parts matches only an equal one.
func (c *Converter) Locality(at problem.Path, locality string) model.Locality {
	l := model.ParseLocality(locality)
	if err := l.Check(); err != nil {
		c.Warnf(code.InvalidFormat, at, "%v", err)
	}
	return l
}
