package status

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/config/istio"
)

// current is a current status. Parts of other writers are kept.
type current struct {
	conditions []map[string]any
	messages   []map[string]any
	// addresses are a ServiceEntry's valid addresses, in order. junk is set if there are others.
	addresses []address
	junk      bool
}

// parse reads a status. A status that is not in Istio's form counts as empty.
func parse(raw json.RawMessage) current {
	var s struct {
		Conditions []map[string]any `json:"conditions"`
		Messages   []map[string]any `json:"validationMessages"`
		Addresses  []address        `json:"addresses"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil {
		return current{}
	}
	out := current{conditions: s.Conditions, messages: s.Messages}
	for _, a := range s.Addresses {
		if one, ok := istio.AssignedAddress(a.Host, a.Value); ok {
			out.addresses = append(out.addresses, addressOf(one.Host, one.Address))
		} else {
			out.junk = true
		}
	}
	slices.SortFunc(out.addresses, address.compare)
	return out
}

// reconciled returns the condition; nil: there is none.
func (c *current) reconciled() map[string]any {
	for _, cond := range c.conditions {
		if cond["type"] == Reconciled {
			return cond
		}
	}
	return nil
}

// refused reports whether the status has a refusal by proxies.
func (c *current) refused() bool {
	cond := c.reconciled()
	return cond != nil && cond["reason"] == ReasonRefused
}

// generation is the one that the condition is about; -1: there is none.
func (c *current) generation() int64 {
	n, ok := c.reconciled()["observedGeneration"].(float64)
	if !ok {
		return -1
	}
	return int64(n)
}

// touched reports whether the status has a part of ours.
func (c *current) touched() bool {
	return c.reconciled() != nil || slices.ContainsFunc(c.messages, isOurs)
}

func isOurs(m map[string]any) bool {
	typ, _ := m["type"].(map[string]any)
	name, _ := typ["name"].(string)
	return ours(name)
}

// isUpToDate reports whether the status is as it should be.
func (c *current) isUpToDate(v *verdict, generation int64) bool {
	cond := c.reconciled()
	if cond == nil {
		return v.silent() && !c.touched()
	}
	text, _ := cond["message"].(string)
	return cond["status"] == truth(v.ok) && cond["reason"] == v.reason && text == v.message &&
		c.generation() == generation && c.saysMessages(v.messages)
}

func (c *current) saysMessages(want []message) bool {
	var have []message
	for _, m := range c.messages {
		if isOurs(m) {
			have = append(have, messageOf(m))
		}
	}
	return slices.Equal(have, want)
}

func messageOf(m map[string]any) message {
	typ, _ := m["type"].(map[string]any)
	var out message
	out.name, _ = typ["name"].(string)
	out.code, _ = typ["code"].(string)
	out.url, _ = m["documentationUrl"].(string)
	out.level, _ = m["level"].(string)
	return out
}

func (m message) document() map[string]any {
	out := map[string]any{"type": map[string]any{"name": m.name, "code": m.code}, "level": m.level}
	if m.url != "" {
		out["documentationUrl"] = m.url
	}
	return out
}

// judged puts a verdict into a merge patch of the status.
func (c *current) judged(status map[string]any, v *verdict, generation int64, now time.Time) {
	cond := map[string]any{
		"type": Reconciled, "status": truth(v.ok), "reason": v.reason, "message": v.message, "observedGeneration": generation,
		"lastTransitionTime": now.UTC().Format(time.RFC3339),
	}
	var conditions []map[string]any
	for _, old := range c.conditions {
		if old["type"] != Reconciled {
			conditions = append(conditions, maps.Clone(old))
		} else if since, ok := old["lastTransitionTime"]; ok && old["status"] == cond["status"] {
			cond["lastTransitionTime"] = since
		}
	}
	messages := slices.DeleteFunc(slices.Clone(c.messages), isOurs)
	for _, m := range v.messages {
		messages = append(messages, m.document())
	}
	status["conditions"], status["validationMessages"] = append(conditions, cond), nil
	if len(messages) > 0 {
		status["validationMessages"] = messages
	}
}

func truth(ok bool) string {
	if ok {
		return "True"
	}
	return "False"
}
