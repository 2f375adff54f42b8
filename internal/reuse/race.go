//go:build race

package reuse

const overwrites = true
