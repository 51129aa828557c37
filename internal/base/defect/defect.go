// Package defect has faults that tests plant on purpose, to show that the checks of the mesh find them.
//
// Only programs and tests that are built with the tag "defects" have them. Without the tag On is always false, and the
// compiler removes the code of each defect. With it, one defect at most is planted: the one that the environment variable
// MOONSAIL_DEFECT names, or that a test passes to Plant.
//
// To add a defect, add a row to All, ask On at the place of the fault, and add it to the tests that must find it.
package defect

// Defect is the name of a planted fault.
type Defect string

// The defects.
const (
	// LostWakeup: streams are not woken for every fourth revision.
	LostWakeup Defect = "lost-wakeup"
	// EarlyRemoval: clusters are removed before what refers to them is replaced.
	EarlyRemoval Defect = "early-removal"
	// StaleEndpoints: a proxy that connects again keeps its old endpoints.
	StaleEndpoints Defect = "stale-endpoints"
	// BlockingNACK: the accepted resources of a refused response are not sent again.
	BlockingNACK Defect = "blocking-nack"
	// Resurrection: an object that is deleted right after a change stays.
	Resurrection Defect = "resurrection"
	// PolicyGap: a proxy group that is opened has no authorization until its listeners change.
	PolicyGap Defect = "policy-gap"
	// StreamLeak: the proxy groups of streams that ended are kept.
	StreamLeak Defect = "stream-leak"
	// WrongVersion: a proxy that connects again keeps what it has in any version, except endpoints.
	WrongVersion Defect = "wrong-version"
	// EarlyACK: a revision counts as ACKed when it was sent.
	EarlyACK Defect = "early-ack"
	// EarlyRoutes: listeners and routes do not wait for new clusters.
	EarlyRoutes Defect = "early-routes"
)

// All are the defects that can be planted.
var All = []Defect{
	LostWakeup, EarlyRemoval, StaleEndpoints, BlockingNACK, Resurrection, PolicyGap, StreamLeak, WrongVersion, EarlyACK, EarlyRoutes,
}
