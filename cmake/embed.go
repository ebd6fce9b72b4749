// Package cmake holds the CMake modules that a repository's native project
// includes, so that the tool can put them there.
package cmake

import "embed"

// Modules are the modules, at the root.
//
//go:embed PayloadSource.cmake PayloadInstall.cmake
var Modules embed.FS
