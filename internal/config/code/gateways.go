package code

const gatewayWeb = "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: web, namespace: shop}\nspec:\n  selector: {app: web}\n  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [shop.example.com]}]\n---\n"

const apiGateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: web, namespace: shop}\nspec:\n  gatewayClassName: istio\n  listeners: [{name: http, port: 80, protocol: HTTP, hostname: \"*.example.com\"}]\n---\n"

const apiRoute = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: shop, namespace: shop}\n"

var gateways = []Page{
	{GatewayNotFound, "The Gateway does not exist",
		"The routes have no effect there. Gateways of other namespaces are written as namespace/name. Gateways of the Gateway API take no VirtualServices.",
		"Write the Gateway, or correct its name. Write an HTTPRoute for a Gateway of the Gateway API.",
		gatewayWeb + routeHead + "spec:\n  hosts: [shop.example.com]\n  gateways: [wbe]\n  http: [{directResponse: {status: 200}}]\n", []string{"IST0101"}},
	{GatewayTakesNoHost, "No server of the Gateway takes the hosts",
		"The hosts of the VirtualService are not among those of the Gateway's servers for its namespace.",
		"Add the hosts to the server, or correct them.",
		gatewayWeb + routeHead + "spec:\n  hosts: [api.example.com]\n  gateways: [web]\n  http: [{directResponse: {status: 200}}]\n", []string{"IST0132"}},
	{GatewayWithoutRouter, "No proxy serves the Gateway",
		"No Pod of the cluster has the labels of its selector.",
		"Correct the selector, or install a gateway with these labels.", "", []string{"IST0101"}},
	{ServerConflict, "Two servers or listeners claim the same port",
		"The servers have the same port and cannot share it: their protocols differ, or their hosts are the same. The older one is served.",
		"Change the port or the hosts of one of them.",
		gatewayWeb + "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: web2, namespace: shop}\nspec:\n  selector: {app: web}\n  servers: [{port: {number: 80, name: tcp, protocol: TCP}, hosts: [\"*\"]}]\n", []string{"IST0145"}},
	{ParentNotFound, "The parent of a route does not exist",
		"The route has no effect there.",
		"Correct name and namespace of the parent.",
		apiGateway + apiRoute + "spec:\n  parentRefs: [{name: wbe}]\n  rules: [{filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]}]\n", nil},
	{RouteRefused, "The parent does not accept the route",
		"No listener takes the route: its name, port, hostnames, kind or namespace do not fit. Requests for the route's hostnames get 404 at the Gateway.",
		"Change the route or the listener, as the message advises. A listener takes only routes of the namespace of its Gateway, unless it has `allowedRoutes: {namespaces: {from: All}}`, or `from: Selector` with a `selector` of labels of namespaces.",
		apiGateway + apiRoute + "spec:\n  parentRefs: [{name: web, sectionName: https}]\n  rules: [{filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]}]\n", nil},
	{BackendNotFound, "The backend does not exist",
		"The Service or its port does not exist, so requests for it get 500.",
		"Correct name, namespace and port. Routes name the port of the Service.",
		serviceReviews + apiGateway + apiRoute + "spec:\n  parentRefs: [{name: web}]\n  rules: [{backendRefs: [{name: reveiws, port: 80}]}]\n", []string{"IST0101"}},
	{ReferenceGrantMissing, "A ReferenceGrant is missing",
		"The Gateway API allows references to Services and Secrets of other namespaces only with a ReferenceGrant there. Without it, requests for the Service get 500, and a listener does not use the Secret.",
		"Add a ReferenceGrant to the namespace of the Service or Secret, with the `spec` in the message. `from` is the kind and namespace of the object that refers, `to` is what it refers to. Without `name`, `to` allows all objects of the kind. For the example:\n\n" + "    apiVersion: gateway.networking.k8s.io/v1\n    kind: ReferenceGrant\n    metadata: {name: shop, namespace: cart}\n    spec:\n      from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}]\n      to: [{group: \"\", kind: Service, name: cart}]",
		"apiVersion: v1\nkind: Service\nmetadata: {name: cart, namespace: cart}\nspec: {selector: {app: cart}, ports: [{name: http, port: 80}]}\n---\n" +
			apiGateway + apiRoute + "spec:\n  parentRefs: [{name: web}]\n  rules: [{backendRefs: [{name: cart, namespace: cart, port: 80}]}]\n", nil},
	{ClassNotFound, "The class does not exist",
		"No GatewayClass or IngressClass of this name is served, so the object has no effect.",
		"Name a class in the message, or create it.",
		"apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: web, namespace: shop}\nspec:\n  gatewayClassName: isto\n  listeners: [{name: http, port: 80, protocol: HTTP}]\n", nil},
	{RuleLeadsNowhere, "A rule has no backend",
		"Requests that the rule matches are answered with an error.",
		"Add backendRefs or a redirect.",
		apiGateway + apiRoute + "spec:\n  parentRefs: [{name: web}]\n  rules: [{matches: [{path: {type: PathPrefix, value: /api}}]}]\n", nil},
	{GatewayPortUnreachable, "No Service leads to the port of the Gateway",
		"Proxies of the Gateway listen on the port, but the Service in front of them does not have it. So clients outside of the cluster cannot reach it.",
		"Add the port to the Service, or use a port that it has. Node ports do not count: a Gateway names the port of the Service.",
		gatewayWeb + "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {selector: {app: web}, ports: [{name: https, port: 443}]}\n", []string{"IST0162"}},
	{ListenerWithoutRoutes, "No route attaches to a listener",
		"Other listeners of the Gateway have routes among the files, and this one has none. Requests to it get 404, and connections are closed. Its routes may be in other files.",
		"Write a route for it, for example a redirect from HTTP to HTTPS, or remove the listener.",
		"apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: web, namespace: shop}\nspec:\n  gatewayClassName: istio\n  listeners:\n  - {name: http, port: 80, protocol: HTTP}\n  - {name: internal, port: 8080, protocol: HTTP}\n---\n" +
			apiRoute + "spec:\n  parentRefs: [{name: web, sectionName: http}]\n  rules: [{filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]}]\n", nil},
}
