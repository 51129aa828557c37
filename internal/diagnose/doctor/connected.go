package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
)

// mostNamed bounds the proxies that a finding names.
const mostNamed = 3

// longUnacked is the time in seconds without a proxy's answer from which on there is a finding, if the proxies are not known.
const longUnacked = 10

// rejects finds proxies that refuse configuration now. Counters have refusals of the past, too.
func (p *plane) rejects() verdict {
	const metric = "pilot_total_xds_rejects"
	var counted []string
	if p.now.Has(metric) {
		counted = listed(metric, "type", p.counted.By(metric, "type"), 0)
	}
	if len(counted) > 0 {
		counted = append(counted, p.subject.Seen)
	}
	var refusing []*ConnectedProxy
	if p.connected != nil {
		refusing = p.connected.find((*ConnectedProxy).refuses)
	}
	const what = "Envoys refuse configuration, and keep the previous one"
	switch {
	case len(refusing) > 0:
		return checked(Finding{
			Severity: Critical, What: what, Evidence: append(named(refusing, p.connected.refusals), counted...),
			Advice: []string{
				"see all refused resources and Envoy's messages with 'moonsail proxies " + model.CommandWord(refusing[0].Name, "PROXY") + "'; see what one object causes with 'moonsail explain OBJECT'",
				"list these proxies with 'moonsail proxies --status nacked'",
			},
		})
	case len(counted) == 0:
		return checked()
	case p.connected != nil:
		return checked(Finding{
			Severity: Past, What: "Envoys refused configuration earlier; no connected Envoy refuses any now", Evidence: counted,
			Advice: []string{"find the change, if it is recent, with 'moonsail changes'"},
		})
	case p.istiod():
		return checked(Finding{
			Severity: Critical, What: what, Evidence: counted, Advice: []string{
				"find the proxy and Envoy's message in istiod's log (\"ADS:… REJECT\"), or with 'istioctl proxy-status'",
				"use --over 1m to leave out earlier refusals: istiod only counts them",
			},
		})
	}
	return checked(Finding{
		Severity: Critical, What: what, Evidence: append(counted, p.unseen()...),
		Advice: []string{"find the proxy with 'moonsail proxies', and Envoy's message and the object with 'moonsail proxies NAME'"},
	})
}

// translation finds resources that cannot be translated now.
func (p *plane) translation() verdict {
	if p.connected == nil {
		return nothing
	}
	list := p.connected.Untranslated
	if len(list) == 0 {
		return checked()
	}
	var evidence []string
	for _, u := range list[:min(len(list), mostNamed)] {
		evidence = append(evidence, fmt.Sprintf("%s %s of %s: %s", u.Type, u.Name, u.Group, u.Error))
	}
	if more := len(list) - mostNamed; more > 0 {
		evidence = append(evidence, fmt.Sprintf("and %d more", more))
	}
	return checked(Finding{
		Severity: Warning, What: "resources cannot be translated: proxies keep an earlier version, or lack a part", Evidence: evidence,
		Advice: []string{"correct the object that the error names; 'moonsail analyze' reports most of these errors before an object is applied"},
	})
}

// behind finds proxies that have not had a change for longer than users notice.
func (p *plane) behind() verdict {
	const what = "proxies do not have the current configuration"
	switch {
	case p.istiod():
		return nothing
	case p.connected == nil:
		s := p.now.Sum("moonsail_oldest_unacked_seconds")
		if s <= longUnacked {
			return p.unlessSeen()
		}
		return checked(Finding{
			Severity: Critical, What: what, Evidence: append([]string{"moonsail_oldest_unacked_seconds " + seconds(s)}, p.unseen()...),
			Advice: []string{"find late proxies with 'moonsail proxies', and the reasons for one object with 'moonsail explain OBJECT'"},
		})
	}
	late := p.connected.find(func(s *ConnectedProxy) bool {
		return s.Behind && (s.BehindSince.IsZero() || p.connected.Now.Sub(s.BehindSince).Seconds() >= feltFrom)
	})
	if len(late) == 0 {
		return checked()
	}
	return checked(Finding{
		Severity: Critical, What: what, Evidence: named(late, p.connected.lack),
		Advice: []string{
			"see what a proxy waits for with 'moonsail proxies " + model.CommandWord(late[0].Name, "PROXY") + "'; one that does not answer may be stopped, or lack CPU or memory",
			"list these proxies with 'moonsail proxies --status behind', and follow them with --watch",
		},
	})
}

// reconnected is the time in seconds within which healthy proxies connect again.
const reconnected = 10

// disconnected finds proxies without a stream whose Pods or endpoints exist.
func (p *plane) disconnected() verdict {
	if p.connected == nil {
		return nothing
	}
	var evidence []string
	var first string
	list := slices.Clone(p.connected.Disconnected)
	slices.SortStableFunc(list, func(a, b DisconnectedProxy) int { return a.Since.Compare(b.Since) })
	list = slices.DeleteFunc(list, func(d DisconnectedProxy) bool { return p.connected.Now.Sub(d.Since).Seconds() < reconnected })
	for i := range list[:min(len(list), mostNamed)] {
		d := &list[i]
		first = cmp.Or(first, d.Name)
		evidence = append(evidence, fmt.Sprintf("%s: disconnected%s, since %s; it had revision %d", d.Name, p.connected.duration(d.Since), d.Since.Local().Format("15:04:05"), d.Settled))
	}
	if len(list) == 0 {
		return checked()
	}
	return checked(Finding{
		Severity: Critical, What: "sidecars are disconnected, while their Pods or endpoints exist", Evidence: appendMore(evidence, len(list)-mostNamed),
		Advice: []string{
			"see what a proxy lacks with 'moonsail proxies " + first + "'; it may be stopped, lack CPU or memory, or not reach the control plane: calls of it may hang",
			"list these proxies with 'moonsail proxies --status disconnected'",
		},
	})
}

