package admit

// NoConfig is for plugins that have no configuration: whatever one says would have
// no effect, so any field is an error.
func NoConfig(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	return DecodeConfig(data, &struct{}{})
}
