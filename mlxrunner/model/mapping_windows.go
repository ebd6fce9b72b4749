package model

import "payload/fs/safetensors"

// A mapping is a file in memory: not on Windows, where MLX has no payload.
type mapping struct{}

func mapFile(*safetensors.File) *mapping { return nil }

func (m *mapping) take(_, _ int64) []byte { return nil }

func (m *mapping) release() {}

func willNeed([]byte) {}
