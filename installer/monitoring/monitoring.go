// Package monitoring holds alert rules for Prometheus and a dashboard for Grafana. It has no code, only tests.
package monitoring