// unlessSeen is the verdict of a check that found nothing in the metrics.
func (p *plane) unlessSeen() verdict {
	if p.noConnected == "" {
		return checked()
	}
	return checked(Finding{
		Severity: Unknown, What: "unknown which proxies are behind, or refuse configuration", Evidence: p.unseen(),
		Advice: []string{"use credentials that may read the control plane's debug pages, for example --token-file"},
	})
}

// unseen is the reason for which the state of proxies is not known, if there is one.
func (p *plane) unseen() []string {
	if p.noConnected == "" {
		return nil
	}
	return []string{"the proxies are not known: " + p.noConnected}
}

func (p *plane) staleEndpoints() verdict {
	if p.istiod() {
		return checked(Finding{
			Severity: Unknown, What: "unknown which proxies still have endpoints that are gone",
			Evidence: []string{"istiod does not track what proxies have"},
			Advice:   []string{"examine sidecars, too (--sidecar), to find endpoints that refuse all connections; Moonsail tracks it ('moonsail stale', moonsail_stale_proxies)"},
		})
	}
	var evidence []string
	if p.connected != nil && p.connected.Stale != nil {
		evidence = p.connected.holders()
	} else if n := p.now.Sum("moonsail_stale_proxies"); n > 0 {
		evidence = []string{fmt.Sprintf("moonsail_stale_proxies %.0f", n)}
	}
	if len(evidence) == 0 {
		return checked()
	}
	return checked(Finding{
		Severity: Critical, What: "proxies may call endpoints that are gone", Evidence: evidence,
		Advice: []string{"list these proxies, and why they hold the endpoints, with 'moonsail stale'"},
	})
}

// find returns the proxies for which the function is true, those that are behind for the longest time first.
func (c *Connected) find(which func(*ConnectedProxy) bool) (out []*ConnectedProxy) {
	for i := range c.Proxies {
		if which(&c.Proxies[i]) {
			out = append(out, &c.Proxies[i])
		}
	}
	slices.SortStableFunc(out, func(a, b *ConnectedProxy) int { return a.BehindSince.Compare(b.BehindSince) })
	return out
}

// named describes the first proxies of a list.
func named(list []*ConnectedProxy, describe func(*ConnectedProxy) string) (out []string) {
	for _, p := range list[:min(len(list), mostNamed)] {
		out = append(out, p.Name+": "+describe(p))
	}
	return appendMore(out, len(list)-mostNamed)
}

func appendMore(list []string, more int) []string {
	switch {
	case more > 1:
		return append(list, fmt.Sprintf("and %d more proxies", more))
	case more == 1:
		return append(list, "and 1 more proxy")
	}
	return list
}

// refusals describes what a proxy refuses: the first resource of each type.
func (c *Connected) refusals(p *ConnectedProxy) string {
	var parts []string
	for i := range p.Types {
		t := &p.Types[i]
		if len(t.Refused) == 0 {
			continue
		}
		first, since := &t.Refused[0], time.Time{}
		for j := range t.Refused {
			if at := t.Refused[j].Since; since.IsZero() || !at.IsZero() && at.Before(since) {
				since = at
			}
		}
		text := fmt.Sprintf("%s%s, %s", t.Type, c.duration(since), first.Name)
		if more := len(t.Refused) - 1; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		text += ": " + first.Message
		if first.By != "" {
			text += ", " + first.By
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// lack describes how far a proxy is behind, and by which types.
func (c *Connected) lack(p *ConnectedProxy) string {
	parts := []string{"behind" + cmp.Or(c.duration(p.BehindSince), " for longer than the control plane remembers")}
	for i := range p.Types {
		switch t := &p.Types[i]; {
		case !t.UnansweredSince.IsZero():
			parts = append(parts, t.Type+" is not answered"+c.duration(t.UnansweredSince))
		case t.Waits != "":
			parts = append(parts, t.Type+" waits for "+t.Waits)
		}
	}
	if p.Unread {
		parts = append(parts, "it does not read its stream")
	}
	return strings.Join(parts, "; ")
}

// holders describes the first proxies that hold removed endpoints, with the endpoint that is gone for the longest time.
func (c *Connected) holders() (out []string) {
	seen := map[string]bool{}
	for _, h := range c.Stale.Late() {
		if seen[h.ID] {
			continue
		}
		if seen[h.ID] = true; len(seen) <= mostNamed {
			out = append(out, describeHolder(&h, c.Stale.Now))
		}
	}
	return appendMore(out, len(seen)-mostNamed)
}

func describeHolder(h *explain.StaleHolder, now time.Time) string {
	return fmt.Sprintf("%s.%s: %s of %s, gone for %s", h.Name, h.Namespace, h.Address, h.Cluster, seconds(now.Sub(h.Since).Seconds()))
}

// duration returns " for 12s"; empty: the beginning is not known.
func (c *Connected) duration(since time.Time) string {
	if since.IsZero() {
		return ""
	}
	return " for " + seconds(max(0, c.Now.Sub(since).Seconds()))
}
