package model

// AnnotationOutbound is the annotation of a Pod or Namespace with a Delivery.
const AnnotationOutbound = "moonsail.dev/outbound"

// Delivery is how sidecars get the clusters of services.
type Delivery string

// The deliveries.
const (
	// DeliverFull sends all clusters that the sidecar may call.
	DeliverFull Delivery = "full"
	// DeliverOnDemand sends most clusters when the application calls them for the first time.
	DeliverOnDemand Delivery = "on-demand"
)

// Deliveries are the values of AnnotationOutbound.
var Deliveries = []string{string(DeliverFull), string(DeliverOnDemand)}
