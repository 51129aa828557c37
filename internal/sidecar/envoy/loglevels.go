package envoy

// LogLevels are the levels of Envoy's loggers, from most to least verbose.
var LogLevels = []string{"trace", "debug", "info", "warning", "error", "critical", "off"}
