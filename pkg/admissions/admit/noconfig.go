package admit

// NoConfig is for plugins that have no configuration: whatever one says would have
// no effect, so any field is an error.
func NoConfig(data []byte) error {
	_, err := LoadConfig[struct{}](data)
	return err
}
