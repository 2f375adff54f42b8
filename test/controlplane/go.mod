module github.com/postern-dev/postern/test/controlplane

go 1.26.0
