package compare

import "slices"

// Deliberate is a difference between Istio and Moonsail that is on purpose.
type Deliberate struct {
	Reason string `json:"reason"`
	Page   string `json:"page"` // of the documentation
}

// known has the differences on purpose. A change is known if its property and both its texts fit.
var known = []struct {
	matches func(Change) bool
	Deliberate
}{}

// onPurpose returns why all changes of a call are on purpose; nil: some are not.
func onPurpose(changes []Change) *Deliberate {
	var out *Deliberate
	for _, c := range changes {
		i := slices.IndexFunc(known, func(k struct {
			matches func(Change) bool
			Deliberate
		}) bool {
			return k.matches(c)
		})
		if i < 0 {
			return nil
		}
		if out == nil {
			out = &known[i].Deliberate
		}
	}
	return out
}
