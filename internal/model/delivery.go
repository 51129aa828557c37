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
	// DeliverAuto is full for sidecars that see few services, else on demand.
	DeliverAuto Delivery = "auto"
)

// OnDemandFrom is the default of Mesh.OnDemandFrom. From there on full configuration takes more than 25 MB of each Envoy.
const OnDemandFrom = 500

// Deliveries are the values of AnnotationOutbound.
var Deliveries = []string{string(DeliverFull), string(DeliverOnDemand), string(DeliverAuto)}
