// Package gatewayapi converts objects of the Gateway API into objects of the model: a Gateway into a
// model.Gateway, and a route into what a VirtualService becomes.
//
// Refs holds the references that an object's status is about, also of objects that cannot be converted.
package gatewayapi
