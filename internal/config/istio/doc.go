// Package istio converts Istio's objects and MeshConfig into objects of the model. Each kind has a function of its
// name, which validates as it converts: it returns the object with its problems, and callers drop an object
// with errors. What is valid follows Istio's pkg/config/validation.
package istio
