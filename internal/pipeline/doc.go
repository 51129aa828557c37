// Package pipeline is the way of a change, from an event of a source to the tables that xds/server
// sends from. Each stage is a package. Data flows downwards:
//
//	store        events of sources -> immutable tables of objects; a batch makes a Revision and a Snapshot
//	  autoaddress  addresses for hosts of ServiceEntries that have none; pure
//	derive       a Snapshot and what changed in it -> what each proxy group sees, as ir values; pure
//	ir           the values between derive and translate, such as clusters, listeners and routes
//	translate    ir values -> Envoy's protos; pure
//	envoyfilter  EnvoyFilters, applied to these protos; pure
//	engine       runs the stages in one goroutine, and gives each stream its tables
//	changelog    follows each revision through all stages to the last ACK, as a log and as metrics
//
// The revision goes through every stage, so an ACK leads back to the objects and events that caused it.
// Start reading at engine.Run.
//
// The stages up to translate do no I/O and know no clock. Envoy's types begin in translate: derive decides,
// translate spells out.
package pipeline
