// Package gatewaydeploy deploys the Gateways of the Gateway API: each gets a Deployment of routers, a Service, a
// ServiceAccount and, if they are configured, a HorizontalPodAutoscaler and a PodDisruptionBudget.
//
//	watches -> queue of Gateways -> reconcile: read -> plan -> render -> overlay -> apply, delete what is left over
//
// Names, labels and annotations are those of Istio's gateway deployment controller.
//
// Files:
//
//	controller.go  runs the parts; queue and retries
//	watch.go       watches that queue Gateways; inventory.go: which objects belong to which Gateway
//	reconcile.go   one Gateway: what it should have, and what to do about it
//	plan.go        names, labels and ports of a Gateway; metadata.go: what its author may set; parameters.go: ConfigMaps that change
//	               its objects, and parameterwatches.go: their watches; listenerset.go: ports of ListenerSets, and what else of the store concerns a Gateway
//	render.go      the objects; overlay.go: changes to them
//	apply.go       writes, and refuses to write objects of others
//
// Invariants:
//   - Only the leader of the statuses runs it: its conflicts are part of the Gateway's status.
//   - An object is written or deleted only if it has the label gateway.istio.io/managed and is owned by the Gateway. The
//     Gateway owns each object, so that Kubernetes deletes them with it.
//   - Watches only queue. A reconciliation reads the Gateway and its objects from the API server, so that an old event
//     cannot write old content. Deletions use what watches saw; their preconditions fail if it is old.
//   - The queue has a Gateway at most once. Retries back off exponentially, from 200 ms to 1 min.
//   - A panic is the error of one Gateway: its status reports it, moonsail_panics_total counts it, and the others are deployed.
package gatewaydeploy
