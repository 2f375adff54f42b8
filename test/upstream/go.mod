module github.com/postern-dev/postern/test/upstream

go 1.26.0

require github.com/postern-dev/postern/test/controlplane v0.0.0

replace github.com/postern-dev/postern/test/controlplane => ../controlplane
