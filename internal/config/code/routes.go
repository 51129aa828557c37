package code

const serviceReviews = "apiVersion: v1\nkind: Service\nmetadata: {name: reviews, namespace: shop}\nspec:\n  selector: {app: reviews}\n  ports: [{name: http, port: 80, targetPort: 8080}]\n---\n"

const deploymentReviews = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: reviews, namespace: shop}\nspec:\n  template:\n    metadata: {labels: {app: reviews, version: v1}}\n    spec: {containers: [{name: app, image: reviews, ports: [{name: web, containerPort: 8080}]}]}\n---\n"

const routeReviews = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: reviews, namespace: shop}\n"

const ruleReviews = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: reviews, namespace: shop}\n"

var routes = []Page{
	{HostNotFound, "The host does not exist",
		"No Service and no ServiceEntry has the host. Requests that a route sends there get 503. Names without a dot are services of the namespace of the object.",
		"Correct the host, or write a Service or ServiceEntry for it. Write hosts of other namespaces in full: reviews.shop.svc.cluster.local.",
		serviceReviews + routeReviews + "spec:\n  hosts: [reviews]\n  http: [{route: [{destination: {host: reveiws}}]}]\n", []string{"IST0101"}},
	{HostNotExported, "The host is not exported to the namespace",
		"A service has the host, and its `exportTo` does not list the namespace of the object.",
		"Add the namespace to `exportTo` of the service (for a Service: the annotation networking.istio.io/exportTo).",
		"apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: api, namespace: cart}\nspec:\n  hosts: [api.example.com]\n  exportTo: [\".\"]\n  ports: [{number: 443, name: tls, protocol: TLS}]\n  resolution: DNS\n---\n" +
			routeHead + "spec:\n  hosts: [web.example.com]\n  http: [{route: [{destination: {host: api.example.com}}]}]\n", []string{"IST0101"}},
	{PortNotFound, "The service does not have the port",
		"Requests for the port get 503, or the settings of the port have no effect. Routes name the port of the Service, not of the container.",
		"Write one of the ports in the message.",
		serviceReviews + routeReviews + "spec:\n  hosts: [reviews]\n  http: [{route: [{destination: {host: reviews, port: {number: 8080}}}]}]\n", []string{"IST0101"}},
	{PortAmbiguous, "The service has several ports, and the route names none",
		"Requests go to the port that the client called. Behind a gateway that is the port of the gateway.",
		"Name the port in the destination.",
		"apiVersion: v1\nkind: Service\nmetadata: {name: reviews, namespace: shop}\nspec:\n  ports: [{name: http, port: 80}, {name: http-admin, port: 81}]\n---\n" +
			routeReviews + "spec:\n  hosts: [reviews]\n  http: [{route: [{destination: {host: reviews}}]}]\n", []string{"IST0112"}},
	{SubsetNotFound, "The subset does not exist",
		"No DestinationRule that the object sees defines the subset, so requests for it get 503.",
		"Correct the name, or define the subset in the DestinationRule of the host.",
		serviceReviews + routeReviews + "spec:\n  hosts: [reviews]\n  http: [{route: [{destination: {host: reviews, subset: v2}}]}]\n", []string{"IST0101"}},
	{SubsetWithoutWorkloads, "No workload belongs to the subset",
		"The service has workloads, and none has the labels of the subset. Requests for it get 503.",
		"Correct the labels.",
		serviceReviews + deploymentReviews + ruleReviews + "spec:\n  host: reviews\n  subsets: [{name: v2, labels: {version: v2}}]\n", []string{"IST0127", "IST0173"}},
	{DelegateNotFound, "The delegate does not exist",
		"The rule delegates to a VirtualService that does not exist, so requests for it get 404.",
		"Write the VirtualService, or correct name and namespace.",
		routeReviews + "spec:\n  hosts: [web.example.com]\n  http: [{delegate: {name: rveiews-routes}}]\n---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: other, namespace: shop}\nspec:\n  hosts: [other.example.com]\n  http: [{directResponse: {status: 200}}]\n", []string{"IST0101"}},
	{InvalidDelegate, "The VirtualService cannot be a delegate, or is none",
		"A delegate has no hosts, and its routes apply only if another VirtualService delegates to it.",
		"Remove the hosts of the delegate, or delegate to it.",
		routeReviews + "spec:\n  http: [{directResponse: {status: 200}}]\n", nil},
	{HostRoutedTwice, "Two VirtualServices route the same host",
		"For sidecars, the rules of the older VirtualService apply, and those of the other do not.",
		"Merge the two. Delegates divide one VirtualService among several owners.",
		serviceReviews + routeReviews + "spec:\n  hosts: [reviews]\n  http: [{route: [{destination: {host: reviews}}]}]\n---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: canary, namespace: shop}\nspec:\n  hosts: [reviews]\n  http: [{route: [{destination: {host: reviews}}]}]\n", []string{"IST0109"}},
	{RuleNeverUsed, "A rule is never used",
		"An earlier rule takes all of its requests or connections: it has no match, the same match, fewer conditions, or a shorter prefix.",
		"Move the rule before that, or remove it.",
		routeHead + "spec:\n  hosts: [api.example.com]\n  http:\n  - directResponse: {status: 200}\n  - match: [{uri: {prefix: /api}}]\n    directResponse: {status: 404}\n", []string{"IST0130", "IST0131"}},
	{MatchOfOtherGateway, "A match names a gateway that the VirtualService is not bound to",
		"The match never applies.",
		"Add the gateway to spec.gateways, or remove it from the match.",
		routeHead + "spec:\n  hosts: [api.example.com]\n  http:\n  - match: [{gateways: [web]}]\n    directResponse: {status: 404}\n", nil},
	{PathWithoutSlash, "A path does not begin with a slash",
		"Paths of requests begin with a slash, so the match never applies.",
		"Write the slash.",
		routeHead + "spec:\n  hosts: [api.example.com]\n  http:\n  - match: [{uri: {prefix: api/}}]\n    directResponse: {status: 404}\n", nil},
	{TryLongerThanTimeout, "A try may take longer than the request",
		"`perTryTimeout` is longer than the timeout of the route, so it has no effect, and a slow try is not repeated.",
		"Shorten perTryTimeout to a part of the timeout.",
		serviceReviews + routeReviews + "spec:\n  hosts: [reviews]\n  http:\n  - timeout: 1s\n    retries: {attempts: 2, perTryTimeout: 2s}\n    route: [{destination: {host: reviews}}]\n", nil},
	{HTTPRoutesOnTCP, "The port serves no routes of this kind",
		"HTTP routes need a port where requests are read: sidecars do so at ports that are HTTP by name or appProtocol, and Gateways at servers for HTTP, or for HTTPS whose TLS they end. Other routes need a port where they are not.",
		"Change the protocol of the port or server, or write routes of the other kind.",
		"apiVersion: v1\nkind: Service\nmetadata: {name: reviews, namespace: shop}\nspec:\n  ports: [{name: tcp, port: 80}]\n---\n" +
			routeReviews + "spec:\n  hosts: [reviews]\n  http: [{route: [{destination: {host: reviews}}]}]\n", nil},
	{EgressSelectsNothing, "An entry of a Sidecar selects no service",
		"No service of the namespace has the host, or it is not exported. Workloads cannot call it by the Sidecar.",
		"Correct namespace and host of the entry.",
		serviceReviews + "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: default, namespace: shop}\nspec:\n  egress: [{hosts: [\"./reveiws.shop.svc.cluster.local\"]}]\n", []string{"IST0101"}},
	{RedirectLoop, "A redirect leads to itself",
		"The rule matches the path that it redirects to, so clients are redirected until they give up.",
		"Match the old paths only.",
		routeHead + "spec:\n  hosts: [api.example.com]\n  http:\n  - match: [{uri: {prefix: /a}}]\n    redirect: {uri: /a/new}\n", nil},
	{UnsplitAtGateway, "Routes to subsets are not for the gateway",
		"A VirtualService of a gateway sends requests to a service. Another one divides the service among subsets, for sidecars only: its routes do not apply to requests that come through the gateway.",
		"Write the subsets in the VirtualService of the gateway, too.",
		serviceReviews + ruleReviews + "spec:\n  host: reviews\n  subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]\n---\n" +
			routeReviews + "spec:\n  hosts: [reviews]\n  http:\n  - route: [{destination: {host: reviews, subset: v1}, weight: 90}, {destination: {host: reviews, subset: v2}, weight: 10}]\n---\n" +
			gatewayWeb + routeHead + "spec:\n  hosts: [shop.example.com]\n  gateways: [web]\n  http: [{route: [{destination: {host: reviews}}]}]\n", []string{"IST0140"}},
	{RuleOutOfReach, "No client follows the DestinationRule",
		"Clients search for rules in their own namespace, in that of the service, and in the root namespace. The rule is in none of them.",
		"Move it to one of them.",
		serviceReviews + deploymentReviews + "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: reviews, namespace: config}\nspec:\n  host: reviews.shop.svc.cluster.local\n  trafficPolicy: {connectionPool: {tcp: {maxConnections: 10}}}\n", nil},
}
