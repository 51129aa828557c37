package analyze

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/model"
)

// destination checks that a destination exists: host, port and subset.
func (c destinationChecks) destination(o model.Object, field string, d model.Destination) {
	ns := o.Metadata().Namespace
	services, hidden := c.find(d.Host, ns)
	if len(services) == 0 {
		c.missing(problem.SeverityError, o, field+".host", d.Host, hidden, "")
		return
	}
	c.destinationPort(o, field, d, services[0])
	if d.Subset != "" {
		c.destinationSubset(o, field, d)
	}
}

// missing reports a host that no service has, with the consequence before the reason. hidden: there are services that the
// object may not see.
func (c destinationChecks) missing(s problem.Severity, o model.Object, field string, h model.Host, hidden bool, consequence string) {
	ns := o.Metadata().Namespace
	if c.brokenService(h) {
		return
	}
	if !hidden && c.serviceElsewhere(h) && c.similarHost(h, ns) == "" {
		c.hostElsewhere(o.Metadata().Key, field, h)
		return
	}
	id := code.HostNotFound
	if hidden {
		id = code.HostNotExported
	}
	c.add(id, s, o, field, "%s%s", consequence, c.noHost(h, ns, hidden))
}

// similarHost is the service that was probably meant: with the host as a name without domain, or with a similar name.
func (c destinationChecks) similarHost(h model.Host, ns string) model.Host {
	if full := model.Host(string(h) + ".svc." + c.domain); c.byHost[full] != nil {
		return full
	}
	return model.Host(c.nearHost(h, ns))
}

// noHost is the message that a host does not exist, with the one that may have been meant.
func (c destinationChecks) noHost(h model.Host, ns string, hidden bool) string {
	if hidden {
		return fmt.Sprintf("service %s: not exported to namespace %s: add the namespace to the service's exportTo", h, ns)
	}
	subject := fmt.Sprintf("service %s: not found", h)
	if full := model.Host(string(h) + ".svc." + c.domain); c.byHost[full] != nil {
		return fmt.Sprintf("%s, as short names with a namespace are not resolved: write %s", subject, full)
	}
	if near := c.nearHost(h, ns); near != "" {
		return fmt.Sprintf("%s: did you mean %s?", subject, near)
	}
	return subject + ": create a Service or ServiceEntry for it, or correct the host"
}

// nearHost is the service whose name is like h's, in h's namespace first: a service of
// the same name elsewhere is what was meant as often as one with another name.
func (c destinationChecks) nearHost(h model.Host, ns string) string {
	name, rest, _ := strings.Cut(string(h), ".")
	var near, same []string
	for _, host := range c.hosts(ns) {
		n, r, _ := strings.Cut(host, ".")
		switch {
		case r == rest:
			near = append(near, n)
		case n == name:
			same = append(same, host)
		}
	}
	if n := spelling.Nearest(name, near); n != "" {
		return n + "." + rest
	}
	if len(same) > 0 {
		return same[0]
	}
	if _, inCluster := c.namespaceOf(h); inCluster {
		return "" // names of two services of different namespaces are not similar because their domains are
	}
	return spelling.Nearest(string(h), c.hosts(ns))
}

func (c destinationChecks) destinationPort(o model.Object, field string, d model.Destination, s *model.Service) {
	switch {
	case d.Port != 0 && s.Port(d.Port) == nil:
		c.errorf(code.PortNotFound, o, field+".port.number", "%s has no port %d; it has %s", s.Hostname, d.Port, ports(s))
	case d.Port == 0 && len(s.Ports) > 1:
		c.warnf(code.PortAmbiguous, o, field+".port", "%s has the ports %s, and requests go to the one that the client called; name a port", s.Hostname, ports(s))
	}
}

func ports(s *model.Service) string {
	out := make([]string, len(s.Ports))
	for i, p := range s.Ports {
		out[i] = strconv.Itoa(int(p.Number))
	}
	return strings.Join(out, ", ")
}

func (c destinationChecks) destinationSubset(o model.Object, field string, d model.Destination) {
	var names []string
	rules := c.rulesFor(d.Host, o.Metadata().Namespace)
	for _, r := range rules {
		for _, s := range r.Subsets {
			if s.Name == d.Subset {
				return
			}
			names = append(names, s.Name)
		}
	}
	field += ".subset"
	switch near := spelling.Nearest(d.Subset, names); {
	case near != "":
		c.errorf(code.SubsetNotFound, o, field, "%s has no subset %q; did you mean %q?", d.Host, d.Subset, near)
	case c.brokenRule(rules, d.Host, o.Metadata().Namespace): // its error comes first
	case len(names) > 0:
		c.errorf(code.SubsetNotFound, o, field, "%s has no subset %q; it has %s", d.Host, d.Subset, strings.Join(names, ", "))
	default:
		c.errorf(code.SubsetNotFound, o, field, "%s has no subsets; write a DestinationRule for it that defines %q", d.Host, d.Subset)
	}
}

// brokenRule reports whether an error may hide subsets of a host: an error of one of its DestinationRules, or of a rule that could
// not be read, so that its host is not known, in a namespace where rules for the host usually are.
func (c destinationChecks) brokenRule(known []*model.DestinationRule, h model.Host, ns string) bool {
	if slices.ContainsFunc(known, func(r *model.DestinationRule) bool { return c.broken[r.Key] }) {
		return true
	}
	if len(c.broken) == 0 {
		return false
	}
	usable := map[model.Key]bool{}
	for _, rules := range c.rules {
		for _, r := range rules {
			usable[r.Key] = true
		}
	}
	home, _ := c.namespaceOf(h)
	for k := range c.broken {
		if k.Kind == model.KindDestinationRule && !usable[k] && slices.Contains([]string{ns, home, c.security.root}, k.Namespace) {
			return true
		}
	}
	return false
}
