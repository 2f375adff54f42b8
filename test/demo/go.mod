module github.com/postern-dev/postern/test/demo

go 1.26.0

require (
	github.com/postern-dev/postern/test/controlplane v0.0.0
	k8s.io/client-go v0.37.1
	sigs.k8s.io/yaml v1.6.0
)

require go.yaml.in/yaml/v2 v2.4.4 // indirect

replace github.com/postern-dev/postern/test/controlplane => ../controlplane
