module github.com/postern-dev/postern/test/node

go 1.26.0

require (
	github.com/google/go-containerregistry v0.22.1
	github.com/postern-dev/postern/test/controlplane v0.0.0
	github.com/postern-dev/postern/test/demo v0.0.0-00010101000000-000000000000
	sigs.k8s.io/yaml v1.6.0
)

require (
	github.com/docker/cli v29.7.2+incompatible // indirect
	github.com/docker/docker-credential-helpers v0.9.3 // indirect
	github.com/klauspost/compress v1.19.2 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
	github.com/sirupsen/logrus v1.9.4 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	gotest.tools/v3 v3.5.2 // indirect
	k8s.io/client-go v0.37.1 // indirect
)

replace (
	github.com/postern-dev/postern/test/controlplane => ../controlplane
	github.com/postern-dev/postern/test/demo => ../demo
)
