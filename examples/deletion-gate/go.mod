module example.com/deletion-gate

go 1.26.0
